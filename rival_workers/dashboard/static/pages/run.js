// One run: header, why, tabs (graph, timeline, history, logs, family, input and result), time travel, verbs as a mode.
import { html, useEffect, useMemo, useRef, useState, Sign, Button, Menu, Copy, Loading, Problem, look, statusOf, tick, copy, say, useAnswers } from "../ui.js";
import { get, idPath, may, offline, post } from "../api.js";
import { query, setQuery, to } from "../router.js";
import { watch } from "../live.js";
import { useKeys } from "../keys.js";
import { footKeys } from "../frame.js";
import { count, duration, idFromUrl, moment, now, quoted, time, tookOf } from "../format.js";
import { build, flat, interesting, parentOf } from "../run/model.js";
import { VERBS, marks, usePreview } from "../run/verbs.js";
import { applied } from "../run/changes.js";
import { Graph } from "../run/graph.js";
import { Why, useWhy, waitOf } from "../run/why.js";
import Travel from "../run/travel.js";

const TABS = [["graph", "Graph"], ["timeline", "Timeline"], ["history", "History"], ["logs", "Logs"], ["family", "Family"], ["data", "Input, result"], ["compare", "Compare"]];
/** Modules that are loaded when they are first needed; the shell names those of the view that a link leads to. */
const LOADERS = {
  step: () => import("../run/inspector.js").then((loaded) => ({ default: loaded.Inspector })),
  note: () => import("../run/preview.js").then((loaded) => ({ default: loaded.PreviewNote })), panel: () => import("../run/preview.js").then((loaded) => ({ default: loaded.PreviewPanel })),
  timeline: () => import("../run/timeline.js"), history: () => import("../run/history.js"), logs: () => import("../run/logs.js"),
  family: () => import("../run/family.js"), data: () => import("../run/data.js"), compare: () => import("../run/compare.js"),
};
/** Components of the modules that have been loaded: shown again, they are there at once. */
const LOADED = new Map();
const fetchView = (name) => LOADERS[name]().then((loaded) => { LOADED.set(name, loaded.default); return loaded.default; });

/** The run with its steps: fetched, changed at once by what the stream says, and fetched again when it is quiet. */
function useRun(id, at) {
  const [data, setData] = useState(null);
  const [problem, setProblem] = useState(null);
  const [moves, setMoves] = useState(0);
  const timer = useRef(0);
  const last = useRef(0);
  const take = useAnswers([id, at]);
  const asking = useRef(null);
  const mark = useRef(null);
  const load = (unless = null) => {
    last.current = Date.now();
    const asked = [get(idPath`runs/${id}`, { fold: 20, unless }), at && get(idPath`runs/${id}/past`, { id: at })];
    return asking.current = take(Promise.all(asked), ([answer, past]) => {
      if (!answer) return;
      mark.current = answer.mark;
      setData((old) => (old && !at && !old.as_of && old.history_id > answer.history_id ? old : past ? asItWas(answer, past) : answer));
      setProblem(null);
    }, setProblem);
  };
  const soon = () => {
    clearTimeout(timer.current);
    timer.current = setTimeout(load, Math.max(250, 1500 - (Date.now() - last.current)));
  };
  useEffect(() => { mark.current = null; setData((old) => (old?.run?.id === id ? old : null)); load(); return () => clearTimeout(timer.current); }, [id, at]);
  useEffect(() => {
    if (at) return undefined;
    return watch({ run: id }, {
      // What came between the first answer and the stream: seldom anything, so behind that answer, and only if there is.
      again: (why) => (why?.fresh ? asking.current?.then(() => load(mark.current)) : load()),
      hear(name, event) {
        if (name === "steps" && event.run === id) { setData((old) => applied(old, event)); setMoves((old) => old + 1); soon(); }
        else if (name === "run" && event.run.id === id) setData((old) => old && { ...old, run: { ...old.run, ...event.run, input: old.run.input, error: event.run.error ?? null } });
        else if (name === "progress" && event.run === id) setData((old) => old && { ...old, steps: old.steps.map((row) => (event.steps[row.path] ? { ...row, ...event.steps[row.path] } : row)) });
      },
    });
  }, [id, at]);
  return { data, problem, load, moves };
}

const ROW = { attempts: 0, lost: 0, worker: null, parked: null, due_at: null, timeout_at: null, queue_time: null, duration: null, total: null, opened: null, remaining: null, progress: null, heartbeat_at: null, wait: null, child: null, last_error: null, waits_for: null };

/** The run with the rows of an earlier moment. */
function asItWas(data, past) {
  const steps = past.steps.map((row) => ({ ...ROW, created_at: row.started_at, ...row }));
  return { ...data, run: { ...data.run, ...past.run, at: null, paused_at: past.run.paused ? past.as_of.at : null, now: new Date(past.as_of.at).getTime() }, steps, folded: past.folded, attempts: [], as_of: past.as_of };
}

function Header({ data, act, still }) {
  const { run } = data;
  const open = !run.completed_at;
  if (open) void tick.value;
  const status = statusOf(run);
  const waits = run.at?.waits_for ?? waitOf(data.steps);
  const [sign] = look(status, waits);
  const current = data.current_version;
  const old = current && current !== run.version;
  const took = tookOf(run, run.now ?? now());
  return html`<header class="rh"><div class="grow"><div class="bar h1b"><h1><span class=${`st ${look(status)[1]}`}><${Sign} of=${sign} big /><span class="vh">${status}</span></span><span class="m rid">${run.id}</span></h1><${Copy} text=${run.id} label="Copy the run's id" /></div>
    <p class="facts"><span><b class=${{ failed: "bad", completed: "ok", running: "run" }[status] ?? ""}>${status}</b>${run.failed_step ? html` at <b class="m">${run.failed_step}</b>` : run.at?.step && open ? html` at <b class="m">${run.at.step}</b>` : ""}</span>
      <span><a href=${to.workflow(run.workflow)}>${run.workflow}</a> <span class="m">${run.version.slice(0, 6)}</span> ${old && html`<span class="tag waits">current is ${current.slice(0, 6)}</span>`}</span>
      <span title=${moment(run.started_at ?? run.created_at)}>started <b>${time(run.started_at ?? run.created_at)}</b>${run.started_by && ` by ${run.started_by}`}</span>
      <span>${open ? "so far" : "took"} <b>${duration(took)}</b></span>
      ${run.parent && html`<span>child of <a class="m" href=${to.run(run.parent.run, { step: run.parent.step })}>${run.parent.run}</a></span>`}</p></div>
    ${!still && html`<${Actions} data=${data} act=${act} />`}</header>`;
}

function Actions({ data, act }) {
  const { run } = data;
  const open = !run.completed_at;
  const no = !may("verbs") ? "Your role may not change runs." : offline.value ? "The server does not answer." : null;
  const paused = open && run.paused_at;
  const steps = data.steps.filter((row) => !row.role && row.completed_at && !row.path.includes("["));
  const openSteps = data.steps.filter((row) => !row.role && !["branch", "parallel", "for_each", "loop", "workflow"].includes(row.kind) && (open ? !row.completed_at : row.path === run.failed_step));
  const like = to.workflow(run.workflow, { like: run.id });
  const download = (path) => `api/v1/${idPath`runs/${run.id}/`}${path}`;
  return html`<div class="bar acts" role="toolbar" aria-label="Actions">
    ${["failed", "cancelled"].includes(run.status) && html`<${Button} kind="pri" sign="retry" why=${no} onClick=${() => act("retry")}>Retry…<//>`}
    ${paused && html`<${Button} kind="pri" sign="right" why=${no} onClick=${() => act("resume")}>Resume…<//>`}
    <${Menu} sign="undone" label="Rewind" items=${steps.length ? steps.slice(0, 14).map((row) => ({ text: row.path, hint: row.status, why: no, do: () => act("rewind", row.path) })) : [{ text: "No step has ended yet", why: "Nothing to go back to." }]}>Rewind<//>
    ${openSteps.length > 0 && html`<${Menu} sign="skipped" label="Skip" items=${openSteps.slice(0, 14).map((row) => ({ text: row.path, hint: row.status, why: no, do: () => act("skip", row.path) }))}>Skip<//>`}
    ${open && html`<${Button} kind="danger" sign="cancelled" why=${no} onClick=${() => act("cancel")}>Cancel…<//>`}
    <${Menu} label="More" end sign="more" items=${[
      open && !paused && { text: "Pause…", why: no, do: () => act("pause") },
      { text: "Start like this…", href: like },
      { text: "As command", hint: "copies rival show", do: () => copy(`rival show ${quoted(run.id)}`) },
      { text: "Download as a test", do: () => saveTest(run.id) },
      { text: "Download as one HTML file", href: download("export"), download: "" },
      may("shares") && { text: "Share a link for a day", do: () => share(run.id) },
    ]} /></div>`;
}

/** A file that pytest can run, with what the steps have returned. */
async function saveTest(id) {
  try {
    const { filename, text } = await get(idPath`runs/${id}/test`);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/x-python" }));
    link.download = filename;
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (problem) { say(problem.detail ?? problem.title, "bad"); }
}

async function share(id) {
  try {
    const made = await post("shares", { run: id, hours: 24 });
    await copy(new URL(made.url, document.baseURI).href, `Copied a link that ends ${time(made.expires_at)}`);
  } catch (problem) { say(problem.detail ?? problem.title, "bad"); }
}

const NotLoaded = () => html`<${Problem} problem=${{ title: "This view could not be loaded", detail: "The server may have a newer version: load the page again." }} again=${() => location.reload()} />`;

/** Loads the module of a view when it is first opened. */
function View({ name, ...props }) {
  const [module, setModule] = useState(() => LOADED.get(name) ?? null);
  useEffect(() => {
    let gone = false;
    fetchView(name).then((loaded) => !gone && setModule(() => loaded), () => !gone && setModule(() => NotLoaded));
    return () => { gone = true; };
  }, [name]);
  if (!module) return html`<${Loading} />`;
  return html`<${module} ...${props} />`;
}

function Tabs({ tab, data, children }) {
  const amounts = { history: data.counts?.history, logs: data.counts?.logs, family: data.children?.count ? data.children : null };
  const here = new URLSearchParams(query.value);
  const href = (key) => { here.delete("tab"); if (key !== "graph") here.set("tab", key); const text = here.toString(); return to.run(data.run.id) + (text ? `?${text}` : ""); };
  return html`<nav class="tabs" aria-label="Views">${TABS.map(([key, text]) => html`<a key=${key} href=${href(key)} aria-current=${tab === key ? "page" : undefined}>${text} ${amounts[key] && html`<small>${count(amounts[key].count)}${amounts[key].more ? "+" : ""}</small>`}</a>`)}${children}</nav>`;
}

export default function RunPage({ id: coded }) {
  const id = idFromUrl(coded);
  const at = query.value.get("at");
  const tab = TABS.find(([key]) => key === query.value.get("tab"))?.[0] ?? "graph";
  const { data, problem, load, moves } = useRun(id, at);
  const mark = data ? `${data.run.status}:${data.history_id}:${data.run.paused_at}` : "";
  const why = useWhy(id, mark, Boolean(at));
  const [opened, setOpened] = useState(() => new Map());
  const [repeat, setRepeat] = useState({});
  const [extra, setExtra] = useState({});
  const [items, setItems] = useState(null);
  const [stats, setStats] = useState(null);
  const take = useAnswers([id, at]);
  const doing = query.value.get("do");
  // While the run is read.
  useEffect(() => { fetchView(tab !== "graph" ? tab : doing ? "panel" : "step").catch(() => {}); }, []);
  const mode = doing && VERBS[doing] && data && !at ? { verb: doing, step: query.value.get("step") } : null;
  const preview = usePreview({ id }, mode);

  const steps = useMemo(() => {
    if (!data) return [];
    // Items and iterations are fetched as they are now.
    if (at) return data.steps;
    const known = new Set(data.steps.map((row) => row.path));
    return [...data.steps, ...Object.values(extra).flat().filter((row) => !known.has(row.path))];
  }, [data, extra, at]);
  const tree = useMemo(() => (data ? build(data.graph, steps, data.folded, repeat) : []), [data, steps, repeat]);
  const all = useMemo(() => new Map(flat(tree).map((item) => [item.path, item])), [tree]);
  const asked = query.value.get("step");
  const selected = asked ?? (data ? interesting(tree, data.run) : null);

  useEffect(() => { if (data) document.title = `${id} ${statusOf(data.run)} · Rival`; }, [id, data?.run.status]);
  useEffect(() => { document.body.classList.add("app"); return () => document.body.classList.remove("app"); }, []);
  useEffect(() => { footKeys.value = [...(tab === "graph" ? [[["↑", "↓", "←", "→"], "walk the graph"]] : []), [["[", "]"], "a moment back, on"], [["r"], "retry"]]; }, [tab]);
  useEffect(() => { if (data) get(idPath`workflows/${data.run.workflow}/stats`, undefined, { quiet: true }).then(setStats, () => {}); }, [data?.run.workflow]);
  // Rows of an iteration that the server left out.
  useEffect(() => {
    if (!selected || !data) return;
    const parts = [];
    for (let path = selected; path; path = parentOf(path)) { const found = /^(.*)\[(\d+)\]$/s.exec(path); if (found) parts.push(found); }
    if (!parts.length) return;
    setRepeat((old) => parts.reduce((made, [, under, index]) => (made[under] === Number(index) ? made : { ...made, [under]: Number(index) }), old));
    setOpened((old) => parts.reduce((made, [, under]) => (made.get(under) ? made : new Map(made).set(under, true)), old));
    for (const [whole] of parts) fetchRepeat(whole);
  }, [selected, Boolean(data)]);
  const fetchRepeat = (whole) => !at && take(get(idPath`runs/${id}/steps`, { under: whole, limit: 200 }), (answer) => setExtra((old) => ({ ...old, [whole]: answer.items })), undefined, whole);
  const showRepeat = (path, index) => { setRepeat((old) => ({ ...old, [path]: index })); fetchRepeat(`${path}[${index}]`); };

  const pick = (path) => { setItems(null); setQuery({ step: path }); };
  // An iteration of a loop has no row of its own: its first step has.
  const pickRepeat = (path) => { const loop = all.get(parentOf(path)); pick(loop?.type === "loop" ? `${path}/${loop.lanes[0].items[0].name}` : path); };
  const act = (verb, step) => setQuery({ do: verb, step: VERBS[verb].step ? step : asked, tab: null, at: null }, { replace: false });
  const leave = () => setQuery({ do: null });
  const show = (key) => setQuery({ tab: key === "graph" ? null : key }, { replace: false });
  const canRetry = ["failed", "cancelled"].includes(data?.run.status);
  useKeys({
    ...Object.fromEntries(TABS.map(([key, text], index) => [String(index + 1), [() => show(key), text]])),
    r: [() => canRetry && may("verbs") && act("retry"), "preview a retry"],
    l: [() => setQuery({ at: null }), "back to live"],
    Escape: [() => (mode ? leave() : items ? setItems(null) : undefined), "leave the preview"],
  });

  if (problem && !data) return html`<main id="main" tabindex="-1"><h1 class="vh">${id}</h1><${Problem} problem=${problem} again=${() => load()} />${problem.status === 404 && !at && html`<p><a class="b" href="runs">See the runs</a></p>`}${at && html`<p><button type="button" class="b" onClick=${() => setQuery({ at: null })}>Back to now</button></p>`}</main>`;
  if (!data) return html`<main id="main" tabindex="-1"><h1 class="vh">${id}</h1><${Loading} rows=${10} /></main>`;
  const { run } = data;
  const item = all.get(selected) ?? (steps.find((row) => row.path === selected) ? { path: selected, name: selected, type: steps.find((row) => row.path === selected).kind, row: steps.find((row) => row.path === selected), lanes: [], repeats: null } : null);
  const shared = { run, data, at, selected, pick, moves, stats, tree, steps };
  const gone = problem?.status === 404 && !at;
  return html`<main id="main" tabindex="-1"><${Header} data=${data} act=${act} still=${Boolean(at) || Boolean(mode) || gone} />${!at && html`<${Outcome} key=${id} run=${run} />`}
    ${gone ? html`<section class="note cancelled" role="alert"><${Sign} of="alert" /><div><p class="lead">This run has been deleted.</p><p class="facts"><span>What is shown is what the page has read before. Retention deletes runs some time after their end.</span></p></div><a class="b" href="runs">See the runs</a></section>` : ""}
    ${mode ? html`<${View} name="note" mode=${mode} answer=${preview.answer} items=${tree} leave=${leave} />` : at ? html`<${AsOf} data=${data} />` : !gone && html`<${Why} why=${why} run=${run} steps=${data.steps} items=${tree} full=${tab === "graph"} act=${act} tab=${show} />`}
    <${Tabs} tab=${tab} data=${data}><${Travel} run=${run} at=${at} moves=${moves} mark=${data.history_id} folded=${data.folded} /><//>
    ${tab === "graph" ? html`<div class="two"><section class="pane" aria-label="Graph"><${Graph} items=${tree} run=${run} stats=${stats} selected=${mode && VERBS[mode.verb].step ? mode.step : selected} pick=${pick} opened=${opened}
        toggle=${(path, open) => setOpened((old) => new Map(old).set(path, open))} repeat=${showRepeat} showItems=${(under, status) => (at ? say("Items are shown as they are now: go back to now first.") : setItems({ under, status }))}
        preview=${mode && preview.answer?.possible ? marks(mode.verb, mode.step, preview.answer, tree) : null} label=${`Steps of ${run.id}${mode ? ", preview" : ""}`} /></section>
      ${mode ? html`<${View} key="panel" name="panel" run=${run} mode=${mode} preview=${preview} items=${tree} leave=${leave} finished=${() => { leave(); load(); }} />`
        : html`<${View} key="inspector" name="step" run=${run} gone=${gone} item=${item} path=${selected} act=${act} at=${at} showLogs=${(step) => setQuery({ tab: "logs", step })} items=${items} setItems=${setItems} pick=${pickRepeat} live=${moves} />`}</div>`
      : html`<${View} key=${tab} name=${tab} ...${shared} />`}
  </main>`;
}

/** Says to a screen reader that the run has another status than when the page was opened. */
function Outcome({ run }) {
  const status = statusOf(run);
  const [first] = useState(status);
  const [changed, setChanged] = useState(false);
  useEffect(() => { if (status !== first) setChanged(true); }, [status]);
  return html`<p class="vh" role="status">${changed && `${run.id} is ${status}${run.failed_step ? ` at ${run.failed_step}` : ""}`}</p>`;
}

function AsOf({ data }) {
  return html`<section class="note waits" aria-label="Time travel"><${Sign} of="waits" /><div><p class="lead">The run as it was at ${time(data.as_of?.at, true)}.</p><p class="facts"><span>Graph and steps show that moment. Nothing can be changed from here.</span></p></div>
    <button type="button" class="b" onClick=${() => setQuery({ at: null })}>Back to now</button></section>`;
}
