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

export default function Travel({ run, at, moves, mark }) {
  const [changes, setChanges] = useState(null);
  const [drag, setDrag] = useState(null);
  const timer = useRef(0);
  const wanted = useRef(Boolean(at));
  const take = useAnswers([run.id]);
  const load = () => { wanted.current = true; take(changesOf(run.id, mark), setChanges); };
  useEffect(() => { const late = setTimeout(load, run.completed_at ? 300 : 1500); return () => clearTimeout(late); }, [run.id]);
  useEffect(() => {
    if (!changes || at) return undefined;
    const late = setTimeout(load, 2500);
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
  useKeys({ "[": [() => (all.length ? pick(index - 1) : load()), "a moment back"], "]": [() => all.length && pick(index + 1), "a moment on"] });
  const when = shown ? time(new Date(changes.start + shown.ms).toISOString()) : "";
  const end = index >= last;
  const text = all.length ? `${when}${end ? (run.completed_at ? ", the end" : ", now") : ""}` : "";
  const ticks = all.filter((one) => one.tone);
  const step = Math.ceil(ticks.length / 24);
  return html`<div class="travel" role="group" aria-label="Time travel"><${Button} kind="no" sign="right flip" label="A moment back" onClick=${() => (all.length ? pick(index - 1) : load())} />
    <span class="tr"><input type="range" min="0" max=${last} value=${index} aria-label="Moment" aria-valuetext=${text || "now"} disabled=${!all.length} onInput=${(event) => pick(Number(event.target.value))} />
      ${ticks.filter((_, nth) => nth % step === 0).map((one) => html`<i key=${one.hid} class=${one.tone} style=${{ "--p": last ? (100 * all.indexOf(one)) / last : 0 }}></i>`)}</span>
    <${Button} kind="no" sign="right" label="A moment on" onClick=${() => all.length && pick(index + 1)} /><span class="at" title=${shown ? moment(changes.start + shown.ms) : ""}>${text}</span></div>`;
}
