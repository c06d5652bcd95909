// Live updates: one stream per browser. A tab that holds the Web Lock is the leader; it opens one EventSource for what
// all visible tabs watch, and passes events on through a BroadcastChannel. Where the stream fails, tabs poll `updates`.
import { signal } from "./vendor/signals.js";
import { get, me } from "./api.js";
import { parseJson } from "./exact.js";

/** How the page hears of changes: "begin", "live", "poll", "off". `since`: when the last thing was heard. */
export const link = signal({ state: "begin", since: null });
/** Since when the server cannot read the database; null: it can. */
export const outage = signal(null);
/** What all viewers together cost the database. */
export const viewers = signal(null);

/**
 * What this tab watches: parameters of the stream, and who hears the events.
 * @type {Map<symbol, {wants: [string, string][], hear: (name: string, data: any) => void, again: (why?: {fresh?: boolean}) => void}>}
 */
const watching = new Map();
const tab = Math.random().toString(36).slice(2);
const channel = "BroadcastChannel" in globalThis ? new BroadcastChannel(`rival:${document.baseURI}`) : null;
/** Leader only: what each tab watches. */
const tabs = new Map();
let leader = false;
let source = null;
let sourceQuery = null;
let cursor = "";
let failures = 0;
let pollTimer = 0;
let backTimer = 0;
let settle = 0;

/** Watches until the returned function is called. `again`: called when events were missed, so fetch everything; with
 * `fresh`, those between the page's first answer and the beginning of the stream. */
export function watch(wants, { hear, again = () => {} }) {
  const key = Symbol("watch");
  watching.set(key, { wants: pairs(wants), hear, again });
  announce();
  return () => { watching.delete(key); announce(); };
}

const pairs = (wants) => Object.entries(wants).flatMap(([name, value]) =>
  (Array.isArray(value) ? value : [value]).filter((one) => one !== null && one !== undefined && one !== "").map((one) => [name, String(one)]));

const wanted = () => (document.hidden ? [] : [...watching.values()].flatMap((one) => one.wants));

function announce() {
  const wants = wanted();
  if (leader) { tabs.set(tab, { wants, at: Date.now() }); arrange(); }
  else channel?.postMessage({ type: "want", tab, wants });
  if (link.peek().state === "poll") poll();
}

/** The tab that gets the lock serves all others until it is closed. */
function lead() {
  leader = true;
  channel?.postMessage({ type: "who" });
  announce();
}

export function startLive() {
  if (me.peek()?.features?.live === "poll") { toPolling(); return; }
  if (navigator.locks && channel) navigator.locks.request(`rival:${document.baseURI}`, () => new Promise(lead));
  else lead();
  if (channel) channel.onmessage = ({ data }) => received(data);
  setInterval(() => { announce(); dropOld(); }, 10_000);
  document.addEventListener("visibilitychange", () => {
    announce();
    if (!document.hidden) for (const one of watching.values()) one.again();
  });
  addEventListener("pagehide", () => { channel?.postMessage({ type: "want", tab, wants: [] }); source?.close(); });
}

function received(message) {
  if (message.type === "who") announce();
  else if (message.type === "want" && leader) { tabs.set(message.tab, { wants: message.wants, at: Date.now() }); arrange(); }
  else if (message.type === "event") deliver(message.name, message.data);
  else if (message.type === "link" && !leader) follow(message.state);
}

/** The leader has said how it hears of changes. */
function follow(state) {
  if (state === "poll") { toPolling(); return; }
  if (state === "live") stopPolling();
  link.value = { state, since: Date.now() };
}

function dropOld() {
  for (const [key, one] of tabs) if (Date.now() - one.at > 25_000 && key !== tab) tabs.delete(key);
}

/** Opens the stream for what all tabs watch; a short pause first, since pages change several things at once. */
function arrange() {
  clearTimeout(settle);
  settle = setTimeout(connect, 30);
}

function connect() {
  const all = new Map([...tabs.values()].flatMap((one) => one.wants).map((pair) => [pair.join("="), pair]));
  const query = new URLSearchParams([...all.keys()].sort().map((key) => all.get(key))).toString();
  if (query === sourceQuery && source && source.readyState !== EventSource.CLOSED) return;
  source?.close();
  source = null;
  sourceQuery = query;
  if (!query) return setLink("off");
  open(query);
}

const EVENTS = ["hello", "steps", "run", "progress", "logs", "list", "counts", "fleet", "bulk", "cost", "outage", "reset", "bye"];

/** The query of the last stream that was opened. */
let heard = "";

function open(query) {
  const opened = new EventSource(`api/v1/stream?${query}${cursor ? `&after=${encodeURIComponent(cursor)}` : ""}`);
  // The server has no earlier changes of what was not watched until now, so that what changed between a page's first
  // answer and now is in neither: fetch again.
  let fresh = !cursor || query !== heard;
  source = opened;
  for (const name of EVENTS) opened.addEventListener(name, (event) => {
    if (event.lastEventId) cursor = event.lastEventId;
    failures = 0;
    const data = parseJson(event.data);
    if (link.peek().state !== "live") { stopPolling(); setLink("live"); }
    for (const [kind, about] of fresh && name === "hello" ? [[name, data], ["reset", { fresh: true }]] : [[name, data]]) {
      channel?.postMessage({ type: "event", name: kind, data: about });
      deliver(kind, about);
    }
    if (name === "hello") { fresh = false; heard = query; }
  });
  opened.onerror = () => {
    if (source !== opened) return;
    failures += 1;
    if (opened.readyState === EventSource.CLOSED || failures >= 2) {
      opened.close();
      sourceQuery = null;
      if (failures >= 2) toPolling();
      else setTimeout(arrange, 1000);
    }
  };
}

function setLink(state) {
  link.value = { state, since: Date.now() };
  if (leader) channel?.postMessage({ type: "link", state });
}

function stopPolling() {
  clearInterval(pollTimer);
  clearTimeout(backTimer);
}

/** Asks every few seconds; tries the stream again after a minute, or once a server that was gone answers. */
function toPolling() {
  setLink("poll");
  stopPolling();
  pollTimer = setInterval(poll, (me.peek()?.poll ?? 2) * 1000);
  poll();
  if (me.peek()?.features?.live === "poll") return;
  backTimer = setTimeout(() => {
    clearInterval(pollTimer);
    failures = 0;
    setLink("off");
    if (leader) arrange();
  }, 60_000);
}

let polling = false;
let pollCursor = "";
let polled = "";
let lost = false;
async function poll() {
  const wants = wanted();
  if (polling || !wants.length || !me.peek()?.role) return;
  polling = true;
  try {
    const asked = new URLSearchParams(wants).toString();
    const fresh = !pollCursor || asked !== polled;
    polled = asked;
    const query = new URLSearchParams(fresh ? wants : [...wants, ["after", pollCursor]]);
    const answer = await get(`updates?${query}`, undefined, { quiet: true });
    pollCursor = answer.cursor;
    link.value = { state: "poll", since: Date.now() };
    for (const { event, data } of answer.events) if (event !== "hello") deliver(event, data);
    if (fresh) deliver("reset", { fresh: true });
    if (lost && leader) arrange();
    lost = false;
  } catch {
    pollCursor = "";
    lost = true;
  } finally { polling = false; }
}

function deliver(name, data) {
  if (name === "cost") viewers.value = data;
  if (name === "hello") { link.value = { state: "live", since: Date.now() }; outage.value = data.outage; }
  if (name === "outage") outage.value = data.since;
  // What was asked for meanwhile has failed.
  const again = name === "reset" || (name === "outage" && !data.since);
  for (const one of [...watching.values()]) {
    if (again) one.again(data);
    else one.hear(name, data);
  }
}
