// The filter of the runs page: tokens as people type them, and as the query of `GET runs`. The words are those of `rival ls`. Pure.
import { isExact, typedJson } from "./exact.js";

const PLAIN = ["workflow", "status", "since", "until", "ended_since", "ended_until", "error", "parent", "paused"];
const ALIASES = { is: "status", wf: "workflow" };

/** Splits text into words; quotes hold words together: `error:"card declined"`. */
export function words(text) {
  return Array.from(text.matchAll(/(?:[^\s"]|"(?:[^"\\]|\\.)*"?)+/g), ([word]) => word);
}

/** One word as a token `{key, op, value}`, or null if it is none (then it is the start of an id). */
export function token(word) {
  const match = /^([A-Za-z_][\w.[\]-]*)(:|=)(.*)$/s.exec(word);
  if (!match) return null;
  const [, raw, op, rest] = match;
  const key = ALIASES[raw] ?? raw;
  const value = rest.startsWith('"') ? rest.replace(/^"|"$/g, "").replaceAll('\\"', '"') : rest;
  if (value === "") return null;
  if (PLAIN.includes(key)) return { key, op: ":", value };
  return /^(input|result|label)\./.test(key) ? { key, op: "=", value } : op === ":" ? null : { key: `input.${key}`, op: "=", value };
}

export const written = ({ key, op, value }) => `${key}${op}${/[\s"]/.test(value) ? JSON.stringify(value) : value}`;

/** The tokens of a query string, and the start of an id. */
export function fromQuery(params) {
  const tokens = [];
  for (const [key, value] of params) {
    if (PLAIN.includes(key)) tokens.push({ key, op: ":", value });
    else if (/^(input|result|label)\./.test(key)) tokens.push({ key, op: "=", value });
  }
  return { tokens, q: params.get("q") ?? "" };
}

/** What belongs into the page's address. A key that comes twice: the last wins, statuses are joined. */
export function toQuery({ tokens, q }) {
  const found = {};
  for (const { key, value } of tokens) {
    found[key] = key === "status" && found[key] && !found[key].split(",").includes(value) ? `${found[key]},${value}` : value;
  }
  if (q) found.q = q;
  return found;
}

/** What `GET runs` is asked: `input.customer.id=7` becomes part of one JSON object. */
export function toApi(tokens, q) {
  const asked = {};
  const nested = { input: null, result: null };
  for (const { key, value } of tokens) {
    const [where, ...names] = key.split(".");
    if (where === "label" && names.length) nested.labels = { ...nested.labels, [names.join(".")]: value };
    else if (names.length) nested[where] = merged(nested[where], names, guessed(value));
    else asked[key] = key === "status" && asked[key] ? `${asked[key]},${value}` : value;
  }
  for (const where of ["input", "result", "labels"]) if (nested[where]) asked[where] = JSON.stringify(nested[where]);
  if (q) asked.q = q;
  return asked;
}

function merged(into, [name, ...rest], value) {
  const object = into ?? {};
  object[name] = rest.length ? merged(object[name], rest, value) : value;
  return object;
}

/** `7` is a number, `true` is true, `"7"` in quotes stays text. */
function guessed(text) {
  try {
    const value = typedJson(text);
    return typeof value === "object" && value !== null && !isExact(value) ? text : value;
  } catch {
    return text;
  }
}

/** The same filter for `rival ls`. */
export function asOptions(tokens) {
  return tokens.map(({ key, value }) => {
    const [where, ...names] = key.split(".");
    const text = /^[\w.@:,/-]+$/.test(value) ? value : `'${value.replaceAll("'", "'\\''")}'`;
    return names.length ? `--${where} ${names.join(".")}=${text}` : key === "paused" ? (value === "true" ? "--paused" : "--not-paused") : `--${key.replaceAll("_", "-")} ${text}`;
  }).join(" ");
}

/** The filter as a sentence, for an empty list. */
export function sentence(tokens, q) {
  const parts = tokens.map(({ key, op, value }) => (op === "=" ? `${key} is ${value}` : `${key.replace("_", " ")} ${value}`));
  if (q) parts.push(`id beginning with ${q}`);
  return parts.join(", ");
}

export const SUGGESTIONS = {
  status: ["failed", "running", "pending", "suspended", "completed", "cancelled"],
  since: ["15m", "1h", "24h", "7d"], until: ["1h", "24h"], paused: ["true", "false"],
  workflow: [], error: [], parent: [], ended_since: ["1h", "24h"], ended_until: ["1h"], "input.": [], "result.": [], "label.": [],
};
