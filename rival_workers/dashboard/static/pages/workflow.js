// One workflow: its plan with what is usual, its versions, and the form that starts a run.
import { html, useEffect, useMemo, useState, Button, Loading, Menu, Problem, Sign, Tag, useLoad, copy, Wide } from "../ui.js";
import { get, idPath } from "../api.js";
import { query, to } from "../router.js";
import { footKeys } from "../frame.js";
import { count, distance, duration, idFromUrl, moment, quoted } from "../format.js";
import { typedJson } from "../exact.js";
import { build } from "../run/model.js";
import { Graph } from "../run/graph.js";
import { StartForm } from "../form/start.js";
import { Modal } from "../modal.js";

const capped = (found) => (found ? `${count(found.count)}${found.more ? "+" : ""}` : "–");

/** The largest p95: the whole width of the bars. */
function withScale(stats) {
  if (!stats) return null;
  return { ...stats, most: Math.max(0, ...Object.values(stats.steps).map((one) => one.p95 ?? one.p50 ?? 0)) };
}

function Versions({ workflow }) {
  const { versions } = workflow;
  const previous = versions.find((one) => !one.current);
  const link = (from, into) => `${to.workflow(workflow.name)}/diff/${from}/${into}`;
  return html`<section class="panel" aria-label="Versions"><div class="ph"><h2>Versions</h2><span class="grow"></span>${previous && html`<a class="sm" href=${link(previous.version, workflow.current)}>Difference ${previous.version.slice(0, 6)} → ${workflow.current.slice(0, 6)}</a>`}</div>
    <${Wide} label="Versions"><table class="vs-t"><colgroup><col class="w-wf" /><col class="w-at" /><col class="w-at" /><col /><col class="w-at" /></colgroup><thead><tr><th>Version</th><th class="num">Since</th><th class="num">Open runs</th><th>Workers</th><th><span class="vh">Difference</span></th></tr></thead><tbody>
    ${versions.map((one) => html`<tr key=${one.version}><td><span class="m">${one.version.slice(0, 8)}</span> ${one.current && html`<${Tag} cls="running">current<//>`}</td><td class="num i2" title=${moment(one.registered_at)}>${distance(one.registered_at).replace(" ago", "")}</td><td class="num">${capped(one.open)}</td>
      <td>${one.workers === null ? html`<span class="i3">not known</span>` : one.workers.length ? html`<span class="i2">${one.workers.slice(0, 6).join(", ")}</span>` : one.open?.count ? html`<span class="st waits"><${Sign} of="alert" />no live worker: its runs are parked</span>` : html`<span class="i3">not needed any more</span>`}</td>
      <td class="num">${!one.current && html`<a class="sm" href=${link(one.version, workflow.current)}>difference</a>`}</td></tr>`)}</tbody></table><//></section>`;
}

export default function Workflow({ name: coded, start }) {
  const name = idFromUrl(coded);
  const { value, problem, again } = useLoad(() => get(idPath`workflows/${name}`), [name]);
  const [stats, setStats] = useState(null);
  const [selected, setSelected] = useState(null);
  const [opened, setOpened] = useState(() => new Map());
  const [text, setText] = useState(false);
  useEffect(() => { document.title = `${name} · Rival`; footKeys.value = [[["Ctrl", "Enter"], "start"]]; document.body.classList.add("app"); return () => document.body.classList.remove("app"); }, [name]);
  useEffect(() => { get(idPath`workflows/${name}/stats`).then((found) => setStats(withScale(found)), () => {}); }, [name]);
  // Beside the plan the form is in view; below it, the reader has asked for the form.
  useEffect(() => { if (value && start && matchMedia("(max-width: 900px)").matches) document.getElementById("start-form")?.scrollIntoView(); }, [Boolean(value)]);
  const tree = useMemo(() => (value?.graph ? build(value.graph, [], {}) : []), [value]);
  const prefill = useMemo(() => { const given = query.value.get("input"); try { return given === null ? undefined : typedJson(given); } catch { return undefined; } }, [query.value.get("input")]);
  if (problem) return html`<main id="main" tabindex="-1"><h1>${name}</h1><${Problem} problem=${problem} again=${again} /></main>`;
  if (!value) return html`<main id="main" tabindex="-1"><h1 class="vh">${name}</h1><${Loading} rows=${10} /></main>`;
  const day = stats?.runs?.last_24h;
  return html`<main id="main" tabindex="-1"><header class="rh"><div class="grow"><h1><span class="m">${name}</span></h1><p class="facts">${value.description && html`<span>${value.description.split("\n")[0]}</span>`}<span>version <b class="m">${value.current.slice(0, 6)}</b> since ${distance(value.registered_at).replace(" ago", "")}</span>
      ${day && html`<span>24 h: <b>${capped(day.runs)}</b> ${day.runs.count === 1 ? "run" : "runs"}, <b class=${day.failed.count ? "bad" : ""}>${capped(day.failed)}</b> failed</span>`}${stats?.runs?.p50 != null && html`<span>p50 <b>${duration(stats.runs.p50)}</b>, p95 <b>${duration(stats.runs.p95)}</b></span>`}</p></div>
    <div class="bar"><a class="b acc only-s" href="#start-form">Start…</a><a class="b" href=${to.runs({ workflow: name })}>Its runs</a><${Button} onClick=${() => setText(true)}>Plan as text<//>${value.schedules.length > 0 && html`<${Menu} label="Schedules" end items=${value.schedules.map((one) => ({ text: one, href: "schedules" }))}>Schedules<//>`}</div></header>
    <div class="two wfl"><section class="pane" aria-label="Plan"><div class="bar planh"><h2>Plan</h2><span class="i3 sm cut">${stats?.runs?.n ? html`usual times of the ${stats.runs.n === 1 ? "newest run" : `${count(stats.runs.n)} newest runs`}: p50 <u class="tku"></u> within p5 to p95, and how often a step fails` : "no run has ended yet, so nothing is usual"}</span></div>
        <${Graph} items=${tree} run=${null} stats=${stats} selected=${selected} pick=${setSelected} opened=${opened} toggle=${(path, open) => setOpened((old) => new Map(old).set(path, open))} repeat=${() => {}} showItems=${() => {}} preview=${null} label=${`Plan of ${name}`} />
        ${value.graph?.on_error && html`<ol class="seq graph plan"><li class="later"><div class="n"><${Sign} of="alert" /><span class="nm">on_error</span><${Tag}>when a run fails<//></div></li></ol>`}
        <div class="sp16"></div><${Versions} workflow=${value} /></section>
      <${StartForm} key=${`${name}:${query.value.get("like")}:${query.value.get("input")}`} workflow=${value} prefill=${prefill} likeId=${query.value.get("like")} /></div>
    ${text && html`<${Modal} title=${`Plan of ${name}`} close=${() => setText(false)} cls="wide"><pre class="code tree" tabindex="0" aria-label="Plan">${value.text}</pre><div class="acts2"><code class="grow i3">rival plan ${quoted(name)}</code><${Button} onClick=${() => copy(value.text, "Copied the plan")}>Copy<//></div><//>`}</main>`;
}
