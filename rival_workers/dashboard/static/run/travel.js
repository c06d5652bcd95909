// Time travel: a slider over the entries of the history. Off its end, the page shows the run as it was then.
import { html, useEffect, useMemo, useRef, useState, Button, useAnswers } from "../ui.js";
import { changesOf } from "./changes.js";
import { setQuery } from "../router.js";
import { useKeys } from "../keys.js";
import { moment, time } from "../format.js";

const MARK_TONES = { paused: "paused", resumed: "paused", taken_over: "lost", handed_back: "lost", lost: "lost", rewind_run: "undone", retry_run: "undone", cancelled: "cancelled", failing: "failed" };

/** Entries in the order of the history: one per id. */
export function entries(changes) {
  const found = new Map();
  for (const [hid, ms, , status] of changes.rows) found.set(hid, { hid, ms, tone: changes.statuses[status] === "failed" ? "failed" : null });
  for (const [hid, ms, what] of changes.marks ?? []) found.set(hid, { hid, ms, tone: MARK_TONES[what] ?? null });
  return [...found.values()].sort((one, other) => one.hid - other.hid);
}

/** Of a run with more steps than this, moments are read when the reader wants to travel: the answer has megabytes. */
const LARGE = 2000;
const stepsOf = (folded) => Object.values(folded ?? {}).flatMap(Object.values).reduce((sum, one) => sum + one, 0);

export default function Travel({ run, at, moves, mark, folded }) {
  const [changes, setChanges] = useState(null);
  const [drag, setDrag] = useState(null);
  const timer = useRef(0);
  const take = useAnswers([run.id]);
  const large = stepsOf(folded) > LARGE;
  const load = (then) => take(changesOf(run.id, mark), (found) => { setChanges(found); then?.(entries(found)); });
  useEffect(() => {
    if (!at && large) return undefined;
    const late = setTimeout(load, run.completed_at || at ? 300 : 1500);
    return () => clearTimeout(late);
  }, [run.id]);
  useEffect(() => {
    if (!changes || at || large) return undefined;
    const late = setTimeout(load, run.completed_at ? 300 : 2500);
    return () => clearTimeout(late);
  }, [moves, mark]);
  const all = useMemo(() => (changes ? entries(changes) : []), [changes]);
  const last = Math.max(0, all.length - 1);
  const found = at ? all.findIndex((one) => one.hid >= Number(at)) : last;
  const index = drag ?? (found < 0 ? last : found);
  const shown = all[index];
  const pick = (next) => {
    const to = Math.max(0, Math.min(last, next));
    setDrag(to);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => { setDrag(null); setQuery({ at: to >= last ? null : all[to].hid, do: null }); }, 90);
  };
  const back = () => (all.length ? pick(index - 1) : load((found) => found.length > 1 && setQuery({ at: found.at(-2).hid, do: null })));
  useKeys({ "[": [back, "a moment back"], "]": [() => all.length && pick(index + 1), "a moment on"] });
  const when = shown ? time(new Date(changes.start + shown.ms).toISOString()) : "";
  const end = index >= last;
  const text = all.length ? `${when}${end ? (run.completed_at ? ", the end" : ", now") : ""}` : "";
  const ticks = useMemo(() => {
    const found = all.flatMap((one, nth) => (one.tone ? [{ ...one, nth }] : []));
    const step = Math.ceil(found.length / 24);
    return found.filter((_, nth) => nth % step === 0);
  }, [all]);
  return html`<div class="travel" role="group" aria-label="Time travel" onPointerEnter=${() => load()}><${Button} kind="no" sign="right flip" label="A moment back" onClick=${back} />
    <span class="tr"><input type="range" min="0" max=${last || 1} value=${all.length ? index : 1} aria-label="Moment" aria-valuetext=${text || "now"} disabled=${!all.length} onInput=${(event) => pick(Number(event.target.value))} />
      ${ticks.map((one) => html`<i key=${one.hid} class=${one.tone} style=${{ "--p": last ? (100 * one.nth) / last : 0 }}></i>`)}</span>
    <${Button} kind="no" sign="right" label="A moment on" onClick=${() => all.length && pick(index + 1)} /><span class="at" title=${shown ? moment(changes.start + shown.ms) : ""}>${text}</span></div>`;
}
