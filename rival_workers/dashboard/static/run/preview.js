// Verbs with a preview: a mode of the run page. The graph shows what would happen, this panel says it, one button does it.
import { html, useEffect, useMemo, useRef, useState, AsCommand, Button, Sign, Status, Problem, say, useAnswers } from "../ui.js";
import { idPath, me, post } from "../api.js";
import { to } from "../router.js";
import { count, plural } from "../format.js";
import { typedJson } from "../exact.js";
import { flat, nameOf } from "./model.js";
import { MARKS, VERBS, marks, parts } from "./verbs.js";

/** The words that the graph has for what happens to a step. */
function Marked({ mark }) {
  const [cls, sign, text] = MARKS[mark];
  return html`<span class=${`st ${cls}`}><${Sign} of=${sign ?? "completed"} />${text}</span>`;
}

export function PreviewNote({ mode, answer, leave, items }) {
  const verb = VERBS[mode.verb];
  const shown = answer?.possible ? new Set(marks(mode.verb, mode.step, answer, items).values()) : new Set();
  return html`<section class="note running" aria-label="Preview"><${Sign} of=${verb.sign} /><div><p class="lead">Preview: ${verb.title.toLowerCase()} ${mode.step ? html`<span class="m">${mode.step}</span>` : "this run"}. Nothing has changed yet.</p>
    ${shown.size > 0 && html`<p class="facts">${Object.keys(MARKS).filter((mark) => shown.has(mark)).map((mark) => html`<span key=${mark}><${Marked} mark=${mark} /></span>`)}${mode.verb === "rewind" && html`<span>Choose another step to move the point</span>`}</p>`}</div>
    <button type="button" class="b" onClick=${leave}>Leave <kbd>Esc</kbd></button></section>`;
}

/** Names, not paths: the graph beside it shows where they are. */
const some = (paths, most = 8) => (paths.length > most ? [...paths.slice(0, most).map(nameOf), `${count(paths.length - most)} more`] : paths.map(nameOf)).join(", ");

/** The end of an item's path. */
const ITEM = /\[\d+\]$/;

export function PreviewPanel({ run, mode, preview, items, leave, finished }) {
  const verb = VERBS[mode.verb];
  const { answer, problem, moved, fresh } = preview;
  const [reason, setReason] = useState("");
  const [text, setText] = useState("");
  const [failure, setFailure] = useState(null);
  const [commands, setCommands] = useState(null);
  const [busy, setBusy] = useState(false);
  const parsed = useMemo(() => { try { return { value: typedJson(text) }; } catch { return text.trim() ? { bad: true } : { empty: true }; } }, [text]);
  const panel = useRef(null);
  // The button that opened it has gone: a keyboard and a screen reader go on here, and at the page when it is left.
  useEffect(() => {
    panel.current?.focus({ preventScroll: true });
    return () => queueMicrotask(() => document.activeElement === document.body && document.getElementById("main")?.focus({ preventScroll: true }));
  }, []);
  const lists = parts(answer, items);
  const again = [...lists.again];
  const gone = [...lists.gone];
  const stays = flat(items).filter((item) => item.row && !item.reaction && !lists.again.has(item.path) && !lists.gone.has(item.path)).map((item) => item.path);
  const turned = again.filter((path) => ITEM.test(path));
  const steps = again.filter((path) => !path.includes("["));
  const owners = [...new Set(turned.map((path) => nameOf(path).replace(ITEM, "")))];
  const [small, setSmall] = useState(false);
  const back = mode.verb === "rewind" && answer?.possible && answer.opened.length > 0 && !answer.opened.includes(mode.step) ? answer.opened[0] : null;
  const missing = verb.reason && !reason.trim() ? "Say why: it goes into the history." : verb.result && !("value" in parsed) ? "Give the result as JSON." : null;
  const take = useAnswers([mode.verb, mode.step]);
  const order = { ...(verb.step ? { step: mode.step } : {}), ...(reason.trim() ? { reason: reason.trim() } : {}), ...(verb.result ? { result: parsed.value } : {}) };
  // The command has what is typed here.
  useEffect(() => {
    if (!verb.reason || missing || !answer?.possible) { setCommands(null); return undefined; }
    const timer = setTimeout(() => take(post(idPath`runs/${run.id}/` + mode.verb, { dry_run: true, ...order }), (made) => setCommands(made.commands), () => setCommands(null), "commands"), 300);
    return () => clearTimeout(timer);
  }, [JSON.stringify(order), answer]);
  const act = () => {
    if (missing) { setFailure({ detail: missing }); return; }
    setBusy(true);
    const asked = post(idPath`runs/${run.id}/` + mode.verb, { dry_run: false, ...order }, { match: answer.etag });
    // It is done, also for a reader who has gone on to something else.
    asked.then(() => say(`${run.id}: ${verb.done}`), () => {}).then(() => setBusy(false));
    take(asked, finished, (found) => (found.status === 412 ? preview.again(true) : setFailure(found)));
  };
  return html`<aside class=${`panel side ${small ? "" : "up"}`} aria-labelledby="pvh" role="region" tabindex="-1" ref=${panel}><button type="button" class="sheet" aria-label=${small ? "Open the preview" : "Make the preview small"} aria-expanded=${String(!small)} onClick=${() => setSmall(!small)}></button><div class="sec0"><div class="bar"><h2 id="pvh" class="grow">${verb.title} ${mode.step ? html`<span class="m">${mode.step}</span>` : html`<span class="m">${run.id}</span>`}</h2></div></div>
    ${problem && html`<${Problem} problem=${problem} again=${() => preview.again(false)} />`}
    ${moved && html`<div class="sec back"><${Sign} of="alert" /><p><b>The run has moved since the preview.</b> This is a new one: look at it again.</p></div>`}
    ${answer && !answer.possible && html`<div class="sec back"><${Sign} of="alert" /><p><b>Not possible now.</b> ${answer.reason}</p></div>`}
    ${back && html`<div class="sec back"><${Sign} of="undone" /><p><b>It goes back further than you chose:</b> to <span class="m">${back}</span>. What has been undone counts as not done.</p></div>`}
    ${answer?.possible && (again.length > 0 || gone.length > 0 || answer.children.length > 0) && html`<div class="sec"><table class="att pvt"><colgroup><col class="w-pv" /><col class="w-at" /><col /></colgroup><thead class="vh"><tr><th>What</th><th>How many</th><th>Which</th></tr></thead><tbody>
      ${again.length > 0 && html`<tr><td><${Marked} mark="again" /></td><td class="num">${plural(steps.length, "step")}</td><td class="m i2">${some(steps)}</td></tr>`}
      ${turned.length > 0 && html`<tr><td><span class="vh">runs again</span></td><td class="num">${plural(turned.length, "item")}</td><td class="i2">of <span class="m">${owners.join(", ")}</span></td></tr>`}
      ${gone.length > 0 && html`<tr><td><${Marked} mark="gone" /></td><td class="num">${plural(gone.length, "step")}</td><td class="m i2">${some(gone)}</td></tr>`}
      ${answer.children.length > 0 && html`<tr><td><${Status} is="cancelled" /></td><td class="num">${plural(answer.children.length, "run")}</td><td class="i2">${answer.children.slice(0, 6).map((id) => html`<a class="m" key=${id} href=${to.run(id)}>${id}</a> `)}</td></tr>`}
      ${answer.retried_children.length > 0 && html`<tr><td><${Status} is="running" word="retried too" /></td><td class="num">${plural(answer.retried_children.length, "run")}</td><td class="i2">${answer.retried_children.slice(0, 6).map((id) => html`<a class="m" key=${id} href=${to.run(id)}>${id}</a> `)}</td></tr>`}
      <tr><td><${Marked} mark="stays" /></td><td class="num">${plural(stays.length, "step")}</td><td class="m i2">${some(stays)}</td></tr></tbody></table></div>`}
    ${answer?.possible && again.length > 0 && html`<div class="sec"><h3>Done again outside Rival</h3><p class="sm i2">What these steps did elsewhere (payments, mails, files) happens a second time unless the step checks for it.</p></div>`}
    ${mode.verb === "cancel" && answer?.possible && html`<div class="sec"><p class="sm i2">Open steps and child runs are cancelled. A cancelled run can be opened again with a rewind.</p></div>`}
    ${mode.verb === "pause" && answer?.possible && html`<div class="sec"><p class="sm i2">Steps that run now end normally; nothing new begins until it is resumed.</p></div>`}
    ${verb.result && html`<div class="sec"><label class="h3" for="pv-result">Result as JSON</label><textarea id="pv-result" class="in area m" rows="4" aria-invalid=${parsed.bad ? "true" : undefined} value=${text} onInput=${(event) => setText(event.target.value)} placeholder='{"ok": true}'></textarea>${parsed.bad && html`<p class="err">This is not JSON yet.</p>`}</div>`}
    ${verb.reason && html`<div class="sec"><label class="h3" for="pv-why">Reason <span class="i3">goes into the history, as ${me.value?.name}</span></label><input id="pv-why" class="in" value=${reason} onInput=${(event) => setReason(event.target.value)} required /></div>`}
    ${answer?.possible && html`<${AsCommand} commands=${commands ?? (verb.result ? null : answer.commands)} />`}
    <div class="sec acts2"><div class="grow">${failure ? html`<p class="err" role="alert">${failure.detail ?? failure.title}</p>` : html`<p class="xs i3">If the run moves before you confirm, you see a new preview.</p>`}</div>
      <${Button} onClick=${leave}>Leave<//><${Button} kind=${verb.danger ? "acc bad-b" : "acc"} sign=${verb.sign} onClick=${act} why=${answer?.possible && fresh && !busy ? null : answer ? answer.reason ?? "One moment." : "The preview is not there yet."}>${verb.button ?? verb.title} ${verb.step ? "" : run.id.length < 24 ? run.id : "run"}<//></div></aside>`;
}
