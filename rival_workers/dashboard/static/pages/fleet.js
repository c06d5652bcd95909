// The fleet: workers with their slots, queues, parked runs, what the doctor says.
import { html, Fragment, useEffect, useState, Button, Loading, Problem, Sign, Status, useAnswers, useLoad, tick, AsCommand, say, Wide } from "../ui.js";
import { get, hasRoute, may, me, post } from "../api.js";
import { watch } from "../live.js";
import { backlog, footKeys, countWarnings, keepBacklog } from "../frame.js";
import { to } from "../router.js";
import { between, count, distance, duration, moment, now, plural, time } from "../format.js";
import { Modal } from "../modal.js";

const capped = (found) => (found ? `${count(found.count)}${found.more ? "+" : ""}` : "–");
const versionsOf = (workflows) => Object.entries(workflows ?? {}).flatMap(([name, versions]) => versions.map((version) => `${name} ${version.slice(0, 4)}`));

function Slots({ one }) {
  if (!one.slots) return html`<span class="i3">–</span>`;
  // More would leave no room for the numbers: then a cell is several slots, and one that is partly busy is on.
  const cells = Math.min(one.slots, 8);
  const on = Math.ceil((cells * (one.busy ?? 0)) / one.slots);
  return html`<span class="slots" role="img" aria-label=${`${one.busy ?? 0} of ${one.slots} slots busy`}>${Array.from({ length: cells }, (_, at) => html`<i key=${at} class=${at < on ? "on" : ""}></i>`)}</span> <span class="i2">${one.busy ?? 0}/${one.slots}</span>`;
}

function Runs({ running, more, dead }) {
  if (!running.length) return html`<span class="i3">${dead ? "all of its attempts are taken over" : "idle"}</span>`;
  const [first] = running;
  return html`<a class="m q" href=${to.run(first.run, { step: first.step })}>${first.workflow}.${first.step}</a> ${duration(between(first.since, now()))} ${running.length > 1 && html`<span class="i3" title=${running.map((one) => `${one.run} ${one.step}`).join("\n")}>+${running.length - 1}${more ? "+" : ""}</span>`}`;
}

function Name({ worker }) {
  if (!worker || !me.value?.flower) return html`${worker ?? "–"}`;
  return html`<a rel="noreferrer" target="_blank" title="in Flower" href=${`${me.value.flower}/worker/${encodeURIComponent(worker)}`}>${worker}</a>`;
}

function Worker({ one, said }) {
  void tick.value;
  const dead = one.state === "dead";
  const all = versionsOf(one.workflows);
  const left = between(now(), one.expires_at);
  return html`<${Fragment}><tr class=${dead ? "dead" : ""}><td><${Status} is=${one.state} /></td><td class="m" title=${one.id}><${Name} worker=${one.worker} /></td><td class="m i2" title=${one.host}>${one.host.split("/")[0]}:${one.pid}</td><td class="num i2" title=${moment(one.started_at)}>${dead ? "–" : duration(between(one.started_at, now()))}</td>
    <td class=${`num ${dead ? "bad" : "i2"}`}>${duration(Math.max(0, Math.round(between(one.beat_at, now()))))}${dead ? " ago" : ""}</td><td class=${`num ${left < 0 ? "bad" : "i2"}`}>${left < 0 ? "ran out" : duration(Math.round(left))}</td>
    ${said && html`<td><${Slots} one=${one} /></td>`}<td class="i2"><${Runs} running=${one.running} more=${one.running_more} dead=${dead} /></td>${said && html`<td class="i2 m xs" title=${all.join("\n")}>${all.slice(0, 2).join(", ")}${all.length > 2 ? `, +${all.length - 2}` : ""}</td>`}</tr>
    ${(one.problem || dead && one.running.length > 0) && html`<tr class=${`more ${dead ? "" : "warn"}`}><td colspan="9">${one.problem && html`<p class="sm">${one.problem}</p>`}${dead && one.running.map((lost) => html`<p class="sm" key=${lost.run + lost.step}><${Status} is="lost" /> <a class="m" href=${to.run(lost.run, { step: lost.step })}>${lost.run}</a> at <span class="m">${lost.step}</span>, begun ${time(lost.since)}</p>`)}
      ${dead && html`<p class="sm i3">Last heartbeat ${time(one.beat_at)}, lease ran out ${time(one.expires_at)}. A lost attempt does not use up one of the step's attempts.</p>`}</td></tr>`}<//>`;
}

/** What has waited in a queue since a page of the dashboard was opened here, for a quarter of an hour. */
function Backlog({ queue, late }) {
  const all = backlog.value.map(([at, waiting]) => [at, waiting[queue] ?? 0]);
  if (all.length < 3) return html`<span class="i3">–</span>`;
  const [[from], [until, now]] = [all[0], all.at(-1)];
  const most = Math.max(...all.map(([, waiting]) => waiting));
  const line = all.map(([at, waiting]) => `${((120 * (at - from)) / (until - from)).toFixed(1)},${(21 - (most && (20 * waiting) / most)).toFixed(1)}`).join(" ");
  return html`<svg class=${`trend ${late ? "wait" : ""}`} width="120" height="22" viewBox="0 0 120 22" role="img" aria-label=${`waiting, in the last ${duration((until - from) / 1000)}: at most ${count(most)}, now ${count(now)}`}><polyline points=${line} /></svg>`;
}

function Queue({ one }) {
  const late = (one.oldest ?? 0) > 30;
  const state = one.workers === 0 ? ["bad", one.waiting.count ? "no worker serves it" : "no worker"] : late ? ["warn", "late"] : ["ok", "flows"];
  return html`<tr><td class="m">${one.name}</td><td><${Status} is=${state[0]} word=${state[1]} /></td><td class="num">${capped(one.waiting)}</td><td class=${`num ${late ? "wait" : ""}`}>${one.oldest === null ? "–" : duration(one.oldest)}</td><td><${Backlog} queue=${one.name} late=${late} /></td><td class="num">${one.workers}</td><td class="num">${one.slots ? html`${one.busy}<span class="i3">/${one.slots}</span>` : "–"}</td></tr>`;
}

function Parked({ parked }) {
  const [first] = parked;
  if (!first) return null;
  return html`<section class="note waits" aria-label="Warning"><${Sign} of="alert" /><div><p class="lead">${capped(first.runs)} ${first.runs.count === 1 ? "run" : "runs"} of <span class="m">${first.workflow}</span> ${first.runs.count === 1 ? "is" : "are"} parked: ${first.runs.count === 1 ? "it needs" : "they need"} version <span class="m">${first.version.slice(0, 8)}</span>, which no live worker has.</p>
    ${parked.length > 1 && html`<p class="facts">${parked.slice(1, 4).map((one) => html`<span key=${one.workflow + one.version}><b>${capped(one.runs)}</b> of <span class="m">${one.workflow} ${one.version.slice(0, 8)}</span></span>`)}</p>`}
    <p class="sm do">Start a worker with the file of that version, or start the runs again with the current one.</p></div><a class="b" href=${to.runs({ workflow: first.workflow, status: "pending,running,suspended" })}>Show them</a></section>`;
}

function Kpis({ fleet }) {
  const live = fleet.executors.filter((one) => one.state !== "dead");
  const slots = live.reduce((sum, one) => sum + (one.slots ?? 0), 0);
  const busy = live.reduce((sum, one) => sum + (one.busy ?? 0), 0);
  const oldest = Math.max(...fleet.queues.map((one) => one.oldest ?? 0), 0);
  const waiting = fleet.queues.reduce((sum, one) => sum + (one.waiting?.count ?? 0), 0);
  const cells = [slots ? ["Slots busy", html`${busy}<small>/${slots}</small>`] : ["Attempts now", count(live.reduce((sum, one) => sum + one.running.length, 0))], ["Waiting", count(waiting)], ["Oldest", oldest > 0 ? duration(oldest) : "–"], ["Overdue", capped(fleet.overdue)], ["Takeovers, 1 h", capped(fleet.takeovers_1h)],
    ["Database", html`${fleet.database.ms.toFixed(1)} <small>ms</small>`], ["Clock skew", html`${Math.round(fleet.database.skew_ms ?? 0)} <small>ms</small>`]];
  return html`<dl class="panel kpi">${cells.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

function Recover({ close }) {
  const { value, problem } = useLoad(() => post("fleet/recover", { dry_run: true }), []);
  const act = async () => { try { await post("fleet/recover", { dry_run: false }); say("Published again"); close(); } catch (found) { say(found.detail ?? found.title, "bad"); } };
  const { commands, cost: _cost, done: _done, ...counts } = value ?? {};
  void [_cost, _done];
  return html`<${Modal} title="Recover" close=${close}><p class="i2">Publishes messages for everything that waits for a worker. It is safe at any time: a message that is not needed has no effect.</p>${problem && html`<${Problem} problem=${problem} />`}
    ${value && html`<dl class="pairs">${Object.entries(counts).filter(([, one]) => typeof one !== "object").map(([key, one]) => html`<dt key=${`t${key}`}>${key.replaceAll("_", " ")}</dt><dd key=${`d${key}`}>${String(one)}</dd>`)}</dl><${AsCommand} commands=${commands ?? { shell: "rival recover" }} />`}
    <div class="acts2"><span class="grow"></span><${Button} onClick=${close}>Leave<//><${Button} kind="acc" onClick=${act} why=${value ? null : "One moment."}>Recover<//></div><//>`;
}

export default function Fleet() {
  const [fleet, setFleet] = useState(null);
  const [problem, setProblem] = useState(null);
  const [recover, setRecover] = useState(false);
  const doctor = useLoad(async () => ((await hasRoute("/doctor")) ? get("doctor") : { checks: null }), []);
  const take = useAnswers([]);
  const load = () => take(get("fleet"), (found) => { setFleet(found); countWarnings(found); keepBacklog(found); setProblem(null); }, setProblem);
  useEffect(() => { document.title = "Fleet · Rival"; footKeys.value = [[["g", "f"], "fleet"]]; load(); }, []);
  useEffect(() => watch({ fleet: 1 }, { again: load, hear: (name, data) => name === "fleet" && setFleet((old) => ({ ...old, ...data })) }), []);
  if (problem && !fleet) return html`<main id="main" tabindex="-1"><h1>Fleet</h1><${Problem} problem=${problem} again=${load} /></main>`;
  if (!fleet) return html`<main id="main" tabindex="-1"><h1 class="vh">Fleet</h1><${Loading} /></main>`;
  const by = (state) => fleet.executors.filter((one) => one.state === state).length;
  const checks = doctor.value?.checks ?? [];
  const order = { dead: 0, leaving: 1, alive: 2 };
  // Workers of an older version do not say how many slots they have.
  const said = fleet.executors.some((one) => one.slots !== null);
  const workers = [...fleet.executors].sort((one, other) => (order[one.state] ?? 3) - (order[other.state] ?? 3) || String(one.worker).localeCompare(String(other.worker)));
  return html`<main id="main" tabindex="-1"><header class="rh"><div class="grow"><h1>Fleet</h1><p class="facts"><span><b>${by("alive")}</b> ${by("alive") === 1 ? "process" : "processes"} alive${by("leaving") > 0 && html`, <b>${by("leaving")}</b> leaving`}${by("dead") > 0 && html`, <b class="bad">${by("dead")}</b> dead`}</span><span><b>${fleet.queues.length}</b> ${fleet.queues.length === 1 ? "queue" : "queues"}</span><span>read ${distance(fleet.now).replace("in 0 s", "now")}</span></p></div>
    <div class="bar"><a class="b" href="limits">Limits, dead letters</a>${may("recover") && html`<${Button} onClick=${() => setRecover(true)}>Recover…<//>`}</div></header>
    <${Parked} parked=${fleet.parked} />
    ${workers.length === 0 && html`<section class="note waits" aria-label="Warning"><${Sign} of="alert" /><div><p class="lead">No worker is alive: nothing runs.</p><p class="sm do">Start one: <code>rival worker --workflows DIR</code></p></div><span></span></section>`}
    <${Kpis} fleet=${fleet} />
    <section class="panel" aria-label="Workers"><div class="ph"><h2>Workers</h2><span class="sm i3">a process whose lease has run out is dead, and its attempts are taken over</span></div><${Wide} label="Workers"><table class="wk"><colgroup><col class="w-st" /><col class="w-wn" /><col class="w-id" /><col class="w-n" /><col class="w-at" /><col class="w-n" />${said && html`<col class="w-sl" />`}<col />${said && html`<col class="w-wf" />`}</colgroup>
      <thead><tr><th>State</th><th>Worker</th><th>Host:pid</th><th class="num">Up</th><th class="num">Heartbeat</th><th class="num">Lease</th>${said && html`<th>Slots</th>`}<th>Runs now</th>${said && html`<th>Versions</th>`}</tr></thead><tbody>${workers.slice(0, 100).map((one) => html`<${Worker} key=${one.id} one=${one} said=${said} />`)}</tbody></table><//></section>
    <div class="grid2"><section class="panel" aria-label="Queues"><div class="ph"><h2>Queues</h2><span class="sm i3 cut">what waits for a worker, and the age of the oldest</span></div><${Wide} label="Queues"><table><thead><tr><th>Queue</th><th>State</th><th class="num">Waiting</th><th class="num">Oldest</th><th>Waiting, 15 m</th><th class="num">Workers</th><th class="num">Slots busy</th></tr></thead><tbody>${fleet.queues.map((one) => html`<${Queue} key=${one.name} one=${one} />`)}</tbody></table><//></section>
    ${doctor.value?.checks === null ? "" : html`<section class="panel" aria-label="Doctor"><div class="ph"><h2>Doctor</h2><span class="grow"></span>${doctor.value && html`<span class="sm i2">${checks.filter((one) => one.state === "ok").length} ok${checks.some((one) => one.state !== "ok") ? `, ${[["warning", "warning"], ["failed", "failure"]].map(([state, word]) => [checks.filter((one) => one.state === state).length, word]).filter(([found]) => found).map(([found, word]) => plural(found, word)).join(", ")}` : ""}</span>`}</div>
      ${doctor.problem && html`<p class="sec0 i3">${doctor.problem.title}</p>`}${!doctor.value && !doctor.problem && html`<${Loading} rows=${4} />`}${doctor.value && html`<ul class="doc">${[...checks].sort((one, other) => (one.state === "ok") - (other.state === "ok")).map((one) => html`<li key=${one.name} title=${one.do ?? one.text}><${Status} is=${{ ok: "ok", warning: "warn", failed: "bad" }[one.state]} word=${{ ok: "ok", warning: "warn", failed: "failed" }[one.state]} /><span class=${one.state === "ok" ? "cut" : ""}>${one.name} <span class="i3">${one.text}${one.state !== "ok" && one.do ? html`<span class="i2">${one.text ? ": " : ""}${one.do}</span>` : ""}</span></span></li>`)}</ul>`}</section>`}</div>
    ${recover && html`<${Recover} close=${() => setRecover(false)} />`}</main>`;
}
