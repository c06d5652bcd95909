// Verbs of an operator, and the preview that the server makes of one. The panel is in `preview.js`.
import { useAnswers, useEffect, useState } from "../ui.js";
import { idPath, post } from "../api.js";
import { flat } from "./model.js";

export const VERBS = {
  retry: { title: "Retry", sign: "retry", done: "opened again" },
  rewind: { title: "Rewind", sign: "undone", done: "rewound", step: true },
  skip: { title: "Skip", sign: "skipped", done: "skipped", step: true, reason: true },
  "set-result": { title: "Set the result of", button: "Set the result", sign: "completed", done: "set", step: true, reason: true, result: true },
  pause: { title: "Pause", sign: "paused", done: "paused" },
  resume: { title: "Resume", sign: "right", done: "resumed" },
  cancel: { title: "Cancel", sign: "cancelled", done: "cancelled", danger: true },
};

/** Asks the server what would happen; again when the chosen step changes or the run has moved. */
export function usePreview(run, mode) {
  const [state, setState] = useState({ key: null, verb: null, answer: null, problem: null, moved: false });
  const [turn, setTurn] = useState(0);
  const key = mode ? `${mode.verb}:${mode.step ?? ""}:${turn}` : null;
  const take = useAnswers([key]);
  useEffect(() => {
    if (!mode || (VERBS[mode.verb].step && !mode.step)) return;
    const body = { dry_run: true, ...(VERBS[mode.verb].step ? { step: mode.step } : {}), ...(VERBS[mode.verb].reason ? { reason: "…" } : {}), ...(VERBS[mode.verb].result ? { result: null } : {}) };
    take(post(idPath`runs/${run.id}/` + mode.verb, body),
      (answer) => setState((old) => ({ key, verb: mode.verb, answer, problem: null, moved: old.moved && turn > 0 })),
      (problem) => setState((old) => ({ ...old, key, answer: null, problem })));
  }, [key]);
  // While another step is asked about, the preview of the one before stays; it cannot be confirmed.
  const shown = state.key === key || (state.answer && state.verb === mode?.verb) ? state : { answer: null, problem: null };
  return { ...shown, fresh: state.key === key, again: (moved) => { setState((old) => ({ ...old, moved })); setTurn(turn + 1); } };
}

/** What a preview says of a step: the colour, the sign and the words of its mark. */
export const MARKS = {
  again: ["running", "retry", "runs again"], gone: ["undone", "undone", "deleted"], stays: ["pending", null, "stays"], first: ["running", "right", "runs"],
  skips: ["skipped", "skipped", "is skipped"], given: ["completed", "completed", "gets the result"], stops: ["cancelled", "cancelled", "is cancelled"], holds: ["paused", "paused", "waits"],
};

/** What the graph marks for a verb: the mark of each path that has one. */
export function marks(verb, step, answer, items) {
  if (verb === "retry" || verb === "rewind") return reopened(parts(answer, items), items);
  const all = flat(items);
  const open = all.filter(({ row }) => row && !row.completed_at);
  if (verb === "cancel") return new Map(open.map(({ path }) => [path, "stops"]));
  const later = unreached(items);
  if (verb === "pause") return new Map([...open.filter(({ row }) => row.status === "pending").map(({ path }) => path), ...later].map((path) => [path, "holds"]));
  if (verb === "resume") return new Map(later.map((path) => [path, "first"]));
  return new Map([...later.map((path) => [path, "first"]), [step, verb === "skip" ? "skips" : "given"]]);
}

function reopened({ again, gone, first }, items) {
  const stays = flat(items).filter((item) => item.row).map(({ path }) => [path, "stays"]);
  return new Map([...stays, ...[...first].map((path) => [path, "first"]), ...[...gone].map((path) => [path, "gone"]), ...[...again].map((path) => [path, "again"])]);
}

/**
 * What a retry or rewind does: sets of paths. Handlers and compensations of what runs again are deleted; steps that were
 * not reached run for the first time, unless they are in a branch that was not taken.
 */
export function parts(answer, items) {
  const affected = [...(answer?.runs_again ?? []), ...(answer?.opened ?? [])];
  const again = new Set(affected.filter((path) => !path.includes("!")));
  const gone = new Set(affected.filter((path) => path.endsWith("!on_error")));
  for (const item of flat(items)) {
    for (const { row } of item.beside) if (again.has(item.path)) gone.add(row.path);
    if (item.reaction && item.type === "compensation" && again.has(item.path.split("!")[0])) gone.add(item.path);
  }
  const compensations = flat(items).filter((item) => item.type === "compensation");
  if (compensations.length && compensations.every((item) => gone.has(item.path))) gone.add("!compensate");
  const first = new Set();
  if (again.size) for (const path of unreached(items)) first.add(path);
  return { again, gone, first };
}

/** Paths that the run has not come to, in branches that are not left out. */
export const unreached = (items) => items.flatMap((item) => [...(item.row || item.reaction ? [] : [item.path]), ...item.lanes.filter((lane) => lane.taken !== false).flatMap((lane) => unreached(lane.items))]);
