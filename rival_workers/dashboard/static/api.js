// Requests to the server: JSON in and out, problems as errors, what an answer has cost.
import { signal, batch } from "./vendor/signals.js";
import { idInUrl, setServerTime } from "./format.js";
import { parseJson } from "./exact.js";

/** Who is logged in, and what they may do: the answer of `GET me`. */
export const me = signal(null);
/** What the page's answers have cost so far. */
export const cost = signal({ queries: 0, ms: 0 });
/** Since when requests fail to reach the server; null: they reach it. */
export const offline = signal(null);

/** A problem as the server describes it (`application/problem+json`). */
export class ApiProblem extends Error {
  constructor({ status = 0, code = "", title, detail, errors = [], retry = null }) {
    super(detail ?? title);
    Object.assign(this, { status, code, title, detail, errors, retry });
    this.todo = TODO[code] ?? null;
  }
}

const TODO = {
  Forbidden: "Ask for a login with that role.",
  DatabaseUnavailable: "The page tries again by itself.", ServerBusy: "The page tries again by itself.",
  TooWide: "Narrow the filter: a workflow, a status, or a shorter time.",
};

export const idPath = (strings, ...ids) => strings.reduce((text, part, at) => text + idInUrl(String(ids[at - 1])) + part);

const queryOf = (params) => {
  const found = Object.entries(params ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return found.length ? `?${new URLSearchParams(found)}` : "";
};

/** @param {string} path below `api/v1/` */
export const get = (path, params, options = {}) => request("GET", path + queryOf(params), undefined, options);
export const post = (path, body = {}, options = {}) => request("POST", path, body, options);
export const put = (path, body = {}, options = {}) => request("PUT", path, body, options);
export const remove = (path, options = {}) => request("DELETE", path, {}, options);

/** Answers that `first.js` has asked for: each is taken once, soon, and before anything is changed. */
let early = globalThis.rivalEarly ?? new Map();
const forgetEarly = () => { early = new Map(); };
setTimeout(forgetEarly, 10_000);

function takeEarly(method, path) {
  if (method !== "GET") forgetEarly();
  const found = early.get(path);
  early.delete(path);
  return found;
}

async function request(method, path, body, { signal: abort, match, quiet } = {}) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (match) headers["If-Match"] = match;
  let answer;
  const sent = takeEarly(method, path);
  const asked = sent ? performance.timeOrigin : Date.now();
  try {
    answer = await (sent ?? fetch(`api/v1/${path}`, { method, headers, signal: abort, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store" }));
  } catch (error) {
    if (error.name === "AbortError") throw error;
    offline.value ??= new Date().toISOString();
    throw new ApiProblem({ title: "The server does not answer", detail: "What is shown may be out of date.", code: "Offline" });
  }
  if (offline.peek()) offline.value = null;
  setServerTime(answer.headers.get("Date"), asked);
  const content = answer.status === 204 ? null : await answer.text().then(parseJson).catch(() => null);
  if (!answer.ok) throw problemOf(answer, content);
  if (content?.cost && !quiet) cost.value = { queries: cost.peek().queries + content.cost.queries, ms: cost.peek().ms + content.cost.ms };
  return content;
}

function problemOf(answer, content) {
  const retry = Number(answer.headers.get("Retry-After")) || null;
  const problem = new ApiProblem({ title: `The server answered ${answer.status}`, ...content, status: answer.status, retry });
  if (answer.status === 401 && me.peek()?.role) me.value = { ...me.peek(), role: null };
  return problem;
}

/** The page begins to count its cost again. */
export const countCost = () => (cost.value = { queries: 0, ms: 0 });

export async function loadMe() {
  const found = await get("me");
  batch(() => { me.value = found; });
  return found;
}

let paths = null;
/** Whether the server has a route of the API: an older one may not. */
export async function hasRoute(path) {
  paths ??= get("openapi.json", undefined, { quiet: true }).then((found) => Object.keys(found.paths), () => []);
  return (await paths).some((one) => one.endsWith(path));
}

export const may = (feature) => Boolean(me.value?.features?.[feature]);

/** The whole text of a JSON value, as the pages show it. */
export const pretty = (value) => JSON.stringify(value, null, 2);
