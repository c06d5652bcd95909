// Applies what the stream says to a run that was fetched, so that a step appears at once. The next fetch corrects the rest.

import { get, idPath } from "../api.js";

let last = { key: null, answer: null };

/** All changes of a run: the slider and the timeline share one answer for as long as its newest entry is the same. */
export function changesOf(id, mark) {
  const key = `${id} ${mark}`;
  if (last.key !== key) {
    const answer = get(idPath`runs/${id}/changes`);
    last = { key, answer };
    answer.catch(() => { if (last.answer === answer) last = { key: null, answer: null }; });
  }
  return last.answer;
}

const ENDED = new Set(["completed", "skipped", "failed", "cancelled"]);

/** @param {object|null} data answer of `GET runs/{id}` @param {{changes: any[][], at: number}} event */
export function applied(data, event) {
  if (!data) return data;
  const fresh = event.changes.filter(([hid]) => hid > data.history_id);
  if (!fresh.length) return data;
  const rows = new Map(data.steps.map((row) => [row.path, row]));
  const added = [];
  for (const [, ms, path, what, status, detail] of fresh) {
    if (!path || !status) continue;
    if (status === "deleted") { rows.delete(path); continue; }
    const old = rows.get(path);
    if (!old && isFolded(path, data.folded)) continue;
    const made = changed(old ?? bare(path, detail), new Date(ms).toISOString(), what, status, detail ?? {});
    if (!old) added.push(path);
    rows.set(path, made);
  }
  return { ...data, steps: [...rows.values()], history_id: Math.max(data.history_id, event.at ?? 0) };
}

/** An item of a composite that is shown folded is counted by the next fetch. */
const isFolded = (path, folded) => Object.keys(folded ?? {}).some((under) => path.startsWith(`${under}[`) || path.startsWith(`${under}/`));

function bare(path, detail) {
  const role = path.includes("!") ? path.slice(path.indexOf("!") + 1) : null;
  return { path, place: path.replace(/\[\d+\]/g, "[]"), role, kind: detail?.kind ?? "step", status: "pending", attempts: 0, lost: 0, executor: null, worker: null, parked: null, created_at: null, started_at: null, completed_at: null,
    due_at: null, timeout_at: null, queue_time: null, duration: null, total: null, opened: null, remaining: null, progress: null, heartbeat_at: null, wait: null, child: null, error: null, last_error: null, waits_for: null };
}

function changed(row, at, what, status, detail) {
  const made = { ...row, status, created_at: row.created_at ?? at };
  if (detail.kind) made.kind = detail.kind;
  if (what === "claimed") { made.started_at = at; made.completed_at = null; made.attempts = detail.attempt ?? row.attempts; made.error = null; }
  if (detail.error) made.error = { traceback: null, ...detail.error };
  made.completed_at = ENDED.has(status) ? at : null;
  if (ENDED.has(status) && status !== "failed") made.error = null;
  return made;
}
