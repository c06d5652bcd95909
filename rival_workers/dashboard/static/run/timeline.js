// The timeline: one row per place, bars for what happened in it, idle time folded.
import { html, useEffect, useMemo, useRef, useState, Loading, Problem, Segment, Sign, look, tick, useLoad, WORDS } from "../ui.js";
import { changesOf } from "./changes.js";
import { footKeys } from "../frame.js";
import { count, duration, now, plural, time } from "../format.js";
import { VirtualList } from "../virtual.js";
import { barsOf, scale, stretches, ticks, workOf } from "./bars.js";
import { flat, parentOf } from "./model.js";

const TONE = { queued: "g queued", ran: "g completed", runs: "g running", tried: "g waits soft", failed: "g failed", lost: "g lost", again: "g again", waited: "g waited", span: "g span", stopped: "g cancelled", undid: "g undone" };
const LEGEND = [["queued", "queued"], ["ran", "ran"], ["tried", "ran, to be tried again"], ["failed", "ran and failed"], ["lost", "lost with its worker"], ["again", "until the next attempt"], ["waited", "waited"], ["undid", "undone"], ["span", "composite"]];
const SIGNS = { branch: "branch", parallel: "parallel", for_each: "each", loop: "retry", workflow: "nested", compensating: "undone", flow: "nested" };
const MANY = 8;
/** Of more rows than this, only those in view are in the document. */
const IN_VIEW = 140;
const NONE = new Set();
/** Of a run with more changes than this, the open bars grow only when something changes. */
const LARGE = 2000;
/** Callbacks of composites: how they work, not what the author named. */
const INNER = /!(when|items|input|key|until|while|condition)$/;

/**
 * The rows to draw, in the order of their beginning below their composite; many items become one row of columns. `order`:
 * the place of each path in the plan, for those that begin together.
 */
export function rowsOf(bars, closed, order = new Map()) {
  const below = new Map();
  for (const row of bars.values()) {
    if (INNER.test(row.path) && row.status !== "failed") continue;
    const above = row.path.includes("!") && !row.path.startsWith("!") ? parentOf(row.path.split("!")[0]) : parentOf(row.path);
    let at = above;
    while (at && !bars.has(at)) at = parentOf(at);
    if (!below.has(at)) below.set(at, []);
    below.get(at).push(row);
  }
  const made = [];
  const add = (path, level) => {
    const rows = (below.get(path) ?? []).sort((one, other) => one.first - other.first || (order.get(one.path) ?? 1e9) - (order.get(other.path) ?? 1e9) || (one.path < other.path ? -1 : 1));
    const repeats = rows.filter((row) => /\[\d+\]$/.test(row.path));
    const many = repeats.length > MANY || rows.length > 60;
    if (many) {
      const picked = repeats.length > MANY ? repeats : rows;
      const owner = made.at(-1);
      if (owner && owner.path === path) owner.density = picked;
      const failed = picked.filter((row) => row.status === "failed").slice(0, 5);
      for (const row of failed) { made.push({ ...row, level, more: below.has(row.path) }); if (!closed.has(row.path)) add(row.path, level + 1); }
      made.push({ path: `${path}/…`, level, gap: picked.length - failed.length, of: picked !== repeats ? "step" : owner?.kind === "loop" ? "iteration" : "item", shown: failed.length, kind: "gap", bars: [], status: "pending", first: 0, last: 0 });
      const left = new Set(picked);
      for (const row of rows) if (!left.has(row)) made.push({ ...row, level, more: below.has(row.path) });
      return;
    }
    for (const row of rows) {
      made.push({ ...row, level, more: below.has(row.path) });
      if (!closed.has(row.path)) add(row.path, level + 1);
    }
  };
  add("", 0);
  return made;
}

const PAGE = 10;

/**
 * What a key does in the tree of rows: the row to go to, or the path to open or close. A row that only counts others is
 * passed over.
 */
export function step(key, rows, at, closed) {
  const all = rows.filter((row) => row.kind !== "gap");
  const here = all.indexOf(rows[at]);
  const row = all[here];
  const moves = { ArrowDown: here + 1, ArrowUp: here - 1, PageDown: here + PAGE, PageUp: here - PAGE, Home: 0, End: all.length - 1, Enter: here, " ": here };
  if (key in moves) return { row: all[Math.max(0, Math.min(all.length - 1, moves[key]))] };
  if (!row || (key !== "ArrowRight" && key !== "ArrowLeft")) return null;
  const open = row.more && !closed.has(row.path);
  if (row.more && open === (key === "ArrowLeft")) return { toggle: row.path };
  const next = key === "ArrowRight" ? (open ? all[here + 1] : null) : all.slice(0, here).findLast((one) => one.level < row.level);
  return next ? { row: next } : null;
}

function Label({ row, toggle, closed }) {
  const [sign, cls] = look(row.status);
  const name = row.gap ? row.shown ? `${count(row.gap)} more` : plural(row.gap, row.of) : row.path.slice(row.path.lastIndexOf("/") + 1);
  const length = row.gap || row.last === row.first ? "" : duration((row.last - row.first) / 1000);
  return html`<span class=${`lb ${cls}`} style=${{ "--l": row.level }}>${row.more ? html`<button type="button" class="tgl tw" tabindex="-1" aria-hidden="true" onClick=${(event) => { event.stopPropagation(); toggle(row.path); }}><${Sign} of=${closed ? "right" : "down"} /></button>` : html`<i class="tw0"></i>`}
    ${row.gap ? html`<${Sign} of="each" />` : html`<${Sign} of=${SIGNS[row.kind] ?? sign} /><span class="vh">${WORDS[row.status] ?? row.status}</span>`}<span class="nm" title=${row.path}>${name}</span><span class="d">${length}</span></span>`;
}

function Track({ row, to }) {
  if (row.density) {
    const columns = 48;
    const first = row.density.reduce((least, one) => Math.min(least, one.first), Infinity);
    const last = row.density.reduce((most, one) => Math.max(most, one.last), first + 1);
    const sums = new Array(columns).fill(0);
    for (const one of row.density) sums[Math.min(columns - 1, Math.floor((columns * (one.last - first)) / (last - first)))] += 1;
    const most = Math.max(...sums);
    const left = to.x(first);
    const width = (to.x(last) - left) / columns;
    return html`<span class="tk">${sums.map((amount, at) => amount > 0 && html`<i class="h" key=${at} style=${{ "--a": left + at * width, "--b": width * 0.92, "--h": `${4 + (16 * amount) / most}px` }}></i>`)}<span class=${noteClass(to.x(last))} style=${{ "--a": to.x(last) }}>${count(row.density.length)}</span></span>`;
  }
  return html`<span class="tk">${row.bars.map((bar, at) => html`<i key=${at} class=${TONE[row.path.includes("!compensate") && bar.what === "ran" ? "undid" : bar.what]} title=${`${bar.what}: ${duration((bar.to - bar.from) / 1000)}`} style=${{ "--a": to.x(bar.from), "--b": Math.max(0, to.x(bar.to) - to.x(bar.from)) }}></i>`)}
    ${row.bars.length === 0 && row.kind !== "gap" && html`<i class=${`g pt ${look(row.status)[1]}`} title="recorded with its end" style=${{ "--a": to.x(row.last) }}></i>`}${note(row, to)}</span>`;
}

/** A phone has no room for a note so far to the right. */
const noteClass = (at) => (at > 62 ? "gt far" : "gt");

function note(row, to) {
  const tries = row.bars.filter((bar) => ["ran", "failed", "tried", "lost"].includes(bar.what)).length;
  const at = to.x(row.last);
  if (tries < 2 || row.kind === "flow" || at > 88) return null;
  return html`<span class=${`${noteClass(at)} ${row.status === "failed" ? "bad" : ""}`} style=${{ "--a": at }}>${tries} attempts</span>`;
}

/** Where the time went: waiting, working, and the step that took longest. */
function sentence(rows, end) {
  const worked = workOf(rows) / 1000;
  let slow = null;
  let slowest = 0;
  for (const row of rows) {
    const took = row.kind === "flow" ? 0 : workOf([row]) / 1000;
    if (took > slowest) { slow = row; slowest = took; }
  }
  return { worked, idle: end / 1000 - worked, slow, slowest };
}

/** Until when the run is drawn: an open one until now. */
const endOf = (run, changes) => (run.completed_at ? changes.end : Math.max(changes.end, now() - changes.start));

export default function Timeline({ run, data, moves, selected, pick, at, tree }) {
  const mark = useRef(0);
  mark.current = data.history_id;
  const { value: changes, problem, again } = useLoad(() => changesOf(run.id, mark.current), [run.id]);
  const [folded, setFolded] = useState(true);
  const [closed, setClosed] = useState(() => new Set());
  useEffect(() => { footKeys.value = [[["↑", "↓"], "rows"], [["←", "→"], "close, open"], [["[", "]"], "a moment back, on"]]; }, []);
  useEffect(() => { if (!changes) return undefined; const timer = setTimeout(again, 1200); return () => clearTimeout(timer); }, [moves]);
  const moving = changes && !run.completed_at && changes.rows.length < LARGE ? tick.value : 0;
  const end = useMemo(() => (changes ? endOf(run, changes) : 0), [changes, run.completed_at, moving]);
  const bars = useMemo(() => (changes ? barsOf({ ...changes, end }) : new Map()), [changes, end]);
  const order = useMemo(() => new Map(flat(tree).map(({ path }, nth) => [path, nth])), [tree]);
  const rows = useMemo(() => rowsOf(bars, closed, order), [bars, closed, order]);
  // Whatever is closed: a tree that changed its kind would lose the focus.
  const large = useMemo(() => rowsOf(bars, NONE).length > IN_VIEW, [bars]);
  const where = useMemo(() => sentence([...bars.values()], end), [bars]);
  if (problem) return html`<${Problem} problem=${problem} again=${again} />`;
  if (!changes) return html`<${Loading} rows=${12} />`;
  if (!rows.length) return html`<section class="tlp"><p class="i2">Nothing has happened yet.</p></section>`;
  const leaves = [...bars.values()];
  const parts = folded ? stretches(leaves, end) : [[0, Math.max(1, end)]];
  const to = scale(parts, end);
  const start = changes.start;
  const toggle = (path) => setClosed((old) => { const made = new Set(old); if (!made.delete(path)) made.add(path); return made; });
  const clock = (ms) => time(new Date(start + ms).toISOString());
  const moment = at ? changes.rows.find(([hid]) => hid >= Number(at))?.[1] : null;
  const draw = (row) => html`<${Label} row=${row} toggle=${toggle} closed=${closed.has(row.path)} /><${Track} row=${row} to=${to} />`;
  const choose = (row) => row.kind !== "gap" && pick(row.path);
  const place = rows.findIndex((row) => row.path === selected);
  const keys = (event) => {
    const made = step(event.key, rows, place, closed);
    if (!made) return;
    event.preventDefault();
    if (made.toggle) { toggle(made.toggle); return; }
    choose(made.row);
    event.currentTarget.querySelector(`[data-path="${CSS.escape(made.row.path)}"][tabindex]`)?.focus();
  };
  const about = (row) => ({ "data-path": row.path, "aria-level": row.level + 1, "aria-selected": String(selected === row.path), "aria-expanded": row.more ? String(!closed.has(row.path)) : undefined, onClick: () => choose(row) });
  const grid = html`<div class="tlg" aria-hidden="true"><span class="tk">${to.parts.flatMap((part) => [0, ...ticks(part)].map((offset) => html`<i class="tick" key=${`${part.from}:${offset}`} style=${{ "--a": to.x(part.from + offset) }}></i>`))}
    ${to.folds.map((fold, nth) => html`<i class="fold" key=${nth} style=${{ "--a": fold.left, "--b": fold.width }}></i><span class="foldl" key=${`l${nth}`} style=${{ "--a": fold.left, "--b": fold.width }}>${duration(fold.length)} idle</span>`)}
    ${moment !== null && moment !== undefined && html`<i class="tick nowl" style=${{ "--a": to.x(moment) }}></i>`}</span></div>`;
  const axis = html`<div class="axis tl-ax" aria-hidden="true"><span class="lb">Places</span><span class="tk">${to.parts.flatMap((part) => [html`<span class="gt i3" key=${part.from} style=${{ "--a": to.x(part.from) }}>${clock(part.from)}</span>`, ...ticks(part).map((offset) => html`<span class="gt i3" key=${`${part.from}:${offset}`} style=${{ "--a": to.x(part.from + offset) }}>+${duration(offset / 1000)}</span>`)])}</span></div>`;
  const total = (end / 1000);
  return html`<section class="tlp" aria-label="Timeline"><div class="bar tlh"><div class="grow"><p>${where.idle > where.worked && where.idle > 1
      ? html`<b>${duration(where.idle)} of ${duration(total)} was waiting.</b> ${where.slow && html`<span class="i2">In the ${duration(where.worked)} of work, </span>`}` : html`<b>${duration(where.worked)} of ${duration(total)} was work.</b> `}
      ${where.slow && html`<button type="button" class="lk m" onClick=${() => choose(where.slow)}>${where.slow.path}</button> <span class="i2">took ${duration(where.slowest)}.</span>`}</p></div>
    <${Segment} label="Idle time" of=${[[true, "idle folded"], [false, "true to scale"]]} value=${folded} onPick=${setFolded} /></div>
    <div class="lg" role="group" aria-label="Legend">${LEGEND.map(([key, text]) => html`<span key=${key}><i class=${TONE[key]}></i>${text}</span>`)}</div>
    <div class="panel tlw">${axis}${large
      ? html`<${VirtualList} total=${rows.length} height=${28} most=${640} label=${`Timeline of ${run.id}`} tree=${{ id: "place", at: place, keys, of: (index) => about(rows[index]) }} row=${(index) => html`<div class="tlr">${draw(rows[index])}</div>`} />`
      : html`<ol class="tl" role="tree" aria-label=${`Timeline of ${run.id}`} onKeyDown=${keys}>${rows.map((row, nth) => html`<li role="treeitem" key=${row.path} ...${about(row)} tabindex=${nth === Math.max(0, place) ? "0" : "-1"}>${draw(row)}</li>`)}</ol>`}${grid}</div></section>`;
}
