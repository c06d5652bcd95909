// The timeline's arithmetic: bars of each path from its changes of status, and a scale that folds idle time. Pure.

const BUSY = new Set(["running", "pending"]);

/**
 * @param {{rows: number[][], paths: string[], kinds: string[], statuses: string[], end: number}} changes
 * @returns {Map<string, {path: string, kind: string, status: string, bars: {from: number, to: number, what: string, open: boolean}[], first: number, last: number}>}
 */
export function barsOf(changes) {
  const found = new Map();
  for (const [, ms, pathAt, statusAt] of changes.rows) {
    const path = changes.paths[pathAt];
    const status = changes.statuses[statusAt];
    if (!found.has(path)) found.set(path, { path, kind: changes.kinds[pathAt], status, bars: [], first: ms, last: ms, since: ms });
    const row = found.get(path);
    if (row.status !== status) closeBar(row, ms, status);
    row.status = status;
    row.since = ms;
    row.last = ms;
  }
  for (const row of found.values()) {
    if (!ENDED.has(row.status)) { closeBar(row, changes.end, null); row.last = changes.end; }
  }
  return found;
}

const ENDED = new Set(["completed", "skipped", "failed", "cancelled", "deleted"]);
const COMPOSITE = new Set(["branch", "parallel", "for_each", "loop", "workflow", "item", "compensating"]);

function closeBar(row, ms, next) {
  if (ms < row.since || ENDED.has(row.status)) return;
  const what = barKind(row, next);
  if (ms > row.since || what === "ran" || what === "failed") row.bars.push({ from: row.since, to: ms, what, open: next === null });
}

/** What the time in a status was: it depends on what followed. */
function barKind(row, next) {
  if (COMPOSITE.has(row.kind)) return "span";
  if (row.status === "pending") return "queued";
  if (row.status === "waiting_retry") return "again";
  if (row.status === "waiting") return "waited";
  if (next === null) return "runs";
  return { failed: "failed", waiting_retry: "tried", pending: "lost", cancelled: "stopped", deleted: "ran", waiting: "ran" }[next] ?? "ran";
}

const WORK = new Set(["ran", "runs", "failed", "tried", "lost", "stopped"]);

/** Milliseconds in which at least one of the steps was at work. @param {Iterable<{kind: string, bars: {from: number, to: number, what: string}[]}>} rows */
export function workOf(rows) {
  const bars = [...rows].flatMap((row) => (COMPOSITE.has(row.kind) ? [] : row.bars.filter((bar) => WORK.has(bar.what))));
  bars.sort((one, other) => one.from - other.from);
  let sum = 0;
  let until = -Infinity;
  for (const { from, to } of bars) {
    sum += Math.max(0, to - Math.max(from, until));
    until = Math.max(until, to);
  }
  return sum;
}

/** Stretches of time in which something was queued or ran, with the idle time between them; short gaps do not count as gaps. */
export function stretches(rows, end) {
  const busy = [];
  for (const row of rows) if (!COMPOSITE.has(row.kind)) for (const bar of row.bars) if (bar.what !== "waited" && bar.what !== "again" && bar.what !== "span") busy.push([bar.from, bar.to]);
  busy.sort((one, other) => one[0] - other[0]);
  const joined = [];
  for (const [from, to] of busy) {
    if (joined.length && from <= joined.at(-1)[1]) joined.at(-1)[1] = Math.max(joined.at(-1)[1], to);
    else joined.push([from, to]);
  }
  if (!joined.length) return [[0, Math.max(1, end)]];
  joined[0][0] = Math.min(joined[0][0], 0);
  const work = joined.reduce((sum, [from, to]) => sum + to - from, 0);
  const least = Math.max(1500, work * 0.6);
  const made = [joined[0]];
  for (const [from, to] of joined.slice(1)) {
    if (from - made.at(-1)[1] < least) made.at(-1)[1] = Math.max(to, made.at(-1)[1]);
    else made.push([from, to]);
  }
  if (end - made.at(-1)[1] >= least) made.push([end, end]);
  else made.at(-1)[1] = Math.max(end, made.at(-1)[1]);
  return made;
}

/** From milliseconds to per cent of the width. With folds: each stretch has its share, each fold 3 %. */
export function scale(parts, end) {
  const gap = parts.length > 1 ? 3 : 0;
  const room = 96 - gap * (parts.length - 1);
  const least = Math.min(10, room / parts.length / 2);
  const total = parts.reduce((sum, [from, to]) => sum + (to - from), 0) || 1;
  const widths = parts.map(([from, to]) => least + ((room - least * parts.length) * (to - from)) / total);
  let left = 0;
  const placed = parts.map(([from, to], at) => {
    const part = { from, to, left, width: widths[at] };
    left += widths[at] + gap;
    return part;
  });
  const x = (ms) => {
    for (const [at, part] of placed.entries()) {
      if (ms <= part.to) return ms < part.from && at > 0 ? part.left - gap / 2 : part.left + (part.to > part.from ? (part.width * (Math.max(ms, part.from) - part.from)) / (part.to - part.from) : 0);
    }
    return placed.at(-1).left + placed.at(-1).width;
  };
  const folds = placed.slice(1).map((part, at) => ({ left: placed[at].left + placed[at].width, width: gap, length: (part.from - placed[at].to) / 1000 }));
  return { x, folds, parts: placed, end };
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4, 6e4, 12e4, 3e5, 6e5, 12e5, 18e5, 36e5, 72e5, 144e5, 288e5, 864e5, 6048e5];

/** Ticks of a stretch: its beginning, then round distances from it. */
export function ticks(part) {
  const span = part.to - part.from;
  const most = Math.max(1, Math.floor(part.width / 9));
  const step = STEPS.find((one) => span / one <= most) ?? span;
  const found = [];
  // The label of a tick needs room before the stretch ends.
  const last = span * (1 - Math.min(0.9, 6 / part.width));
  for (let at = step; at < last && found.length < 12; at += step) found.push(at);
  return found;
}
