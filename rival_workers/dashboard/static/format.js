// Numbers, durations and times as the pages show them; ids and filters as URLs have them. Pure.

const THOUSANDS = new Intl.NumberFormat("en");
/** @param {number} value */
export const count = (value) => THOUSANDS.format(value);

/** "1.2 M" for what is only known roughly. */
export function roughly(value) {
  if (value >= 1e6) return `~${(value / 1e6).toFixed(1)} M`;
  return value >= 1e4 ? `~${Math.round(value / 1e3)} k` : count(value);
}

/** Seconds as people say them: "120 ms", "1.1 s", "14 s", "1 m 18 s", "1 h 53 m", "3 d 4 h". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "";
  const value = Math.max(0, seconds);
  if (value === 0) return "0 s";
  if (value < 0.001) return "<1 ms";
  if (value < 0.95) return `${Math.max(1, Math.round(value * 1000))} ms`;
  if (value < 9.95) return `${value.toFixed(1)} s`;
  if (value < 59.5) return `${Math.round(value)} s`;
  if (value < 3600) return two(value, 60, "m", 1, "s");
  if (value < 86400) return two(value, 3600, "h", 60, "m");
  return two(value, 86400, "d", 3600, "h");
}

function two(value, big, bigWord, small, smallWord) {
  let most = Math.floor(value / big);
  let rest = Math.round((value % big) / small);
  if (rest * small >= big) { most += 1; rest = 0; }
  return rest ? `${most} ${bigWord} ${rest} ${smallWord}` : `${most} ${bigWord}`;
}

/** @param {string|null} earlier @param {string|number|null} later seconds between two moments */
export const between = (earlier, later) =>
  earlier && later ? (new Date(later).getTime() - new Date(earlier).getTime()) / 1000 : null;

/** How long a run took, or has taken so far: from its begin on a worker, as lists and pages say it. */
export const tookOf = (run, until = now()) => between(run.started_at ?? run.created_at, run.completed_at ?? until);

let skew = 0;
/** The server's clock, as far as this browser knows it. */
export const now = () => Date.now() + skew;
/** From an answer, which the server has dated to the second at some time after the request was made: the answer may have
 *  waited long before it was read. Small differences are none. */
export function setServerTime(date, asked) {
  const reported = new Date(date ?? "").getTime();
  if (Number.isNaN(reported)) return;
  const [ahead, behind] = [reported - Date.now(), asked - reported - 1000];
  skew = ahead > 5000 ? ahead : behind > 5000 ? -behind : 0;
}

const pad = (value, width = 2) => String(value).padStart(width, "0");
const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

/** "12:04:08" today, "Mon 09:14" this week, "2026-11-03" before. */
export function time(iso, precise = false) {
  if (!iso) return "";
  const at = new Date(iso);
  const age = (now() - at.getTime()) / 1000;
  const clock = `${pad(at.getHours())}:${pad(at.getMinutes())}`;
  if (precise) return `${clock}:${pad(at.getSeconds())}.${pad(at.getMilliseconds(), 3)}`;
  if (new Date(now()).toDateString() === at.toDateString()) return `${clock}:${pad(at.getSeconds())}`;
  if (Math.abs(age) < 6 * 86400) return `${DAYS[at.getDay()]} ${clock}`;
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
}

/** The whole moment, for a title: "2026-11-03 12:04:08". */
export function moment(iso) {
  if (!iso) return "";
  const at = new Date(iso);
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

/** "in 6 m" or "6 m ago". */
export function distance(iso) {
  const seconds = (new Date(iso).getTime() - now()) / 1000;
  return seconds >= 0 ? `in ${duration(Math.round(seconds))}` : `${duration(Math.round(-seconds))} ago`;
}

export function bytes(size) {
  if (size < 1024) return `${size} B`;
  return size < 1024 * 1024 ? `${(size / 1024).toFixed(1)} KB` : `${(size / 1024 / 1024).toFixed(1)} MB`;
}

export const percent = (ratio) => (ratio === 0 ? "0 %" : ratio < 0.001 ? "<0.1 %" : `${(ratio * 100).toFixed(ratio < 0.1 ? 1 : 0)} %`);

export const plural = (amount, one, many = `${one}s`) => `${count(amount)} ${amount === 1 ? one : many}`;

/** A worker's process in short: host and process id of its executor's id; names of people stay as they are. */
export const executorName = (id) => (id ?? "").replace(/^([^/]+)\/.*:(\d+):[0-9a-f]+$/, "$1:$2");

/** An id in a URL: all but letters, digits, `.`, `_` and `-` as `~XX` of its UTF-8 bytes; proxies leave that alone. */
export const idInUrl = (id) => Array.from(new TextEncoder().encode(id), (byte) => {
  const letter = String.fromCharCode(byte);
  return /[A-Za-z0-9._-]/.test(letter) ? letter : `~${byte.toString(16).toUpperCase().padStart(2, "0")}`;
}).join("").replace(/^(\.+|counts|export)$/, (taken) => `~${taken.charCodeAt(0).toString(16).toUpperCase()}${taken.slice(1)}`);

export function idFromUrl(text) {
  const found = [];
  for (let at = 0; at < text.length; at++) {
    if (text[at] === "~") { found.push(parseInt(text.slice(at + 1, at + 3), 16)); at += 2; }
    else found.push(...new TextEncoder().encode(text[at]));
  }
  return new TextDecoder().decode(new Uint8Array(found));
}

/** A word for a POSIX shell. */
export const quoted = (word) => (/^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

/** The fields of an entry in one line: `attempt=1  kind=handler`. */
export const words = (fields) => Object.entries(fields ?? {}).map(([key, value]) => `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`).join("  ");

/** A long id in a narrow place: its beginning and end. */
export const short = (id, most = 24) => (id.length <= most ? id : `${id.slice(0, most - 9)}…${id.slice(-8)}`);
