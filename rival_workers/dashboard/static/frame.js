// What pages report to the frame around them.
import { signal } from "./vendor/signals.js";

/** Warnings of the fleet, beside its entry in the navigation. */
export const warnings = signal(0);
/** Keys that the page's foot shows: `[["j", "k"], "rows"]`. */
export const footKeys = signal([]);

/** How many steps each queue has had waiting for a worker, while a page was open: `[[milliseconds, {queue: number}], …]`. */
export const backlog = signal([]);
const SAMPLE_EVERY = 2_000;
const SAMPLES_FOR = 15 * 60_000;

/** Keeps what the fleet says of its queues, for a quarter of an hour. */
export function keepBacklog({ queues }, at = Date.now()) {
  const old = backlog.peek().filter(([then]) => at - then < SAMPLES_FOR);
  if (old.length && at - old.at(-1)[0] < SAMPLE_EVERY) return;
  backlog.value = [...old, [at, Object.fromEntries(queues.map((one) => [one.name, one.waiting.count]))]];
}

/** A warning for each version that no live worker has, for overdue steps, and for a fleet without a live worker. */
export function countWarnings(fleet) {
  const dead = fleet.executors.length > 0 && !fleet.executors.some((one) => one.state === "alive");
  warnings.value = fleet.parked.length + (fleet.overdue.count > 0 ? 1 : 0) + (dead ? 1 : 0);
}
