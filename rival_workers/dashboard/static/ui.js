// What every page draws with: preact through htm, signals, and the small components of the design.
import { h, render, Component, Fragment } from "./vendor/preact.js";
import { useEffect, useLayoutEffect, useMemo, useRef, useState, useCallback } from "./vendor/hooks.js";
import { signal, computed, effect, batch, useSignal, useComputed } from "./vendor/signals.js";
import htm from "./vendor/htm.js";

export { h, render, Component, Fragment, useEffect, useLayoutEffect, useMemo, useRef, useState, useCallback };
export { signal, computed, effect, batch, useSignal, useComputed };
export const html = htm.bind(h);

/** A sign: one shape per status, in the colour of the text around it. */
export const Sign = ({ of, big, cls = "" }) =>
  html`<i class=${`s s-${of}${big ? " big" : ""} ${cls}`} aria-hidden="true"></i>`;

/** Which sign and colour a status has. Words are those of the tables. */
export const LOOKS = {
  completed: ["completed", "completed"], failed: ["failed", "failed"], running: ["running", "running"],
  pending: ["pending", "pending"], suspended: ["waits", "waits"], waiting: ["waits", "waits"],
  waiting_retry: ["retry", "waits"], paused: ["paused", "paused"], cancelled: ["cancelled", "cancelled"],
  skipped: ["skipped", "skipped"], compensating: ["undone", "undone"],
  lost: ["lost", "lost"], alive: ["completed", "completed"], dead: ["failed", "failed"], leaving: ["waits", "waits"],
  left: ["cancelled", "cancelled"], ok: ["completed", "completed"], warn: ["alert", "waits"], bad: ["failed", "failed"],
  retried: ["retry", "waits"], timed_out: ["failed", "failed"], taken_over: ["lost", "lost"], handed_back: ["lost", "lost"],
  revoked: ["cancelled", "cancelled"],
};
const WAIT_SIGNS = { time: "waits", retry: "retry", event: "event", child: "nested", external: "event", limit: "waits", worker: "pending", steps: "waits" };

/** The word for a step's status: `waiting_retry` reads "waits for retry". */
export const WORDS = { waiting_retry: "waits to retry", waiting: "waits", timed_out: "timed out", taken_over: "lost", handed_back: "handed back" };

/** The status of a run as people say it: paused and compensating are said in place of running. */
export function statusOf(run) {
  if (run.paused_at && !run.completed_at) return "paused";
  if (run.compensating && !run.completed_at) return "compensating";
  return run.status;
}

export function look(status, waits) {
  const [sign, cls] = LOOKS[status] ?? ["pending", "pending"];
  const waiting = status === "suspended" || status === "waiting";
  return [waiting && waits ? WAIT_SIGNS[waits] ?? sign : sign, cls];
}

/** Sign, word and colour of a status. */
export function Status({ is, waits, word = WORDS[is] ?? is, quiet }) {
  const [sign, cls] = look(is, waits);
  return html`<span class=${`st ${cls}`}><${Sign} of=${sign} />${quiet ? html`<span class="vh">${word}</span>` : word}</span>`;
}

export const Tag = ({ cls = "plain", sign, children }) =>
  html`<span class=${`tag ${cls}`}>${sign && html`<${Sign} of=${sign} />`}${children}</span>`;

/** A button. `why`: the reason it is disabled, which is said instead of doing it. */
export function Button({ kind = "", sign, down, label, why, children, onClick, type = "button", ...rest }) {
  const icon = !children || children.length === 0;
  return html`<button type=${type} class=${`b ${kind} ${icon ? "ic" : ""}`} aria-label=${label} title=${why ?? (icon ? label : undefined)}
    aria-disabled=${why ? "true" : undefined} onClick=${why ? (event) => event.preventDefault() : onClick} ...${rest}
    >${sign && html`<${Sign} of=${sign} />`}${children}${down && html`<${Sign} of="down" />`}</button>`;
}

/** What happened, for all readers and for screen readers; it goes by itself. */
export const notice = signal(null);
let noticeTimer = 0;
export function say(text, kind = "") {
  notice.value = { text, kind };
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => (notice.value = null), 6000);
}

export async function copy(text, what = "Copied") {
  try {
    await navigator.clipboard.writeText(text);
    say(what);
  } catch {
    say("This browser did not let the page copy. Select the text and copy it.", "bad");
  }
}

export const Copy = ({ text, label }) =>
  html`<${Button} kind="no" sign="copy" label=${label} onClick=${() => copy(text, `Copied ${text.length < 60 ? text : ""}`)} />`;

/** Puts a menu beside its button, where there is room: not clipped by a table that scrolls. */
function placed(list, button, end) {
  const at = button.getBoundingClientRect();
  const up = list.offsetHeight > innerHeight - at.bottom - 12 && at.top > innerHeight - at.bottom;
  const left = Math.max(8, Math.min(end ? at.right - list.offsetWidth : at.left, innerWidth - list.offsetWidth - 8));
  const room = (up ? at.top : innerHeight - at.bottom) - 12;
  const top = up ? at.top - 4 - Math.min(list.offsetHeight, room) : at.bottom + 4;
  for (const [name, value] of [["--x", left], ["--y", top], ["--room", room]]) list.style.setProperty(name, `${value}px`);
}

/** A button that opens a menu below it. Arrow keys move, Escape closes. */
export function Menu({ label, children, kind = "", sign, items, end }) {
  const [open, setOpen] = useState(false);
  const box = useRef(null);
  // Before the next key: an arrow that was pressed at once would be taken back.
  useLayoutEffect(() => {
    if (!open) return undefined;
    placed(box.current.querySelector("[role=menu]"), box.current.querySelector("button"), end);
    box.current.querySelector("[role=menuitem]")?.focus({ preventScroll: true });
    // A window that changes its size is the target of that event, and no node.
    const away = (event) => (event.target instanceof Node && box.current?.contains(event.target)) || setOpen(false);
    const moves = ["pointerdown", "scroll", "resize"];
    for (const name of moves) addEventListener(name, away, true);
    return () => moves.forEach((name) => removeEventListener(name, away, true));
  }, [open]);
  const keys = (event) => {
    const found = [...box.current.querySelectorAll("[role=menuitem]")];
    const at = found.indexOf(document.activeElement);
    const move = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: found.length - 1 }[event.key];
    if (event.key === "Escape" && open) { setOpen(false); box.current.querySelector("button").focus(); }
    else if (move === undefined || !open) return;
    else found.at(move % found.length).focus();
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<span class="menu" ref=${box} onKeyDown=${keys}>
    <${Button} kind=${kind} sign=${sign} down=${Boolean(children)} label=${label} aria-haspopup="menu" aria-expanded=${String(open)}
      onClick=${() => setOpen(!open)}>${children}<//>
    ${open && html`<ul class=${`pop${end ? " end" : ""}`} role="menu" aria-label=${label}>${items.map((item) => item && html`<li role="none">
      ${item.href
        ? html`<a role="menuitem" tabindex="-1" href=${item.href} download=${item.download} onClick=${() => setOpen(false)}>${item.text}</a>`
        : html`<button type="button" role="menuitem" tabindex="-1" class=${item.kind ?? ""} aria-disabled=${item.why ? "true" : undefined} title=${item.why}
            onClick=${() => { if (item.why) return; setOpen(false); box.current.querySelector("button").focus(); item.do(); }}>${item.text}${item.hint && html` <small class="i3">${item.hint}</small>`}</button>`}
    </li>`)}</ul>`}
  </span>`;
}

/** Arrow keys go to the next of a few and choose it, as they do with the browser's own radio buttons. */
export function arrows(event) {
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const all = [...event.currentTarget.querySelectorAll("[role=radio], [role=tab]")];
  const at = all.indexOf(event.target);
  if (!by || at < 0) return;
  event.preventDefault();
  event.stopPropagation();
  const next = all.at((at + by) % all.length);
  next.focus();
  if (next.ariaChecked !== "true" && next.ariaSelected !== "true") next.click();
}

/** One of a few: buttons in a row of which one is pressed. */
export const Segment = ({ label, of, value, onPick, role = "group" }) =>
  html`<span class="seg" role=${role} aria-label=${label} onKeyDown=${role === "tablist" ? arrows : undefined}>${of.map(([key, text]) =>
    html`<button type="button" key=${key} aria-pressed=${role === "group" ? String(key === value) : undefined}
      role=${role === "tablist" ? "tab" : undefined} aria-selected=${role === "tablist" ? String(key === value) : undefined}
      onClick=${() => onPick(key)}>${text}</button>`)}</span>`;

/** What a problem says beyond its title, which is the beginning of it. */
const detailOf = ({ title, detail }) => (title && detail?.startsWith(title) ? detail.slice(title.length).replace(/^[.\s]+/, "") : detail);

/** Errors name commands in backticks. */
const coded = (text) => text.split("`").map((part, at) => (at % 2 ? html`<code>${part}</code>` : part));

/** A problem in place: what happened, what to do, try again. */
export function Problem({ problem, again }) {
  return html`<section class="note failed" role="alert"><${Sign} of="failed" /><div>
    <p class="lead">${problem.title ?? "That did not work"}</p>
    ${detailOf(problem) && html`<p class="i2">${coded(detailOf(problem))}</p>`}
    ${problem.todo && html`<p class="sm do">${problem.todo}</p>`}</div>
    ${again && html`<${Button} onClick=${again}>Again<//>`}</section>`;
}

/** A wide table scrolls sideways. On a phone its rows are cards: there, each cell says which column it is of. */
export function Wide({ label, children }) {
  const box = useRef(null);
  useLayoutEffect(() => {
    const { tHead, tBodies } = box.current.querySelector("table");
    const heads = [...tHead.rows[0].cells].map((head) => (head.querySelector(".vh") ? "" : head.textContent));
    for (const row of tBodies[0].rows) for (const cell of row.cells) if (cell.colSpan === 1) cell.dataset.of = heads[cell.cellIndex];
  });
  return html`<div class="sx" ref=${box} tabindex="0" role="group" aria-label=${label}>${children}</div>`;
}

/** Grey bars in the shape of rows, after 300 ms, while something is loaded for the first time. */
export function Loading({ rows = 6 }) {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 300);
    return () => clearTimeout(timer);
  }, []);
  return html`<div class="load" role="status"><span class="vh">Loading</span>${late && Array.from({ length: rows }, (_, row) => html`<i key=${row}></i>`)}</div>`;
}

/** The same as a command: shell, Python, curl; always in the same place, before the button that does it. */
export function AsCommand({ commands, heading = "h3" }) {
  const [as, setAs] = useState("shell");
  if (!commands) return null;
  const kinds = [["shell", "shell"], ["python", "Python"], ["curl", "curl"]].filter(([key]) => commands[key]);
  return html`<div class="sec cmd"><div class="bar"><${heading} class="h3">As command<//><span class="grow"></span>
    ${kinds.length > 1 && html`<${Segment} label="As" of=${kinds} value=${as} onPick=${setAs} />`}
    <${Copy} text=${commands[as] ?? ""} label="Copy the command" /></div>
    <pre class="code" tabindex="0" aria-label="Command">${commands[as]}</pre></div>`;
}

/**
 * Takes answers of the server: `take(promise, found, failed, question)`. A late one is dropped: when `inputs` (the id, tab,
 * filter or moment that was asked for) have changed, when the page has gone, and when a newer answer to the same question
 * has come already.
 * @returns {(answer: Promise<any>, found: (value: any) => void, failed?: (problem: any) => void, question?: any) => Promise<void>}
 */
export function useAnswers(inputs) {
  const asking = useRef({ asked: 0, shown: new Map() });
  useLayoutEffect(() => () => { asking.current = { asked: 0, shown: new Map() }; }, inputs);
  return useCallback((answer, found, failed = () => {}, question = null) => {
    const mine = asking.current;
    const number = ++mine.asked;
    const unlessLate = (then) => (value) => {
      if (mine !== asking.current || number < (mine.shown.get(question) ?? 0)) return;
      mine.shown.set(question, number);
      then(value);
    };
    return answer.then(unlessLate(found), unlessLate(failed));
  }, []);
}

/** A set of values loaded by `load`; keeps the old ones while the same is loaded again. */
export function useLoad(load, inputs) {
  const [state, setState] = useState({ value: null, problem: null });
  const take = useAnswers(inputs);
  const again = useCallback(() => take(load(), (value) => setState({ value, problem: null }), (problem) => setState((old) => ({ ...old, problem }))), inputs);
  useEffect(() => { again(); }, [again]);
  return { ...state, again };
}

/** A number that counts up, so that "2 s ago" stays true; one timer for the page. */
export const tick = signal(Date.now());
setInterval(() => { if (!document.hidden) tick.value = Date.now(); }, 1000);
