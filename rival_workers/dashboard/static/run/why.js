// Why a run waits, or how it has ended: the answer of `GET runs/{id}/why` above the run's tabs.
import { html, useEffect, useState, Sign, look, statusOf, tick, useAnswers } from "../ui.js";
import { get, idPath, may } from "../api.js";
import { count, distance, time } from "../format.js";
import { nameOf } from "./model.js";

/** `mark`: another one when the run has changed; empty until it has been read. At first the answer is on its way. */
export function useWhy(id, mark, off) {
  const [why, setWhy] = useState(null);
  const take = useAnswers([id, off]);
  useEffect(() => {
    if (off || !mark) return undefined;
    const ask = () => take(get(idPath`runs/${id}/why`), setWhy, () => setWhy(null));
    const timer = why ? setTimeout(ask, 120) : ask();
    return () => clearTimeout(timer);
  }, [id, mark, off]);
  return off ? null : why;
}

/** What an open run waits for: a flow waits for what its checkpoint does. */
export const waitOf = (steps) => { const open = steps.filter((row) => !row.completed_at && row.waits_for && row.waits_for !== "steps"); return (open.find((row) => row.kind !== "flow") ?? open[0])?.waits_for; };

const TONES = { failed: "failed", cancelled: "cancelled", completed: "completed", paused: "paused", compensating: "undone", running: "running" };

/** The steps of `items` that the run has not come to; of a composite the composite alone. */
const notReached = (items) => items.flatMap((item) => (item.reaction || item.repeats ? [] : item.row ? item.lanes.filter((lane) => lane.taken !== false).flatMap((lane) => notReached(lane.items)) : [item.path]));
const named = (paths) => html`<b class="m">${[...paths.slice(0, 4).map(nameOf), ...(paths.length > 4 ? [`${count(paths.length - 4)} more`] : [])].join(", ")}</b>`;

/** Since when and until when, who can end it; of a run that has ended, what was undone and what it has not reached. */
function about(run, reason, steps, items) {
  if (!run.completed_at) {
    return [reason.since && html`since <b>${time(reason.since)}</b>`, reason.until && html`until <b>${time(reason.until)}</b>, ${distance(reason.until)}`,
      reason.who && html`who can end it: ${reason.who}`];
  }
  const undone = steps.filter((row) => row.kind === "compensation" && row.status === "completed").map((row) => row.path.split("!")[0]);
  const never = notReached(items);
  return [html`<b>${time(run.completed_at)}</b>, ${distance(run.completed_at)}`, undone.length > 0 && html`undone: ${named(undone)}`, never.length > 0 && html`not reached: ${named(never)}`];
}

/** Why the run waits, or how it has ended. `full`: with what is known about it, instead of one line. */
export function Why({ why, run, steps, items, full, act, tab }) {
  const [evidence, setEvidence] = useState(false);
  void tick.value;
  if (!why || run.status === "completed") return null;
  const tone = TONES[statusOf(run)] ?? "waits";
  const [sign] = look(statusOf(run), run.at?.waits_for ?? waitOf(steps));
  const reasons = why.reasons ?? [];
  const first = reasons[0];
  const more = reasons.slice(1).filter((one) => !why.sentence.includes(one.text)).slice(0, 3);
  const shown = [...new Set(reasons.flatMap((one) => one.evidence ?? []).map((one) => one.text))];
  if (!full) return html`<section class=${`note why ${tone}`} aria-label="Why"><${Sign} of=${sign} /><p class="lead">${why.sentence}</p><button type="button" class="lk sm" onClick=${() => tab("graph")}>All of why</button></section>`;
  return html`<section class=${`note why ${tone}`} aria-label="Why"><${Sign} of=${sign} /><div><p class="lead">${why.sentence}</p>
    ${more.length > 0 && html`<p class="facts">${more.map((one) => html`<span key=${one.text}>${one.text}</span>`)}</p>`}
    <p class="facts">${first && about(run, first, steps, items).map((one, at) => one && html`<span key=${at}>${one}</span>`)}</p>
    ${first?.do && html`<p class="sm do">${first.do} ${first.command && html`<code>${first.command}</code>`} ${run.status === "failed" && may("verbs") && html`<button type="button" class="lk" onClick=${() => act("retry")}>Preview on the graph</button>`}</p>`}
    ${evidence && html`<ul class="evid sm i2">${shown.map((text) => html`<li key=${text}>${text}</li>`)}</ul>`}</div>
    ${shown.length > 0 ? html`<button type="button" class="lk sm nw" aria-expanded=${String(evidence)} onClick=${() => setEvidence(!evidence)}>Evidence</button>` : html`<span></span>`}</section>`;
}
