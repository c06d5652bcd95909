// The graph: nested lists that the browser lays out. A tree for keyboard and screen reader; a mode shows a preview on it.
import { html, Fragment, useEffect, useRef, Sign, Status, Tag, look, tick, WORDS } from "../ui.js";
import { count, duration, now, percent } from "../format.js";
import { flat, isComposite, spent, stateOf } from "./model.js";
import { MARKS } from "./verbs.js";

const SIGNS = { branch: "branch", parallel: "parallel", for_each: "each", loop: "retry", workflow: "nested", flow: "nested", compensating: "undone" };

/**
 * @param {{items: import("./model.js").Item[], selected: string, pick: (path: string) => void, run: object|null,
 *   stats: object|null, preview: object|null, opened: Map<string, boolean>, toggle: (path: string, open: boolean) => void,
 *   repeat: (path: string, index: number) => void, label: string}} props
 */
export function Graph(props) {
  const tree = useRef(null);
  const { selected, pick, items } = props;
  const known = flat(items).some((item) => item.path === selected);
  const keys = (event) => walk(event, tree.current, props);
  useEffect(() => {
    const found = tree.current?.querySelector(`[data-path="${CSS.escape(selected ?? "")}"]`);
    const box = found?.querySelector(":scope > .n, :scope > .row > .n, :scope > .box > .hd");
    box?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [selected]);
  return html`<ol class=${`seq graph ${props.preview ? "pv" : ""} ${props.run ? "" : "plan"}`} role="tree" aria-label=${props.label} ref=${tree} onKeyDown=${keys}
    onClick=${(event) => { const item = event.target.closest("[data-path]"); if (item && !event.target.closest("a, button")) pick(item.dataset.path); }}>
    ${items.map((item, at) => html`<${Item} ...${props} key=${item.path} item=${item} level=${1} first=${!known && at === 0} />`)}</ol>`;
}

/** Arrows walk the tree: down and up in reading order, right opens or goes in, left closes or goes out. */
function walk(event, tree, { pick, toggle }) {
  const all = [...tree.querySelectorAll("[data-path]")];
  const here = event.target.closest("[data-path]");
  const at = all.indexOf(here);
  if (at < 0) return;
  const expanded = here.getAttribute("aria-expanded");
  let next = null;
  if (event.key === "ArrowDown") next = all[at + 1];
  else if (event.key === "ArrowUp") next = all[at - 1];
  else if (event.key === "Home") next = all[0];
  else if (event.key === "End") next = all.at(-1);
  else if (event.key === "ArrowRight") {
    if (expanded === "false") toggle(here.dataset.path, true);
    else next = here.querySelector("[data-path]");
  } else if (event.key === "ArrowLeft") {
    if (expanded === "true" && here.dataset.closes) toggle(here.dataset.path, false);
    else next = here.parentElement.closest("[data-path]");
  } else return;
  event.preventDefault();
  event.stopPropagation();
  if (next) { pick(next.dataset.path); next.focus(); }
}

function Item(props) {
  const { item, level, selected, first, run, preview } = props;
  if (item.type === "gap") return html`<${Gap} ...${props} />`;
  const state = run ? stateOf(item) : null;
  const [, cls] = state ? look(state) : ["", ""];
  const later = run && !item.row ? "later" : "";
  const mark = preview?.get(item.path) ?? "";
  const composite = isComposite(item) && !item.repeats;
  const open = composite ? isOpen(props) : item.repeats ? isOpen(props) : null;
  const chosen = selected === item.path;
  return html`<li role="treeitem" aria-level=${level} aria-selected=${chosen ? "true" : "false"} aria-expanded=${open === null ? undefined : String(open)} data-closes=${open === null ? undefined : "1"}
    tabindex=${chosen || first ? "0" : "-1"} data-path=${item.path} class=${`${cls} ${later} ${mark}`}>
    ${composite ? html`<${Box} ...${props} state=${state} open=${open} mark=${mark} />` : item.repeats ? html`<${Stack} ...${props} state=${state} open=${open} mark=${mark} />` : html`<${Leaf} ...${props} state=${state} mark=${mark} />`}</li>`;
}

/** Deep composites and wide parallels start closed. */
function isOpen({ item, level, opened, run }) {
  const opening = opened.get(item.path);
  if (opening !== undefined) return opening;
  if (item.repeats) return !run || item.repeats.total > 0 && item.repeats.total <= 3;
  return level <= 4 && item.lanes.length <= 8;
}

function Mark({ mark }) {
  if (!mark) return null;
  const [cls, sign, text] = MARKS[mark];
  return html`<${Tag} cls=${cls} sign=${sign}>${text}<//>`;
}

/** How long it took; how long it usually takes where it has not begun. */
function Time({ item, run, stats, untaken }) {
  const { row } = item;
  const usual = stats?.steps?.[item.node?.place];
  if (!run) return null;
  if (!row) return usual?.p50 && !untaken ? html`<span class="d">usually ${duration(usual.p50)}</span>` : html`<span class="d"></span>`;
  if (!row.completed_at && row.status === "running") void tick.value;
  return html`<span class="d">${duration(spent(row, run.now ?? now()))}</span>`;
}

function Heat({ item, stats }) {
  const usual = stats?.steps?.[item.node?.place];
  if (!usual?.n) return html`<span class="d"></span>`;
  const fails = html`<span class=${`fr ${usual.failed >= 0.02 ? "bad" : ""}`} title="how often it fails"><span class="vh">fails </span>${percent(usual.failed ?? 0)}</span>`;
  if (usual.p50 === null) return html`<span class="d"></span>${fails}`;
  const most = stats.most;
  const scale = (value) => (most > 0 ? 100 * Math.sqrt(value / most) : 0);
  const low = scale(usual.p5);
  const high = scale(usual.p95);
  return html`<span class="heat" role="img" aria-label=${`usually ${duration(usual.p50)}, up to ${duration(usual.p95)}`}><i style=${{ "--a": low, "--b": Math.max(2, high - low) }}></i><u style=${{ "--m": Math.min(98, scale(usual.p50)) }}></u></span>
    <span class="d">${duration(usual.p50)}</span>${fails}`;
}

/** At most one quiet tag: what is special about this box. */
function Quiet({ item, run, untaken }) {
  const { row, node } = item;
  if (run && !row) return run.completed_at && !untaken ? html`<${Tag}>not reached<//>` : null;
  if (row?.parked) return html`<${Tag} cls="waits">parked<//>`;
  if (row?.lost > 0 && !row.completed_at) return html`<${Tag}>${row.lost} lost<//>`;
  if (row?.attempts > 1) return html`<${Tag}>attempt ${row.attempts}${node?.options?.max_attempts ? ` of ${node.options.max_attempts}` : ""}<//>`;
  if (node?.about?.topic) return html`<${Tag} sign="event">${node.about.topic}<//>`;
  if (row?.wait?.topic) return html`<${Tag} sign="event">${row.wait.topic}<//>`;
  if (!run && node?.options?.max_attempts > 1) return html`<${Tag}>${node.options.max_attempts} attempts<//>`;
  if (!run && node?.type === "sleep") return html`<${Tag} sign="waits">${duration(node.about.seconds)}<//>`;
  if (row?.child) return html`<${Tag} sign="nested">child run<//>`;
  if (node?.type === "flow" && !row) return html`<${Tag}>flow<//>`;
  return null;
}

function signFor(item, state) {
  const { row } = item;
  if (!row) return "pending";
  const waits = row.status === "waiting" ? row.waits_for : null;
  return look(state, waits)[0];
}

function Leaf(props) {
  const { item, state, run, stats, mark, narrow, untaken } = props;
  const failed = state === "failed" && item.row?.error;
  const waiting = item.row && !item.row.completed_at && (state === "waiting" || state === "waiting_retry");
  const two = narrow || Boolean(failed) && !mark;
  const time = run ? html`<${Time} item=${item} run=${run} stats=${stats} untaken=${untaken} />` : html`<${Heat} item=${item} stats=${stats} />`;
  const sign = run && html`<${Sign} of=${signFor(item, state)} /><span class="vh">${state ? WORDS[state] ?? state : untaken ? "not taken" : run.completed_at ? "" : "not reached yet"}</span>`;
  const node = two
    ? html`<div class="n two-l"><span class="l1">${sign}<span class="nm" title=${item.path}>${item.name}</span>${!failed && !mark && html`<${Quiet} item=${item} run=${run} untaken=${untaken} />`}${failed && !narrow && time}</span>
        <span class=${`l2 ${run ? "" : "full bar"}`}>${mark ? html`<${Mark} mark=${mark} />` : failed ? html`<span class="bad">${item.row.error.type}</span>${attemptsOf(item)}` : waiting ? html`<span class="wait">${WORDS[state]}</span>` : time}</span></div>`
    : html`<div class="n">${sign}<span class="nm" title=${item.path}>${item.name}</span>${mark ? html`<${Mark} mark=${mark} />` : html`<${Quiet} item=${item} run=${run} untaken=${untaken} />`}${time}</div>`;
  const beside = besideOf(item, run);
  return beside.length ? html`<div class="row">${node}${beside}</div>` : node;
}

const attemptsOf = (item) => (item.node?.options?.max_attempts > 1 ? `, ${item.row.attempts} of ${item.node.options.max_attempts}` : item.row.attempts > 1 ? `, attempt ${item.row.attempts}` : "");

/** What hangs beside a step: its compensation or handler. */
function besideOf(item, run) {
  if (!run) {
    const has = [item.node?.compensate && "compensation", item.node?.on_error && item.node.type !== "workflow" && "handler"].filter(Boolean);
    return has.map((what) => html`<span class="by" key=${what}><${Sign} of=${what === "compensation" ? "undone" : "alert"} />${what}</span>`);
  }
  return item.beside.map(({ what, row }) => html`<span class="by" key=${what}><${Sign} of=${what === "compensate" ? "undone" : "alert"} /><code>${what === "compensate" ? "undone" : "handler"}</code> ${
    row.status === "completed" ? html`<span class="i3">${duration(spent(row, run.now ?? now()))}</span>` : html`<${Status} is=${row.status} />`}</span>`);
}

function heading(item) {
  const { node, row, type } = item;
  if (type === "branch") return row?.taken ? html`<span class="cut">${row.taken === "then" ? "yes" : "no"}, so <b class="m">${row.taken}</b></span>` : html`<span class="vh">branch</span>`;
  if (type === "parallel") return html`<span class="cut">parallel${item.lanes.length > 3 ? `, ${item.lanes.length} lanes` : ""}</span>`;
  if (type === "workflow") return html`<span class="cut">workflow ${node.about.workflow}</span>`;
  if (type === "compensating") return html`<span class="cut">undoes what was done, last first</span>`;
  if (type === "flow") return html`<span class="cut">flow${item.checkpoints ? `, ${count(item.checkpoints)} ${item.checkpoints === 1 ? "checkpoint" : "checkpoints"}` : ""}</span>`;
  return null;
}

function Toggle({ item, open, toggle }) {
  return html`<button type="button" class="tgl" tabindex="-1" aria-hidden="true" onClick=${() => toggle(item.path, !open)}><${Sign} of=${open ? "down" : "right"} /></button>`;
}

/** A flow waits for what its checkpoint waits for. */
const waitOf = ({ type, row, lanes }) => (type === "flow" ? flat(lanes.flatMap((lane) => lane.items)).find((one) => one.row && !one.row.completed_at)?.row : row)?.waits_for;

function Box(props) {
  const { item, state, run, stats, open, mark, level } = props;
  const ended = state && state !== "running";
  const inner = item.inner?.find((row) => row.status === "failed" || !row.completed_at);
  const waits = waitOf(item);
  return html`<div class="box"><div class="hd"><${Sign} of=${SIGNS[item.type] ?? "nested"} /><span class="nm" title=${item.path}>${item.name}</span>${heading(item)}
    ${mark && html`<${Mark} mark=${mark} />`}${inner && html`<span class="i2 m xs">!${inner.role} <${Status} is=${inner.status} /></span>`}
    <span class="d">${run ? html`${duration(spent(item.row, run.now ?? now()))} ${state && html`<${Status} is=${state} waits=${waits} quiet=${Boolean(mark)} />`}` : stats?.steps?.[item.node?.place]?.p50 ? duration(stats.steps[item.node.place].p50) : ""}<${Toggle} ...${props} /></span></div>
    ${open && html`<${Lanes} ...${props} level=${level} />`}${!open && ended && html`<p class="sm i3">${count(flat(item.lanes.flatMap((lane) => lane.items)).length)} steps, closed</p>`}</div>`;
}

function Lanes(props) {
  const { item, level, stats } = props;
  if (item.lanes.length === 1 && !item.lanes[0].name) {
    return html`<ol class="seq" role="group">${item.lanes[0].items.map((one) => html`<${Item} ...${props} key=${one.path} item=${one} level=${level + 1} first=${false} narrow=${props.narrow} />`)}</ol>`;
  }
  const narrow = item.lanes.length > 1 && item.type === "parallel";
  return html`<ol class="lanes" role="group">${item.lanes.map((lane, at) => html`<li key=${at} class=${`lane ${lane.taken === false ? "not thin" : ""} ${widthOf(lane, item)}`} role="none">
    ${lane.name && html`<span class="lname">${lane.name}${lane.taken === false ? ", not taken" : ""}${props.run ? "" : html` <${Share} of=${lane} in=${item} stats=${stats} />`}</span>`}
    <ol class="seq" role="group" aria-label=${lane.name ? `${lane.name}${lane.taken === false ? ", not taken" : ""}` : undefined}>${lane.items.map((one) => html`<${Item} ...${props} key=${one.path} item=${one} level=${level + 1} first=${false} narrow=${narrow || widthOf(lane, item) === "thin"} untaken=${props.untaken || lane.taken === false} />`)}</ol></li>`)}</ol>`;
}

/** How often a side of a branch was taken. */
function Share({ of: lane, in: item, stats }) {
  const amount = (one) => stats?.steps?.[one?.node?.place]?.n ?? 0;
  return amount(item) > 0 && html`<span class="i3">${percent(amount(lane.items[0]) / amount(item))} of runs</span>`;
}

/** Lanes with composites in them need more room than lanes of single steps. */
function widthOf(lane, item) {
  const wide = (one) => one.items.some((inner) => isComposite(inner));
  if (item.type === "branch" && wide(lane)) return "w3";
  if (item.type === "branch" && item.lanes.some(wide)) return "thin";
  return lane.items.some((one) => one.repeats) ? "w2" : "";
}

const SHARES = [["completed", "completed"], ["skipped", "skipped"], ["failed", "failed"], ["cancelled", "cancelled"], ["running", "running"]];

/** A for_each or loop: one box, drawn as a stack, with the share of each status; opened it shows one of its items or iterations. */
function Stack(props) {
  const { item, state, run, stats, open, mark, repeat, showItems } = props;
  const { repeats, node } = item;
  const one = item.type === "for_each" ? "item" : "iteration";
  const kind = item.type === "for_each" ? `for_each${node?.about?.concurrency > 1 ? ` ×${node.about.concurrency}` : ""}` : "loop";
  const failed = repeats.counts.failed ?? 0;
  const total = repeats.total ?? 0;
  const begun = item.row?.opened ?? repeats.known;
  const shares = item.type === "for_each" && total ? { ...repeats.counts, completed: Math.max(repeats.counts.completed ?? 0, repeats.done - failed - (repeats.counts.cancelled ?? 0) - (repeats.counts.skipped ?? 0)) } : repeats.counts;
  const body = html`<div class="n two-l stack"><span class="l1"><${Sign} of=${SIGNS[item.type]} /><span class="nm" title=${item.path}>${item.name}</span>${mark ? html`<${Mark} mark=${mark} />` : html`<${Tag}>${kind}<//>`}
      <span class="d">${run && state && !mark && html`<${Status} is=${state} />`}<${Toggle} ...${props} /></span></span>${!run && html`<span class="l2 full bar"><${Heat} item=${item} stats=${stats} /></span>`}
    ${run && item.row && html`<span class="l2 full"><span class="multi" role="img" aria-label=${SHARES.filter(([status]) => shares[status]).map(([status]) => `${count(shares[status])} ${status}`).join(", ") || "not begun"}>${
      SHARES.map(([status, cls]) => shares[status] > 0 && html`<i key=${status} class=${cls} style=${{ "--p": `${(100 * shares[status]) / Math.max(1, total)}%` }}></i>`)}</span></span>
      <span class="l2 full bar">${item.type === "for_each" ? total ? html`<b>${count(repeats.done - (shares.cancelled ?? 0))}</b> of ${count(total)}` : html`<span class="i3">no items</span>` : html`<b>${count(begun)}</b> ${begun === 1 ? "iteration" : "iterations"}`}
        ${failed > 0 && showItems && html`<button type="button" class="lk bad" onClick=${() => showItems(item.path, "failed")}><${Sign} of="failed" /> ${count(failed)} failed</button>`}<span class="i3">${duration(spent(item.row, run.now ?? now()))}</span><span class="grow"></span>
        ${showItems && (total > 0 || item.type !== "for_each") && html`<button type="button" class="lk" onClick=${() => showItems(item.path, null)}>${item.type === "for_each" ? "items" : "iterations"} <${Sign} of="right" /></button>`}</span>`}</div>`;
  return html`<${Fragment}>${body}${open && html`<div class="box repeat">${run && total > 0 && html`<div class="hd"><span class="nm">${item.name}[${repeats.shown}]</span><span class="d">
      <button type="button" class="b no ic" tabindex="-1" aria-label=${`The ${one} before`} disabled=${repeats.shown <= 0} onClick=${() => repeat(item.path, repeats.shown - 1)}><${Sign} of="right" cls="flip" /></button>
      <button type="button" class="b no ic" tabindex="-1" aria-label=${`The next ${one}`} disabled=${repeats.shown >= total - 1} onClick=${() => repeat(item.path, repeats.shown + 1)}><${Sign} of="right" /></button></span></div>`}
    <${Lanes} ...${props} level=${props.level} /></div>`}<//>`;
}

/** Checkpoints that are left out: their number, and a way to page through them. */
function Gap({ item, level, showItems }) {
  const failed = item.counts?.failed ?? 0;
  return html`<li role="treeitem" aria-level=${level} tabindex="-1" class="later" data-path=${item.path} aria-selected="false"><div class="n"><${Sign} of="each" /><span class="nm">${count(item.gap)} more checkpoints</span>
    ${failed > 0 && html`<span class="bad sm">${count(failed)} failed</span>`}<span class="d">${showItems && html`<button type="button" class="lk" onClick=${() => showItems(item.under, null)}>by page</button>`}</span></div></li>`;
}
