// Items of a for_each, iterations of a loop, checkpoints of a flow: fixed rows from a pool, loaded by page as they come into view.
import { html, useEffect, useRef, useState, Button, Segment, Status, useAnswers } from "../ui.js";
import { get, idPath } from "../api.js";
import { count, now, duration } from "../format.js";
import { VirtualList } from "../virtual.js";
import { nameOf, spent } from "./model.js";

const PAGE = 50;

export function Items({ run, under, status, close, pick, live }) {
  const [only, setOnly] = useState(status);
  const [head, setHead] = useState(null);
  const pages = useRef(new Map());
  const [, redraw] = useState(0);
  const take = useAnswers([under, only, run.id]);
  const load = (page) => {
    if (pages.current.get(page) === "asked") return;
    pages.current.set(page, "asked");
    take(get(idPath`runs/${run.id}/steps`, { under, status: only, from: page * PAGE, limit: PAGE }), (answer) => {
      pages.current.set(page, answer.items);
      setHead({ total: answer.total, counts: answer.counts, next: answer.next });
      redraw((old) => old + 1);
    }, () => pages.current.delete(page), page);
  };
  useEffect(() => { pages.current = new Map(); setHead(null); load(0); }, [under, only, run.id]);
  useEffect(() => {
    if (!live || !head) return;
    const seen = [...pages.current.keys()];
    pages.current = new Map([...pages.current].filter(([key]) => key !== seen.at(-1)));
    load(seen.at(-1) ?? 0);
  }, [live]);
  // With a status the server gives pages by a cursor, so that only as many as are known can be paged through.
  const total = head ? (only ? head.counts?.[only] ?? 0 : head.total ?? 0) : 0;
  const row = (index) => {
    const page = pages.current.get(Math.floor(index / PAGE));
    if (!Array.isArray(page)) { if (page === undefined) load(Math.floor(index / PAGE)); return html`<span class="i3">…</span>`; }
    const one = page[index % PAGE];
    if (!one) return null;
    return html`<button type="button" class="item" onClick=${() => { close(); pick(one.path); }}><${Status} is=${one.status} waits=${one.waits_for} quiet /><span class="m">${nameOf(one.path)}</span>
      <span class="cut i2">${one.error ? html`<span class="bad">${one.error.type}</span>` : one.item ?? one.result ?? ""}</span><span class="d">${duration(spent(one, now()))}</span></button>`;
  };
  const statuses = Object.entries(head?.counts ?? {}).filter(([, amount]) => amount > 0);
  return html`<div class="sec0"><div class="bar"><h2 class="m cut grow">${under}</h2><${Button} kind="no" sign="x" label="Back to the step" onClick=${close} /></div>
      <p class="sm i3">${head ? `${count(total)}${only ? ` ${only.replace("_", " ")}` : " in all"}` : "loading"}</p>
      ${statuses.length > 0 && html`<p><${Segment} label="Status" of=${[[null, "all"], ...statuses.map(([key, amount]) => [key, `${key.replace("_", " ")} ${count(amount)}`])]} value=${only} onPick=${setOnly} /></p>`}</div>
    <div class="sec items-l"><${VirtualList} key=${`${under}:${only}`} total=${total} height=${28} row=${row} label=${`Items of ${under}`} /></div>`;
}
