// The frame around every page: header, navigation, footer, login, keys. Pages are loaded when they are first opened.
import { html, render, Component, signal, useEffect, useState, Sign, Button, Loading, Problem, notice, tick } from "./ui.js";
import { me, cost, offline, loadMe, post, remove, countCost } from "./api.js";
import { path, place, go } from "./router.js";
import { link, outage, viewers, startLive, watch } from "./live.js";
import { useKeys } from "./keys.js";
import { warnings, footKeys, countWarnings, keepBacklog } from "./frame.js";
import { plural, time } from "./format.js";

/** Pages: the pattern of the path, the module, and the entry of the navigation it belongs to. */
const PAGES = [
  [/^(runs)?$/, () => import("./pages/runs.js"), "runs"],
  [/^runs\/(?<id>[^/]+)$/, () => import("./pages/run.js"), "runs"],
  [/^runs\/(?<id>[^/]+)\/diff\/(?<other>[^/]+)$/, () => import("./pages/compare.js"), "runs"],
  [/^workflows$/, () => import("./pages/workflows.js"), "workflows"],
  [/^workflows\/(?<name>[^/]+)(?<start>\/start)?$/, () => import("./pages/workflow.js"), "workflows"],
  [/^workflows\/(?<name>[^/]+)\/diff\/(?<from>[^/]+)\/(?<to>[^/]+)$/, () => import("./pages/versions.js"), "workflows"],
  [/^fleet$/, () => import("./pages/fleet.js"), "fleet"],
  [/^events$/, () => import("./pages/events.js"), "events"],
  [/^schedules$/, () => import("./pages/schedules.js"), "schedules"],
  [/^limits$/, () => import("./pages/limits.js"), "fleet"],
  [/^audit$/, () => import("./pages/audit.js"), "fleet"],
  [/^bulk(\/(?<id>[^/]+))?$/, () => import("./pages/bulk.js"), "runs"],
  [/^share\/(?<token>[^/]+)$/, () => import("./pages/share.js"), "runs"],
];
const NAV = [["runs", "Runs", "r"], ["workflows", "Workflows", "w"], ["fleet", "Fleet", "f"], ["events", "Events", "e"], ["schedules", "Schedules", "s"]];

const dialog = signal(null);

function found(at) {
  for (const [pattern, load, nav] of PAGES) {
    const match = pattern.exec(at);
    if (match) return { load, nav, params: match.groups ?? {} };
  }
  return null;
}

function Page() {
  const at = found(path.value);
  const [module, setModule] = useState({ of: null, page: null });
  const [problem, setProblem] = useState(null);
  useEffect(() => {
    let gone = false;
    countCost();
    at?.load().then((loaded) => { if (!gone) { setModule({ of: at.load, page: loaded.default }); setProblem(null); } }, (error) => !gone && setProblem(error));
    return () => { gone = true; };
  }, [path.value]);
  // What had the focus may have gone with the page before: the keyboard goes on at this one.
  useEffect(() => { if (document.activeElement === document.body) document.getElementById("main")?.focus({ preventScroll: true }); }, [path.value, module.of]);
  if (!at) return html`<main id="main" tabindex="-1"><header class="rh"><div class="grow"><h1>Unknown page</h1><p class="i2">No page of the dashboard has this address. <a href="runs">See the runs</a></p></div></header></main>`;
  if (problem) return html`<main id="main" tabindex="-1"><h1 class="vh">Rival</h1><${Problem} problem=${{ title: "This page could not be loaded", detail: "The server may have a newer version: load the page again." }} again=${() => location.reload()} /></main>`;
  // The page before this one must not be drawn with the parameters of this one.
  if (module.of !== at.load) return html`<main id="main" tabindex="-1"><${Loading} /></main>`;
  const Shown = module.page;
  return html`<${Boundary} key=${path.value}><${Shown} ...${at.params} /><//>`;
}

/** A mistake in one page leaves the others, and the frame around them, usable. */
class Boundary extends Component {
  componentDidCatch(error) { console.error(error); this.setState({ error }); }

  render({ children }, { error }) {
    return error ? html`<main id="main" tabindex="-1"><h1 class="vh">Rival</h1><${Problem} problem=${{ title: "This page cannot be shown", detail: `It has a mistake: ${error.message}` }} again=${() => location.reload()} /></main>` : children;
  }
}

function Live() {
  void tick.value;
  if (offline.value) return html`<span class="live off" role="status"><span>offline, as of ${time(offline.value)}</span></span>`;
  if (outage.value) return html`<span class="live off" role="status"><span>the database does not answer, as of ${time(outage.value)}</span></span>`;
  const { state } = link.value;
  const text = { begin: "connecting", live: "live", poll: "asking every 2 s", off: "not live" }[state];
  return html`<span class=${`live ${state}`} role="status"><span>${text}</span></span>`;
}

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  localStorage.setItem("rival-theme", (root.dataset.theme = dark ? "light" : "dark"));
}

async function logOut() {
  await remove("session").catch(() => {});
  await loadMe();
}

const show = async (name) => { dialog.value = (await import("./palette.js"))[name]; };

function Top() {
  const nav = found(path.value)?.nav;
  const user = me.value;
  return html`<header class="top">
    <a class="logo q" href="runs"><svg viewBox="0 0 18 18" fill="none" stroke="currentColor" stroke-width="2.2" stroke-linecap="round" aria-hidden="true"><path d="M3 2v14M3 6c6 0 6 6 12 6M3 6c6 0 6-3 12-3" /></svg>Rival</a>
    <nav class="nav" aria-label="Pages">${NAV.map(([key, text]) => html`<a key=${key} href=${key} aria-current=${nav === key ? "page" : undefined}>${text}${
      key === "fleet" && warnings.value > 0 && html`<span class="tag waits"><${Sign} of="alert" />${warnings}<span class="vh"> ${warnings.value === 1 ? "warning" : "warnings"}</span></span>`}</a>`)}</nav>
    <button class="find" type="button" onClick=${() => show("Palette")}><${Sign} of="search" /><span class="vh">Search</span><span class="grow cut">Run id, task id, workflow, action</span><kbd>Ctrl K</kbd></button>
    <${Live} />
    <${Button} kind="no" sign="theme" label="Light or dark" onClick=${toggleTheme} />
    <button type="button" class="b no ic" aria-label="Keys" onClick=${() => show("Help")}>?</button>
    <button type="button" class="who" title=${`${user.name}, ${user.role}${user.read_only ? ", read only" : ""}. Log out`} onClick=${logOut}><span aria-hidden="true">${(user.name ?? "?").slice(0, 2)}</span><span class="vh">${user.name}, ${user.role}. Log out</span></button>
  </header>`;
}

function Foot() {
  const all = viewers.value;
  const ms = (value) => (value < 10 ? value.toFixed(1) : Math.round(value));
  return html`<footer class="foot"><span>This page: ${plural(cost.value.queries, "query", "queries")}, ${ms(cost.value.ms)} ms</span>
    ${all?.viewers > 0 && html`<span>${plural(all.viewers, "viewer")}${all.viewers > 1 ? " together" : ""}: ${all.queries_per_s.toFixed(1)} queries/s, ${ms(all.ms_per_s)} ms/s</span>`}
    <span class="grow"></span>
    ${footKeys.value.map(([keys, text]) => html`<span key=${text}>${keys.map((key) => html`<kbd key=${key}>${key}</kbd> `)}${text}</span>`)}
    <span><kbd>?</kbd> keys</span></footer>`;
}

function Notice() {
  return html`<div class="notice" role="status" aria-live="polite">${notice.value && html`<p class=${notice.value.kind}>${notice.value.text}</p>`}</div>`;
}

function App() {
  useKeys({
    "Ctrl-k": [() => show("Palette"), "search everything"],
    "?": [() => show("Help"), "this help"],
    ...Object.fromEntries(NAV.map(([key, text, letter]) => [`g ${letter}`, [() => go(key), text]])),
  });
  useEffect(() => watch({ fleet: 1 }, { hear: (name, data) => { if (name === "fleet") { countWarnings(data); keepBacklog(data); } } }), []);
  // The browser's way back leaves a dialogue, too.
  useEffect(() => { dialog.value = null; }, [path.value]);
  const Dialog = dialog.value;
  return html`<a class="skip-link" href="#main">Skip to content</a><${Top} /><${Page} /><${Foot} /><${Notice} />
    ${Dialog && html`<${Dialog} close=${() => (dialog.value = null)} />`}`;
}

function Root() {
  const [Login, setLogin] = useState(null);
  const shared = place.value.path.startsWith("share/");
  const inside = Boolean(me.value?.role);
  useEffect(() => {
    if (!inside && !shared) import("./pages/login.js").then((module) => setLogin(() => module.default));
  }, [inside, shared]);
  useEffect(() => { if (inside) startLive(); }, [inside]);
  if (shared) return html`<${Page} /><${Notice} />`;
  if (!inside) return Login && html`<${Login} />`;
  return html`<${App} />`;
}

// The printed link, opened in a tab that has the login already, changes only the fragment.
addEventListener("hashchange", () => { if (new URLSearchParams(location.hash.slice(1)).has("token")) location.reload(); });

/** The link that `rival dashboard` prints has the token in its fragment: exchange it for a cookie and drop it. */
async function start() {
  // The page's module comes while the server is asked who is here.
  found(place.peek().path)?.load().catch(() => {});
  const token = new URLSearchParams(place.peek().hash).get("token");
  if (token) {
    history.replaceState(null, "", location.pathname + location.search);
    try {
      me.value = await post("session", { token });
    } catch (problem) {
      me.value = { role: null, login: ["token"], problem };
    }
  }
  if (!me.peek()?.role && !me.peek()?.problem) await loadMe();
  if (place.peek().path === "" && me.peek()?.role) go("runs", { replace: true });
  render(html`<${Root} />`, document.getElementById("app"));
}

start().catch((problem) => render(html`<main id="main"><${Problem} problem=${problem} again=${() => location.reload()} /></main>`, document.getElementById("app")));
