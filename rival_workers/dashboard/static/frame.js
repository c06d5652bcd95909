// What pages tell the frame around them.
import { signal } from "./vendor/signals.js";

/** Warnings of the fleet, beside its entry in the navigation. */
export const warnings = signal(0);
/** Keys that the page's foot shows: `[["j", "k"], "rows"]`. */
export const footKeys = signal([]);

/** A warning for each version that no live worker has, for overdue steps, and for a fleet without a live worker. */
export function countWarnings(fleet) {
  const dead = fleet.executors.length > 0 && !fleet.executors.some((one) => one.state === "alive");
  warnings.value = fleet.parked.length + (fleet.overdue.count > 0 ? 1 : 0) + (dead ? 1 : 0);
}
