// The history of the run: every transition, newest first, page by page; an entry opens to its whole detail.
import { html, useEffect, useState, Button, Loading, Problem, useAnswers } from "../ui.js";
import { get, idPath } from "../api.js";
import { executorName, moment, time, words } from "../format.js";
import { Json } from "../json.js";
import { setQuery } from "../router.js";

function Entry({ run, entry, pick }) {
  const [whole, setWhole] = useState(null);
  const [open, setOpen] = useState(false);
  const show = async () => {
    setOpen(!open);
    if (!whole) setWhole(await get(idPath`runs/${run.id}/history/${entry.id}`).catch((problem) => ({ detail: { problem: problem.title } })));
  };
  return html`<tr><td class="i3 m" title=${moment(entry.at)}>${time(entry.at, true)}</td><td class="m">${entry.step ? html`<button type="button" class="lk m" onClick=${() => pick(entry.step)}>${entry.step}</button>` : html`<span class="i3">run</span>`}</td>
    <td>${entry.what.replaceAll("_", " ")}</td><td class="i2 m" title=${entry.by ?? ""}>${executorName(entry.by)}</td>
    <td class="i2"><button type="button" class="lk q cut m" aria-expanded=${String(open)} onClick=${show}>${words(entry.detail) || (entry.left_out?.length ? entry.left_out.join(", ") : "–")}</button></td></tr>
    ${open && whole && html`<tr class="detail"><td colspan="5"><${Json} value=${whole.detail} /></td></tr>`}`;
}

/** More entries are not read again while the run goes on. */
const MOST = 1000;

/** The newest entries above those that are shown, unless some between them are missing. */
function above(old, newest) {
  const last = newest.items.at(-1)?.id;
  const at = old?.items.findIndex((one) => one.id === last) ?? -1;
  return at < 0 ? newest : { items: [...newest.items, ...old.items.slice(at + 1)], next: old.next };
}

/** Older entries below those that are shown, unless these end elsewhere by now. */
const below = (old, older, before) => (old?.next === before ? { items: [...old.items, ...older.items], next: older.next } : old);

export default function History({ run, moves, selected }) {
  const [shown, setShown] = useState(null);
  const [problem, setProblem] = useState(null);
  const [only, setOnly] = useState(null);
  const take = useAnswers([run.id, only]);
  const load = (before) => take(get(idPath`runs/${run.id}/history`, { order: "newest", limit: 100, before, step: only }), (answer) => {
    setShown((old) => (before ? below(old, answer, before) : above(old, answer)));
    setProblem(null);
  }, setProblem, before);
  useEffect(() => { setShown(null); load(); }, [run.id, only]);
  useEffect(() => { if (!shown || shown.items.length > MOST) return undefined; const timer = setTimeout(() => load(), 700); return () => clearTimeout(timer); }, [moves]);
  if (problem) return html`<${Problem} problem=${problem} again=${() => load()} />`;
  if (!shown) return html`<${Loading} />`;
  const { items, next } = shown;
  return html`<section class="tlp" aria-label="History"><div class="bar tlh"><p class="i2 grow">Newest first. The run can be rebuilt from these entries alone.</p>
      ${selected && html`<${Button} aria-pressed=${String(Boolean(only))} onClick=${() => setOnly(only ? null : selected)}>${only ? `Only ${only}: show all` : `Only ${selected}`}<//>`}</div>
    <div class="panel"><table class="hist" aria-label="Entries"><colgroup><col class="w-tm" /><col class="w-sp" /><col class="w-wh" /><col class="w-by" /><col /></colgroup><thead><tr><th>Time</th><th>Step</th><th>What</th><th>By</th><th>Detail</th></tr></thead>
    <tbody>${items.map((entry) => html`<${Entry} key=${entry.id} run=${run} entry=${entry} pick=${(step) => setQuery({ tab: null, step })} />`)}</tbody></table>
    ${next && html`<div class="pager bar"><span class="grow"></span><${Button} onClick=${() => load(next)}>Older<//></div>`}</div></section>`;
}
