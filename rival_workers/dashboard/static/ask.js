// A dialogue before an action: what it does, the same as a command from the server's dry run, and one button.
import { html, useEffect, useRef, useState, AsCommand, Button } from "./ui.js";
import { Modal } from "./modal.js";
import { typedJson } from "./exact.js";

/** What is wrong, and where. */
export const wordsOf = (problem) => {
  const [first] = problem.errors ?? [];
  return first ? [first.pointer?.slice(1).replaceAll("/", ", "), first.message].filter(Boolean).join(": ") : problem.detail ?? problem.title;
};

/**
 * @param {{title: string, note?: any, ask: (dry: boolean) => Promise<any>, on?: string, why?: string|null, button: string,
 *   danger?: boolean, close: () => void, done: (answer: any) => void, children?: (shown: any) => any}} props
 *   `on`: what the dry run depends on; `why`: what is still missing.
 */
export function Ask({ title, note, ask, on = "", why = null, button, danger, close, done, children }) {
  const [shown, setShown] = useState(null);
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const preview = useRef({ timer: 0, asked: null });
  useEffect(() => {
    if (why) { setShown(null); return undefined; }
    let gone = false;
    const begin = () => (preview.current.asked = ask(true).then(
      (answer) => { if (!gone) { setShown(answer.possible === false ? null : answer); setProblem(answer.possible === false ? { detail: answer.reason, errors: answer.errors } : null); } },
      (found) => { if (!gone) { setShown(null); setProblem(found); } }));
    preview.current.timer = setTimeout(begin, shown || problem ? 250 : 0);
    return () => { gone = true; clearTimeout(preview.current.timer); };
  }, [on, why]);
  const act = async (event) => {
    event.preventDefault();
    if (why) { setProblem({ detail: why }); return; }
    setBusy(true);
    // A preview that the action overtakes would ask about what is gone.
    clearTimeout(preview.current.timer);
    await preview.current.asked;
    try { done(await ask(false)); close(); } catch (found) { setProblem(found); setBusy(false); }
  };
  return html`<${Modal} title=${title} close=${close}><form class="ask" onSubmit=${act} noValidate>${note && html`<p class="i2">${note}</p>`}${children?.(shown)}
    <${AsCommand} commands=${shown?.commands} />${problem && html`<p class="err" role="alert">${wordsOf(problem)}</p>`}
    <div class="acts2"><span class="grow"></span><${Button} onClick=${close}>Leave<//><button type="submit" class=${`b acc ${danger ? "bad-b" : ""}`} disabled=${busy}>${button}</button></div></form><//>`;
}

/** A label with its input. */
export const Field = ({ id, label, hint, value, set, area, ...more }) => html`<div><label for=${id}>${label}${hint && html` <span class="i3">${hint}</span>`}</label>${
  area ? html`<textarea class="in area m" id=${id} rows=${area} value=${value} onInput=${(event) => set(event.target.value)} ...${more}></textarea>`
    : html`<input class="in m" id=${id} value=${value} onInput=${(event) => set(event.target.value)} ...${more} />`}</div>`;

/** JSON as typed: `{value}`, or null while it is none. */
export function parsed(text) {
  try { return { value: typedJson(text) }; } catch { return null; }
}
