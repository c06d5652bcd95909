// The keyboard: single letters and sequences ("g r"), off while typing, and off altogether when the reader says so.
import { signal, useLayoutEffect, useRef } from "./ui.js";

/** Whether single letters do something (WCAG 2.1.4). */
export const letters = signal(localStorage.getItem("rival-keys") !== "off");
export function setLetters(on) {
  letters.value = on;
  localStorage.setItem("rival-keys", on ? "on" : "off");
}

/** @type {Set<{current: Record<string, [(event: KeyboardEvent) => void, string]>}>} */
const sets = new Set();
let before = "";
let beforeAt = 0;

/**
 * Keys of a page while it is shown: `{"j": [next, "next row"]}`. The newest set wins. A key does what it should from the
 * moment at which the page is drawn: an effect after painting would leave the next key to the values of before.
 */
export function useKeys(bindings) {
  const mine = useRef(bindings);
  useLayoutEffect(() => { mine.current = bindings; });
  useLayoutEffect(() => {
    sets.add(mine);
    return () => sets.delete(mine);
  }, []);
}

/** What keys do now, for the help. */
export const known = () => [...sets].flatMap((set) => Object.entries(set.current).map(([key, [, text]]) => [key, text]).filter(([, text]) => text));

const typing = (target) => target.closest?.("input:not([type=checkbox], [type=range]), textarea, select, [contenteditable=true]");

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.altKey) return;
  // A dialogue and the control that has the focus come first: Escape closes the one, Enter uses the other.
  if (document.querySelector("dialog:modal")) return;
  const plain = (event.key === "Enter" || event.key === " ") && !event.ctrlKey && !event.metaKey;
  if (plain && event.target.closest?.("a[href], button, input, summary, [role^=menuitem]")) return;
  const held = event.ctrlKey || event.metaKey;
  const key = held ? `Ctrl-${event.key.toLowerCase()}` : event.key;
  if (!held && key !== "Escape" && typing(event.target)) return;
  if (!held && key.length === 1 && !letters.peek()) return;
  const chord = Date.now() - beforeAt < 1200 ? `${before} ${key}` : "";
  const newest = [...sets].map((one) => one.current).reverse();
  // A sequence wins over its last letter.
  const set = newest.find((one) => chord && one[chord]) ?? newest.find((one) => one[key]);
  const found = set?.[chord] ?? set?.[key];
  if (found) event.preventDefault();
  before = found ? "" : key;
  beforeAt = Date.now();
  found?.[0](event);
});
