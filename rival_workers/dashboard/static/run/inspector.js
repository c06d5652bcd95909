// One step: its error, attempts, traceback, input and result, logs, what is usual, options.
import { html, useEffect, useState, Status, Button, Problem, LOOKS, WORDS, tick } from "../ui.js";
import { get, idPath, may, me } from "../api.js";
import { to } from "../router.js";
import { between, count, distance, duration, executorName, moment, now, percent, quoted, time, words } from "../format.js";
import { Value } from "../json.js";
import { Traceback } from "./traceback.js";
import { isComposite, nameOf, spent, stateOf } from "./model.js";

const KINDS = { sleep: "sleep", wait: "waits for an event", wait_event: "waits for an event", flow: "flow", child: "child run", child_result: "result of a child run", external: "external step", handler: "error handler",
  compensation: "compensation", compensating: "compensations", branch: "branch", parallel: "parallel", for_each: "for_each", loop: "loop", workflow: "workflow", item: "item", flow_wait: "waits for an event", value: "value" };

/** Loads the step when it is chosen, and again when its row has changed. */
function useStep(runId, path, row, at) {
  const [state, setState] = useState({ path: null, value: null, problem: null });
  const mark = row ? `${row.status}:${row.attempts}:${row.lost}:${row.completed_at}` : "";
  useEffect(() => {
    if (!path || !row || at) return undefined;
    const abort = new AbortController();
    const timer = setTimeout(() => get(idPath`runs/${runId}/step`, { step: path }, { signal: abort.signal }).then(
      (value) => setState({ path, value, problem: null }),
      (problem) => problem.name !== "AbortError" && setState({ path, value: null, problem })), 60);
    return () => { clearTimeout(timer); abort.abort(); };
  }, [runId, path, mark, at]);
  // Attempts, logs and results are fetched as they are now: of an earlier moment only the row is known.
  return state.path === path && !at ? state : { path, value: null, problem: null };
}

function Attempts({ attempts, step, options }) {
  const lost = attempts.filter((one) => ["lost", "taken_over", "handed_back"].includes(one.outcome)).length;
  const used = `${step.attempts}${options?.max_attempts ? ` of ${options.max_attempts}` : ""} used${lost ? `, ${lost} lost` : ""}`;
  if (!attempts.length) return null;
  return html`<div class="sec"><h3>Attempts <span class="i3">${used}</span></h3><table class="att" aria-label="Attempts"><colgroup><col class="w-no" /><col class="w-oc" /><col class="w-wk" /><col class="w-du" /><col /></colgroup>
    <thead class="vh"><tr><th>No.</th><th>Outcome</th><th>Worker</th><th>Took</th><th>Why</th></tr></thead>
    <tbody>${attempts.map((one, at) => html`<tr key=${at} title=${one.task_id}><td class="i3"><${AttemptNumber} one=${one} /></td>
      <td><${Status} is=${LOOKS[one.outcome] ? one.outcome : "failed"} word=${{ retried: "tried again" }[one.outcome] ?? WORDS[one.outcome] ?? one.outcome} /></td>
      <td class="m i2" title=${one.executor ?? ""}>${one.worker ?? executorName(one.executor)}</td><td class="num">${duration(between(one.started_at, one.ended_at))}</td>
      <td class="i2" title=${one.error?.message}>${one.error ? `${one.error.type}: ${one.error.message}` : lostText(one)}</td></tr>`)}</tbody></table></div>`;
}

/** Of an attempt; where Flower is set, it leads to the task there. */
function AttemptNumber({ one }) {
  if (!me.value?.flower || !one.task_id) return html`${one.attempt}`;
  return html`<a rel="noreferrer" target="_blank" title="in Flower" aria-label=${`Attempt ${one.attempt} in Flower`} href=${`${me.value.flower}/task/${encodeURIComponent(one.task_id)}`}>${one.attempt}</a>`;
}

const linkOf = (template, names) => template.replace(/\{(\w+)\}/g, (all, name) => (name in names ? encodeURIComponent(names[name]) : all));

/** What such a row has as its item is the engine's own. */
const EXTERNAL = new Set(["external"]);
const lostText = (one) => (one.outcome === "handed_back" ? "handed back when its worker left" : ["lost", "taken_over"].includes(one.outcome) ? "its worker was lost; not counted" : "");

function Waits({ step }) {
  void tick.value;
  if (step.completed_at) return null;
  const lines = [];
  if (step.status === "waiting_retry" && step.due_at) lines.push(["Next attempt", `${time(step.due_at)}, ${distance(step.due_at)}`]);
  if (step.wait) lines.push(["Event", html`<a class="m" href=${to.events(step.wait.topic)}>${step.wait.topic}</a>${step.wait.key !== null && html` key <code>${step.wait.key}</code>`}${step.wait.filter && html` with <code>${JSON.stringify(step.wait.filter)}</code>`}`]);
  if (step.child) lines.push(["Child run", html`<a class="m" href=${to.run(step.child)}>${step.child}</a>`]);
  if (step.status === "waiting" && step.due_at) lines.push(["Until", `${time(step.due_at)}, ${distance(step.due_at)}`]);
  if (step.timeout_at && step.timeout_at !== step.due_at) lines.push(["Time limit", `${time(step.timeout_at)}, ${distance(step.timeout_at)}`]);
  if (step.heartbeat_at) lines.push(["Last heartbeat", `${distance(step.heartbeat_at)}`]);
  if (step.parked) lines.push(["Parked", step.parked]);
  if (step.progress !== null && step.progress !== undefined) lines.push(["Progress", html`<code>${typeof step.progress === "object" ? JSON.stringify(step.progress) : String(step.progress)}</code>`]);
  if (!lines.length) return null;
  return html`<div class="sec"><dl class="pairs">${lines.map(([name, text]) => html`<dt>${name}</dt><dd>${text}</dd>`)}</dl></div>`;
}

/** The fields of a log entry in one line; tracebacks have their own place. */
const fieldsOf = ({ fields }) => { const { traceback: _traceback, location: _location, ...more } = fields ?? {}; void [_traceback, _location]; return words(more); };

export function LogLines({ items, steps }) {
  return html`<ol class="logs">${items.map((one) => html`<li key=${one.id}><time title=${moment(one.at)}>${time(one.at, true)}</time><span class=${{ error: "bad", critical: "bad", warning: "wait", warn: "wait" }[one.level] ?? "i3"}>${one.level}</span>
    <span class="lt" title=${one.message}>${steps && html`<code class="i3">${one.step}</code> `}${one.message}${fieldsOf(one) && html` <code class="i3">${fieldsOf(one)}</code>`}</span></li>`)}</ol>`;
}

function Usual({ usual, step }) {
  if (!usual?.n || usual.p50 === null) return null;
  const mine = spent(step, now());
  const bars = usual.recent ?? [];
  const most = Math.max(...bars, mine ?? 0, 0.001);
  return html`<div class="sec"><h3>Usually <span class="i3">${usual.n === 1 ? "of the newest run" : `of the ${count(usual.n)} newest`}</span></h3><div class="bar"><div class="stat"><div><b>${duration(usual.p50)}</b><span>p50</span></div><div><b>${duration(usual.p95)}</b><span>p95</span></div>
    <div><b>${percent(usual.failed ?? 0)}</b><span>fails</span></div>${mine !== null && step.completed_at && html`<div><b>${duration(mine)}</b><span>this time</span></div>`}</div><span class="grow"></span>
    ${bars.length > 1 && html`<svg class="spark" width="150" height="28" viewBox="0 0 150 28" role="img" aria-label="Times of the newest runs"><g fill="currentColor">${bars.slice(0, 29).map((value, at) => {
      const height = Math.max(2, (26 * value) / most);
      return html`<rect key=${at} x=${at * 5} y=${26 - height} width="3" height=${height} rx="1" />`;
    })}</g></svg>`}</div></div>`;
}

/** The options of the step; asked for, where each of them comes from. */
function Options({ run, step, options }) {
  const [from, setFrom] = useState(null);
  const explain = () => get(idPath`runs/${run}/policy`, { step }).then(setFrom, (problem) => setFrom({ options: [], problem }));
  return html`<div class="sec"><h3>Options ${!from && html`<button type="button" class="lk xs" onClick=${explain}>where from</button>`}</h3>${from
    ? html`<dl class="pairs">${from.options.map((one) => html`<dt key=${`t${one.name}`} class="m">${one.name}=${JSON.stringify(one.value)}</dt><dd key=${`d${one.name}`} class="i2">${one.because}</dd>`)}</dl>${from.problem && html`<p class="i3">${from.problem.detail ?? from.problem.title}</p>`}${from.commands && html`<pre class="code" tabindex="0" aria-label="Command">${from.commands.shell}</pre>`}`
    : html`<p class="m sm i2">${Object.entries(options).map(([key, one]) => `${key}=${JSON.stringify(one)}`).join(" ")}</p>`}</div>`;
}

/** @param {{run: object, gone: boolean, item: object|null, path: string, act: (verb: string, step: string) => void, at: number|null}} props */
export function Inspector({ run, gone, item, path, act, at, showLogs, items, setItems, pick, live }) {
  const row = item?.row ?? null;
  const { value, problem } = useStep(run.id, path, row, at);
  const [sheet, setSheet] = useState(false);
  const step = value?.step ?? row;
  const open = step && !step.completed_at;
  const verbs = may("verbs") && !at && row;
  const error = value?.step?.error ?? row?.error;
  const trace = error?.traceback ?? value?.attempts?.findLast?.((one) => one.error?.traceback)?.error.traceback;
  const links = me.value?.links ?? [];
  const [Items, setItemsPage] = useState(null);
  useEffect(() => { if (items && !Items) import("./items.js").then((loaded) => setItemsPage(() => loaded.Items)); }, [Boolean(items)]);
  if (items && Items) return html`<aside class="panel side up" aria-label=${`Items of ${items.under}`}><${Items} run=${run} ...${items} close=${() => setItems(null)} pick=${pick} live=${live} at=${at} /></aside>`;
  if (!path) return html`<aside class="panel side" aria-label="Step"><div class="sec0"><p class="i2">Choose a step.</p></div></aside>`;
  return html`<aside class=${`panel side ${sheet ? "up" : ""}`} id="step" aria-label=${`Step ${path}`} tabindex="-1">
    <button type="button" class="sheet" aria-label=${sheet ? "Make the step small" : "Open the step"} aria-expanded=${String(sheet)} onClick=${() => setSheet(!sheet)}></button>
    <div class="sec0"><div class="bar"><h2 class="m cut">${nameOf(path)}</h2>${step ? html`<${Status} is=${item && isComposite(item) ? stateOf({ ...item, row: step }) : step.status} waits=${step.waits_for} />` : html`<span class="i3">not reached</span>`}<span class="grow"></span>
      ${verbs && step && !isComposite(item) && (run.completed_at ? path === run.failed_step : open) && html`<${Button} onClick=${() => act("set-result", path)}>Set result…<//><${Button} onClick=${() => act("skip", path)}>Skip…<//>`}
      ${verbs && step && step.completed_at && step.status !== "failed" && html`<${Button} sign="undone" onClick=${() => act("rewind", path)}>Rewind here…<//>`}</div>
      <p class="sm i3 cut"><span class="m">${path}</span>${KINDS[item?.type] && ` · ${KINDS[item.type]}`}${step?.started_at && html` · <span title=${moment(step.started_at)}>${time(step.started_at)}</span>`}${step?.queue_time > 0.0005 && ` · queued ${duration(step.queue_time)}`}${step?.worker && ` · on ${step.worker}`}</p>
      ${step?.description && html`<p class="i2">${step.description}</p>`}</div>
    ${problem && !gone && html`<${Problem} problem=${problem} />`}
    ${error && html`<div class="sec err0"><p class="m bad" tabindex=${error.message?.length > 400 ? "0" : undefined}>${error.type}: ${error.message}</p></div>`}
    ${step && html`<${Waits} step=${step} />`}
    ${item?.repeats && html`<div class="sec bar"><span>${count(item.repeats.done)} of ${count(item.repeats.total)} ${item.type === "loop" ? "iterations" : "items"}</span><span class="grow"></span><${Button} onClick=${() => setItems({ under: path, status: null })}>Show them<//></div>`}
    ${value && html`<${Attempts} attempts=${value.attempts} step=${value.step} options=${value.options} />`}
    ${trace && html`<${Traceback} text=${trace} />`}
    ${value?.item && !EXTERNAL.has(value.step.kind) && html`<${Value} title="Item" of=${value.item} download=${payload(run.id, "item", path)} />`}
    ${value?.input && html`<${Value} title="Input" of=${value.input} />`}
    ${value?.result && step.completed_at && (value.result.value !== null || step.status === "completed") && html`<${Value} title="Result" of=${value.result} download=${payload(run.id, "step-result", path)} reveal=${{ run: run.id, of: "step-result", step: path }} />`}
    ${value?.state && html`<${Value} title="State" of=${value.state} />`}
    ${value?.logs?.length > 0 && html`<div class="sec"><h3>Logs <button type="button" class="lk xs" onClick=${() => showLogs(path)}>all of this step</button></h3><${LogLines} items=${value.logs.slice(-6)} /></div>`}
    ${value?.children?.length > 0 && html`<div class="sec"><h3>Child runs</h3><ul>${value.children.map((id) => html`<li key=${id}><a class="m" href=${to.run(id)}>${id}</a></li>`)}</ul></div>`}
    ${value && html`<${Usual} usual=${value.usual} step=${value.step} />`}
    ${value && Object.keys(value.options ?? {}).length > 0 && html`<${Options} key=${path} run=${run.id} step=${path} options=${value.options} />`}
    ${!row && item?.node && html`<div class="sec"><p class="i2 sm">${run.completed_at ? "The run has ended without reaching it." : "The run has not reached it yet."}</p>${Object.keys(item.node.options ?? {}).length > 0 && html`<p class="m sm i2">${Object.entries(item.node.options).map(([key, one]) => `${key}=${JSON.stringify(one)}`).join(" ")}</p>`}</div>`}
    ${links.length > 0 && html`<div class="sec bar wrap">${links.map((one) => html`<a key=${one.name} class="sm" rel="noreferrer" target="_blank" href=${linkOf(one.template, { run_id: run.id, workflow: run.workflow, step: path })}>${one.name}</a>`)}</div>`}
    ${row && html`<div class="sec"><h3>As command</h3><pre class="code" tabindex="0" aria-label="Command">rival show ${quoted(run.id)} --history</pre></div>`}
    </aside>`;
}

const payload = (id, of, step) => `api/v1/${idPath`runs/${id}/payload`}?${new URLSearchParams({ of, step })}`;
