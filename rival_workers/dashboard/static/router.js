// The address bar is the state of a page: path and query as signals, links followed without loading the shell again.
import { signal, computed } from "./vendor/signals.js";
import { idInUrl } from "./format.js";

const root = new URL(document.baseURI).pathname;

function read() {
  const path = location.pathname.startsWith(root) ? location.pathname.slice(root.length) : location.pathname.slice(1);
  return { path: path.replace(/\/$/, ""), query: location.search.slice(1), hash: location.hash.slice(1) };
}

/** Where the page is: path below the root, query, hash. */
export const place = signal(read());
export const path = computed(() => place.value.path);
export const query = computed(() => new URLSearchParams(place.value.query));

/** Goes to a path below the root, with a query. */
export function go(to, { replace = false } = {}) {
  const url = new URL(to, document.baseURI);
  if (url.href !== location.href) history[replace ? "replaceState" : "pushState"](null, "", url);
  place.value = read();
}

/** Changes some parameters of the query; null removes one. */
export function setQuery(changes, { replace = true } = {}) {
  const params = new URLSearchParams(place.peek().query);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") params.delete(key);
    else params.set(key, value);
  }
  const text = params.toString();
  go(place.peek().path + (text ? `?${text}` : ""), { replace });
}

/** Addresses of pages. */
export const to = {
  runs: (params) => `runs${params ? `?${new URLSearchParams(params)}` : ""}`,
  run: (id, params) => `runs/${idInUrl(id)}${params ? `?${new URLSearchParams(params)}` : ""}`,
  diff: (id, other) => `runs/${idInUrl(id)}/diff/${idInUrl(other)}`,
  workflow: (name, params) => `workflows/${idInUrl(name)}${params ? `?${new URLSearchParams(params)}` : ""}`,
  events: (topic) => `events${topic ? `?${new URLSearchParams({ topic })}` : ""}`,
  bulk: (id) => `bulk/${idInUrl(id)}`,
};

addEventListener("popstate", () => (place.value = read()));

/** Follows links inside the dashboard here; others are left to the browser. */
addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const raw = link.getAttribute("href");
  if (raw.startsWith("#")) {
    event.preventDefault();
    const target = document.getElementById(raw.slice(1));
    target?.scrollIntoView({ block: "nearest" });
    target?.focus();
    return;
  }
  const url = new URL(link.href);
  if (link.target || link.hasAttribute("download") || url.origin !== location.origin || !url.pathname.startsWith(root)) return;
  if (url.pathname.startsWith(`${root}api/`)) return;
  event.preventDefault();
  go(url.href);
  scrollTo(0, 0);
});
