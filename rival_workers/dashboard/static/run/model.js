// The graph of a run as a tree of values: nodes of the plan with the rows that the run has for them. Pure.

/**
 * @typedef {object} Item one box of the graph
 * @property {string} path the step's path; of a node inside an item or iteration it has its number
 * @property {string} name @property {string} type @property {object|null} row @property {object|null} node
 * @property {{name: string|null, items: Item[], taken: boolean|null}[]} lanes
 * @property {{row: object, what: string}[]} beside its handler and compensation
 * @property {object|null} repeats the items of a for_each, the iterations of a loop: how many there are, by status
 */

const COMPOSITES = new Set(["branch", "parallel", "for_each", "loop", "workflow", "flow", "compensating"]);
const INNER_ROLES = new Set(["when", "items", "input", "key", "until", "while", "condition"]);

/**
 * @param {object|null} graph the plan @param {object[]} steps rows @param {Record<string, Record<string, number>>} folded
 * @param {Record<string, number>} repeat which item of a for_each or iteration of a loop is shown, by its path
 * @returns {Item[]}
 */
export function build(graph, steps, folded, repeat = {}) {
  const rows = new Map(steps.map((row) => [row.path, row]));
  const below = children(steps);
  const context = { rows, below, folded: folded ?? {}, repeat };
  const items = graph ? graph.nodes.map((node) => itemOf(node, "", context)) : [];
  const placed = new Set(flat(items).map((item) => item.path));
  // Rows without a node: a flow that is the whole run, or a plan that is not known here.
  if (!graph) for (const row of below.get("") ?? []) if (!row.role && !placed.has(row.path)) items.push(rowItem(row, context));
  for (const [role, type] of [["!compensate", "compensating"], ["!on_error", "handler"]]) {
    const row = rows.get(role);
    if (row) items.push({ path: role, name: role, type, row, node: null, lanes: reactionLanes(type, steps), beside: [], repeats: null, reaction: true });
  }
  return items;
}

/** The compensations of the run, in the order in which they run: the last step first. */
function reactionLanes(type, steps) {
  if (type !== "compensating") return [];
  const rows = steps.filter((row) => row.kind === "compensation").sort((one, other) => (one.created_at < other.created_at ? -1 : 1));
  return rows.length ? [{ name: null, taken: null, items: rows.map((row) => ({ path: row.path, name: row.path, type: "compensation", row, node: null, lanes: [], beside: [], repeats: null, reaction: true })) }] : [];
}

/** Rows by the path of what they are in: `lines[3]/pack` is in `lines[3]`, and that in `lines`. */
function children(steps) {
  const found = new Map();
  for (const row of steps) {
    const above = parentOf(row.path);
    if (!found.has(above)) found.set(above, []);
    found.get(above).push(row);
  }
  return found;
}

export function parentOf(path) {
  const base = path.split("!")[0];
  if (path !== base) return base;
  const slash = base.lastIndexOf("/");
  const repeat = /^(.*)\[\d+\]$/s.exec(base.slice(slash + 1));
  if (repeat) return base.slice(0, slash + 1) + repeat[1];
  return slash < 0 ? "" : base.slice(0, slash);
}

function itemOf(node, scope, context) {
  const path = scope + node.name;
  const row = context.rows.get(path) ?? null;
  const item = { path, name: node.name, type: node.type, row, node, lanes: [], beside: besides(path, context), repeats: null, inner: inners(path, context) };
  if (node.type === "for_each" || node.type === "loop") {
    item.repeats = repeatsOf(path, node.type, row, context);
    const shown = item.repeats.shown;
    item.lanes = node.lanes.map((lane) => ({ name: null, taken: null, items: lane.nodes.map((inner) => itemOf(inner, `${path}[${shown}]/`, context)) }));
  } else if (node.type === "flow") {
    flowInto(item, context);
  } else {
    const taken = row?.taken ?? null;
    item.lanes = node.lanes.map((lane) => ({
      name: node.type === "branch" ? lane.name : null,
      taken: node.type === "branch" && taken ? lane.name === taken : null,
      items: lane.nodes.map((inner) => itemOf(inner, `${path}/`, context)),
    }));
    if (node.type === "branch") item.lanes = item.lanes.filter((lane) => lane.items.length > 0);
  }
  return item;
}

/** A flow's checkpoints: as they came, with a gap where the server has left some out. */
function flowInto(item, context) {
  const rows = (context.below.get(item.path) ?? []).filter((row) => !row.role);
  const left = Object.values(context.folded[item.path] ?? {}).reduce((sum, amount) => sum + amount, 0);
  const made = rows.map((row) => rowItem(row, context));
  if (left > 0) made.splice(Math.min(10, made.length), 0, { path: `${item.path}/…`, gap: left, counts: context.folded[item.path], under: item.path, lanes: [], beside: [], repeats: null, name: "", type: "gap", row: null });
  item.lanes = made.length ? [{ name: null, taken: null, items: made }] : [];
  item.checkpoints = rows.length + left;
}

function rowItem(row, context) {
  const item = { path: row.path, name: nameOf(row.path), type: row.kind, row, node: null, lanes: [], beside: besides(row.path, context), repeats: null };
  if (row.kind === "flow") flowInto(item, context);
  return item;
}

export const nameOf = (path) => path.slice(path.lastIndexOf("/") + 1);

function besides(path, context) {
  return ["on_error", "compensate"].map((what) => ({ what, row: context.rows.get(`${path}!${what}`) })).filter((one) => one.row);
}

function inners(path, context) {
  return (context.below.get(path) ?? []).filter((row) => row.role && INNER_ROLES.has(row.role));
}

/** Rows of the items or iterations. An iteration of a loop has none of its own: it is what its steps are, the worst first. */
function repeatRows(path, type, context) {
  if (type !== "loop") return (context.below.get(path) ?? []).filter((one) => !one.role);
  const found = [];
  for (const [above, rows] of context.below) {
    const repeat = /^(.*)\[(\d+)\]$/s.exec(above);
    if (repeat?.[1] !== path) continue;
    found.push({ ...(rows.find((one) => one.status === "failed") ?? rows.find((one) => !one.completed_at) ?? rows.find((one) => one.status === "cancelled") ?? { ...rows[0], status: "completed" }), path: above });
  }
  return found.sort((one, other) => indexOf(one.path) - indexOf(other.path));
}

/** How many items or iterations there are, by status, and which one is shown: the chosen, else the first failed, open, or first. */
function repeatsOf(path, type, row, context) {
  const rows = repeatRows(path, type, context);
  const counts = {};
  for (const one of rows) counts[one.status] = (counts[one.status] ?? 0) + 1;
  for (const [status, amount] of Object.entries(context.folded[path] ?? {})) counts[status] = (counts[status] ?? 0) + amount;
  const known = Object.values(counts).reduce((sum, amount) => sum + amount, 0);
  const total = row?.total ?? known;
  const preferred = rows.find((one) => one.status === "failed") ?? rows.find((one) => !one.completed_at) ?? rows.at(-1);
  const shown = context.repeat[path] ?? (preferred ? indexOf(preferred.path) : 0);
  const ended = ["completed", "skipped", "failed", "cancelled"].reduce((sum, status) => sum + (counts[status] ?? 0), 0);
  const done = row?.remaining !== null && row?.remaining !== undefined && row.total ? Math.max(row.total - row.remaining, ended) : ended;
  return { total, known, counts, shown, done };
}

export const indexOf = (path) => Number(/\[(\d+)\]$/.exec(path)?.[1] ?? 0);

/** Every item, the outer ones before those inside them. */
export function flat(items) {
  return items.flatMap((item) => [item, ...item.lanes.flatMap((lane) => flat(lane.items))]);
}

export const isComposite = (item) => COMPOSITES.has(item.type) && (item.lanes.length > 0 || item.repeats !== null);

/** What a box says of itself: its own status; a composite that waits for its steps runs. */
export function stateOf(item) {
  const { row } = item;
  if (!row) return null;
  if (row.status === "waiting" && (row.waits_for === "steps" || item.repeats)) return "running";
  if (row.status === "waiting" && ["branch", "parallel", "for_each", "loop", "workflow", "compensating", "item"].includes(row.kind)) return "running";
  return row.status;
}

/** The step that the reader most likely wants to see: what has failed, what runs, what waits. */
export function interesting(items, run) {
  const all = flat(items).filter((item) => item.row);
  if (run.failed_step && all.some((item) => item.path === run.failed_step)) return run.failed_step;
  const leaves = all.filter((item) => !isComposite(item));
  const first = (test) => leaves.find((item) => test(item.row))?.path;
  return first((row) => row.status === "failed") ?? first((row) => row.status === "running") ?? first((row) => !row.completed_at)
    ?? leaves.at(-1)?.path ?? items[0]?.path ?? null;
}

/** How long a step took, or has taken so far; composites from their first row to their end. Not known of a step that a
 *  flow has called: it is recorded together with its end. */
export function spent(row, now) {
  if (!row) return null;
  const begun = row.started_at ?? (row.completed_at || row.status === "waiting" ? row.created_at : null);
  if (!begun) return null;
  const end = row.completed_at ? new Date(row.completed_at).getTime() : row.status === "pending" || row.status === "waiting_retry" ? null : now;
  const seconds = end === null ? null : Math.max(0, (end - new Date(begun).getTime()) / 1000);
  return row.completed_at && seconds === 0 ? row.duration : seconds;
}
