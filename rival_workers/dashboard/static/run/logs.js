// What the steps logged, oldest first; follows while the run goes on.
import { html, useEffect, useMemo, useState, Button, Loading, Problem, Segment, useAnswers } from "../ui.js";
import { get, idPath } from "../api.js";
import { setQuery } from "../router.js";
import { watch } from "../live.js";
import { count, moment, quoted, time, words as fieldsOf } from "../format.js";
import { VirtualList } from "../virtual.js";

const LEVELS = [["debug", "all"], ["info", "info"], ["warning", "warnings"], ["error", "errors"]];
const RANK = { debug: 0, info: 1, warning: 2, warn: 2, error: 3, critical: 4 };
const TONE = { error: "bad", critical: "bad", warning: "wait", warn: "wait" };

export default function Logs({ run, selected, at }) {
  const [items, setItems] = useState(null);
  const [problem, setProblem] = useState(null);
  const [level, setLevel] = useState("debug");
  const [only, setOnly] = useState(new URLSearchParams(location.search).get("step") !== null);
  const [follow, setFollow] = useState(!run.completed_at);
  const [words, setWords] = useState("");
  const narrow = matchMedia("(max-width: 640px)").matches;
  const take = useAnswers([run.id]);
  // Lines that the stream has brought meanwhile are newer than the answer.
  const load = () => take(get(idPath`runs/${run.id}/logs`, { order: "newest", limit: 500 }), ({ items: found }) => { setItems((old) => [...found, ...(old ?? []).filter((one) => one.id > (found.at(-1)?.id ?? 0))]); setProblem(null); }, setProblem);
  useEffect(() => { load(); }, [run.id]);
  useEffect(() => (at ? undefined : watch({ logs: run.id }, { again: load, hear(name, data) {
    if (name !== "logs" || data.run !== run.id) return;
    setItems((old) => { const last = old?.at(-1)?.id ?? 0; return [...(old ?? []), ...data.items.filter((one) => one.id > last)].slice(-20_000); });
  } })), [run.id, at]);
  const shown = useMemo(() => (items ?? []).filter((one) => RANK[one.level] >= RANK[level] && (!only || !selected || one.step === selected || one.step.startsWith(`${selected}/`) || one.step.startsWith(`${selected}[`))
    && (!words || `${one.message} ${JSON.stringify(one.fields)}`.toLowerCase().includes(words.toLowerCase()))), [items, level, only, selected, words]);
  if (problem) return html`<${Problem} problem=${problem} again=${load} />`;
  if (!items) return html`<${Loading} />`;
  const row = (index) => {
    const one = shown[index];
    const fields = fieldsOf(one.fields);
    return html`<div class="logr" title=${`${moment(one.at)}\n${one.message} ${fields}`}><time>${time(one.at, true)}</time><span class=${TONE[one.level] ?? "i3"}>${one.level}</span><button type="button" class="lk q m cut" onClick=${() => setQuery({ tab: null, step: one.step })}>${one.step}</button><span class="cut lt2">${one.message} <span class="i3">${fields}</span></span></div>`;
  };
  return html`<section class="tlp" aria-label="Logs"><div class="bar tlh wrap"><${Segment} label="Level" of=${LEVELS} value=${level} onPick=${setLevel} />
      <input class="in w200" type="search" aria-label="Words in the log" placeholder="words" value=${words} onInput=${(event) => setWords(event.target.value)} />
      ${selected && html`<${Button} aria-pressed=${String(only)} onClick=${() => setOnly(!only)}>Only ${selected}<//>`}<span class="grow"></span>
      <span class="sm i3">${count(shown.length)} ${shown.length === 1 ? "line" : "lines"}${items.length === 500 ? ", the newest" : ""}</span>
      <label class="sw"><input type="checkbox" role="switch" checked=${follow} onChange=${(event) => setFollow(event.target.checked)} />follow</label></div>
    <div class="panel logp">${shown.length === 0 ? html`<p class="empty i2">${items.length ? "No line matches." : "Its steps have logged nothing."} <code>rival logs ${quoted(run.id)}</code></p>` : html`<${VirtualList} total=${shown.length} height=${narrow ? 60 : 24} most=${620} row=${row} label="Log lines" stick=${follow} />`}</div></section>`;
}
