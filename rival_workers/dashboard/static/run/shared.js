// A run in one answer: what a shared link shows, and the file as which a run is downloaded. It asks for nothing more.
import { html, useMemo, useState, LOOKS, Sign, Status, WORDS, Wide, look, statusOf } from "../ui.js";
import { between, count, duration, executorName, moment, plural, time, tookOf, words } from "../format.js";
import { Value } from "../json.js";
import { Graph } from "./graph.js";
import { build, flat, interesting, isComposite, nameOf, stateOf } from "./model.js";
import { Traceback } from "./traceback.js";

function Step({ run, path, item, attempts }) {
  const row = item?.row;
  const error = row?.error ?? row?.last_error;
  const state = item && isComposite(item) ? stateOf(item) : row?.status;
  const mine = attempts.filter((one) => one.path === path);
  return html`<aside class="panel side still" aria-label=${`Step ${path}`}><div class="sec0"><div class="bar"><h2 class="m cut">${nameOf(path)}</h2>${state ? html`<${Status} is=${state} waits=${row.waits_for} />` : html`<span class="i3">not reached</span>`}</div>
      <p class="sm i3 cut"><span class="m">${path}</span>${row?.started_at && html` · <span title=${moment(row.started_at)}>${time(row.started_at, true)}</span>`}${row?.duration != null && ` · took ${duration(row.duration)}`}</p></div>
    ${error && html`<div class="sec err0"><p class="m bad">${error.type}: ${error.message}</p></div>`}
    ${mine.length > 0 && html`<div class="sec"><h3>Attempts <span class="i3">${plural(row?.attempts ?? mine.length, "attempt")}</span></h3><table class="att" aria-label="Attempts"><colgroup><col class="w-no" /><col class="w-oc" /><col class="w-du" /><col /></colgroup>
      <thead class="vh"><tr><th>No.</th><th>Outcome</th><th>Took</th><th>Why</th></tr></thead><tbody>${mine.map((one, at) => html`<tr key=${at}><td class="i3">${one.attempt}</td><td><${Status} is=${LOOKS[one.outcome] ? one.outcome : "failed"} word=${{ retried: "tried again" }[one.outcome] ?? WORDS[one.outcome] ?? one.outcome} /></td>
      <td class="num">${duration(between(one.started_at, one.ended_at))}</td><td class="i2" title=${one.error?.message}>${one.error && `${one.error.type}: ${one.error.message}`}</td></tr>`)}</tbody></table></div>`}
    ${path === run.failed_step && run.error?.traceback && html`<${Traceback} text=${run.error.traceback} />`}
    <${Value} title="Input of the run" of=${run.input} none="This workflow takes no input." /><${Value} title="Result of the run" of=${run.result} none=${run.completed_at ? "It has no result." : "The run has not ended."} /></aside>`;
}

function History({ entries }) {
  return html`<section class="panel" aria-label="History"><div class="ph"><h2>History</h2><span class="sm i3">oldest first${entries.length >= 500 ? ", the first 500 entries" : ""}</span></div><${Wide} label="Entries"><table class="shh"><colgroup><col class="w-tm" /><col class="w-sp" /><col class="w-wh" /><col class="w-by" /><col /></colgroup>
    <thead><tr><th>Time</th><th>Step</th><th>What</th><th>By</th><th>Detail</th></tr></thead><tbody>${entries.map((one) => html`<tr key=${one.id}><td class="i3 m" title=${moment(one.at)}>${time(one.at, true)}</td><td class="m">${one.step ?? html`<span class="i3">run</span>`}</td><td>${one.what.replaceAll("_", " ")}</td><td class="i2 m" title=${one.by ?? ""}>${executorName(one.by)}</td><td class="i2 m" title=${words(one.detail)}>${words(one.detail) || "–"}</td></tr>`)}</tbody></table><//></section>`;
}

/** @param {{value: {run: object, why: object, history: object[]}, note: any}} props `note`: until when, or since when, this is shown. */
export function SharedRun({ value, note }) {
  const [selected, setSelected] = useState(null);
  const [opened, setOpened] = useState(() => new Map());
  const data = value.run;
  // The times of an open run stand still at the moment of the answer.
  const run = useMemo(() => ({ ...data.run, now: new Date(value.why.at).getTime() }), [value]);
  const tree = useMemo(() => build(data.graph, data.steps, data.folded), [data]);
  const chosen = selected ?? interesting(tree, run);
  const item = useMemo(() => flat(tree).find((one) => one.path === chosen), [tree, chosen]);
  const status = statusOf(run);
  const [sign, tone] = look(status);
  return html`<main id="main" tabindex="-1"><header class="rh"><div class="grow"><h1><span class=${`st ${tone}`}><${Sign} of=${sign} big /><span class="vh">${status}</span></span><span class="m rid">${run.id}</span></h1>
      <p class="facts"><span><b class=${{ failed: "bad", completed: "ok", running: "run" }[status] ?? ""}>${status}</b>${run.failed_step && html` at <b class="m">${run.failed_step}</b>`}</span><span>${run.workflow} <span class="m">${run.version.slice(0, 6)}</span></span><span>started <b>${moment(run.started_at ?? run.created_at)}</b>${run.started_by && ` by ${run.started_by}`}</span><span>${run.completed_at ? "took" : "so far"} <b>${duration(tookOf(run, run.now))}</b></span><span>${count(data.steps.length)} ${data.steps.length === 1 ? "step" : "steps"}</span>${note}</p></div></header>
    ${value.why && run.status !== "completed" && html`<section class=${`note why ${tone}`} aria-label="Why"><${Sign} of=${sign} /><p class="lead">${value.why.sentence}</p><span></span></section>`}
    <div class="two"><section class="pane" aria-label="Graph"><${Graph} items=${tree} run=${run} stats=${null} selected=${chosen} pick=${setSelected} opened=${opened} toggle=${(path, open) => setOpened((old) => new Map(old).set(path, open))} repeat=${() => {}} showItems=${null} preview=${null} label=${`Steps of ${run.id}`} /></section>
    ${chosen && html`<${Step} run=${run} path=${chosen} item=${item} attempts=${data.attempts} />`}</div>
    <div class="sp16"></div><${History} entries=${value.history} /></main>`;
}
