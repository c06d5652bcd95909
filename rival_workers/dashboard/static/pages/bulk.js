// A bulk action is an object: its preview says what would happen to each run, its page shows how far it is.
import { html, useEffect, useState, AsCommand, Button, Loading, Problem, Status, useAnswers, useLoad, say, Wide } from "../ui.js";
import { get, idPath, may, post } from "../api.js";
import { footKeys } from "../frame.js";
import { watch } from "../live.js";
import { go, to } from "../router.js";
import { count, idFromUrl, plural, time } from "../format.js";

function List() {
  const { value, problem, again } = useLoad(() => get("bulk"), []);
  useEffect(() => { document.title = "Bulk actions · Rival"; footKeys.value = []; }, []);
  return html`<main id="main" tabindex="-1"><header class="rh"><div class="grow"><h1>Bulk actions</h1><p class="facts"><span>the newest hundred; the <a href="audit">audit</a> keeps who did what to how many</span></p></div></header>${problem && html`<${Problem} problem=${problem} again=${again} />`}
    ${value && html`<section class="panel" aria-label="Bulk actions"><${Wide} label="Actions"><table><thead><tr><th>Action</th><th>Verb</th><th>State</th><th class="num">Runs</th><th class="num">Refused</th><th>By</th><th class="num">Began</th></tr></thead><tbody>${value.items.map((one) => html`<tr key=${one.id}><td><a class="m" href=${to.bulk(one.id)}>${one.id}</a></td><td>${one.verb}${one.dry_run ? ", preview" : ""}</td><td>${one.state}</td><td class="num">${count(one.ended)} of ${count(one.total)}</td><td class="num">${count(one.refused)}</td><td>${one.by}</td><td class="num i2">${time(one.started_at)}</td></tr>`)}
      ${value.items.length === 0 && html`<tr><td colspan="7" class="i3"><p>None yet. Choose runs on the <a href="runs">runs page</a>.</p></td></tr>`}</tbody></table><//></section>`}</main>`;
}

// An interrupted one is continued by the next process that looks.
const isOpen = (bulk) => ["running", "interrupted"].includes(bulk?.state);

function One({ id }) {
  const [bulk, setBulk] = useState(null);
  const [problem, setProblem] = useState(null);
  const take = useAnswers([id]);
  const load = () => take(get(idPath`bulk/${id}`), (found) => { setBulk(found); setProblem(null); }, setProblem);
  useEffect(() => { document.title = "Bulk action · Rival"; footKeys.value = []; load(); }, [id]);
  useEffect(() => watch({ bulk: id }, { again: load, hear(name, data) {
    if (name !== "bulk" || data.id !== id) return;
    setBulk((old) => (old ? { ...old, ...data, outcomes: old.outcomes } : old));
    if (!isOpen(data)) load();
  } }), [id]);
  useEffect(() => { if (!isOpen(bulk)) return undefined; const timer = setInterval(load, 1500); return () => clearInterval(timer); }, [bulk?.state]);
  if (problem) return html`<main id="main" tabindex="-1"><h1>Bulk action</h1><${Problem} problem=${problem} again=${load} /></main>`;
  if (!bulk) return html`<main id="main" tabindex="-1"><h1 class="vh">Bulk action</h1><${Loading} /></main>`;
  const running = isOpen(bulk);
  const good = bulk.ended - bulk.refused;
  const act = () => take(post("bulk", { preview: bulk.id, dry_run: false }), (made) => go(to.bulk(made.id)), setProblem, "act");
  const goOn = () => take(post("bulk", { rest_of: bulk.id, dry_run: true }), (made) => go(to.bulk(made.id)), setProblem, "act");
  const stop = async () => { try { await post(idPath`bulk/${id}/stop`); say("Stopped"); load(); } catch (found) { say(found.detail ?? found.title, "bad"); } };
  const share = bulk.total ? (100 * bulk.ended) / bulk.total : 100;
  return html`<main id="main" tabindex="-1"><header class="rh"><div class="grow"><h1>${bulk.dry_run ? "Preview: " : ""}${bulk.verb} ${plural(bulk.total, "run")}${bulk.more ? " and more" : ""}</h1><p class="facts"><span>${{ running: "in work", done: bulk.confirmed ? "confirmed" : bulk.dry_run ? "nothing has changed yet" : "done", stopped: "stopped", failed: "failed", interrupted: "interrupted" }[bulk.state]}</span><span><b>${count(good)}</b> ${bulk.dry_run ? "possible" : "changed"}</span><span><b class=${bulk.refused ? "wait" : ""}>${count(bulk.refused)}</b> refused</span><span>by ${bulk.by}</span></p></div>
    <div class="bar">${running && html`<${Button} kind="danger" onClick=${stop}>Stop<//>`}${bulk.rest > 0 && html`<${Button} kind="pri" why=${may("verbs") ? null : "Your role may not change runs."} onClick=${goOn}>Preview the rest, ${plural(bulk.rest, "run")}<//>`}${bulk.dry_run && !running && html`<a class="b" href="runs">Leave</a><${Button} kind="acc" why=${bulk.confirmed ? "This preview has been confirmed: look at a new one." : good === 0 ? "No run of these can be changed." : may("verbs") ? null : "Your role may not change runs."} onClick=${act}>${bulk.verb[0].toUpperCase() + bulk.verb.slice(1)} ${plural(good, "run")}<//>`}</div></header>
    ${bulk.error && html`<${Problem} problem=${{ title: bulk.state === "interrupted" ? "It was interrupted" : "It stopped", detail: bulk.error }} />`}
    <div class="multi wide6" role="progressbar" aria-label="Progress" aria-valuenow=${Math.round(share)} aria-valuemin="0" aria-valuemax="100"><i class="running" style=${{ "--p": `${share}%` }}></i></div>
    <section class="panel" aria-label="Runs"><${Wide} label="Outcomes"><table><colgroup><col class="w-st" /><col /><col class="w-wf" /><col class="w-at" /><col /></colgroup><thead><tr><th>Status</th><th>Run</th><th>Workflow</th><th class="num">Runs again</th><th>What</th></tr></thead><tbody>${bulk.outcomes.slice(0, 200).map((one) => html`<tr key=${one.run}><td>${one.status && html`<${Status} is=${one.status} />`}</td><td><a class="m" href=${to.run(one.run)}>${one.run}</a></td><td>${one.workflow}</td><td class="num">${one.runs_again ? plural(one.runs_again, "step") : "–"}</td><td class="i2 wrap-t">${one.why ? html`<span class="wait">${one.why}</span>` : (one.opened ?? []).length ? html`begins at <code>${one.opened.slice(0, 3).join(", ")}</code>` : bulk.dry_run ? "possible" : "done"}</td></tr>`)}</tbody></table><//>
      ${bulk.ended > 200 && html`<div class="pager sm i3">${count(bulk.ended - 200)} more</div>`}</section>
    <div class="panel"><${AsCommand} commands=${bulk.commands} heading="h2" /></div></main>`;
}

export default function Bulk({ id }) {
  return id ? html`<${One} key=${id} id=${idFromUrl(id)} />` : html`<${List} />`;
}
