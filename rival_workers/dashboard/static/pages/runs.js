// The runs page: counts, filter, one page of runs, what to do with the chosen ones. All of its state is in the address.
import { html, Fragment, signal, useEffect, useLayoutEffect, useMemo, useRef, useState, Sign, Status, Button, Menu, Problem, Loading, AsCommand, copy, statusOf, tick, say, useAnswers } from "../ui.js";
import { get, may, post } from "../api.js";
import { go, query, place, to } from "../router.js";
import { watch } from "../live.js";
import { useKeys } from "../keys.js";
import { footKeys } from "../frame.js";
import { count, distance, duration, idInUrl, moment, quoted, roughly, short, time, tookOf } from "../format.js";
import { asOptions, fromQuery, sentence, toApi, toQuery, token, words, written, SUGGESTIONS } from "../filter.js";
import { Modal } from "../modal.js";

const COUNTS = [
  ["open", "open", null, "", { status: "pending,running,suspended" }],
  ["pending", "pending", "pending", "i3", { status: "pending" }],
  ["running", "running", "running", "run", { status: "running" }],
  ["suspended", "suspended", "waits", "wait", { status: "suspended" }],
  ["paused", "paused", "paused", "undo", { paused: "true" }],
  ["failed_24h", "failed, 24 h", "failed", "bad", { status: "failed", since: "24h" }],
  ["all", "all", null, "", {}],
];
const capped = (found) => (found.more ? `${count(found.count)}+` : found.estimate ? roughly(found.count) : count(found.count));
const ALL = "pending,running,suspended,completed,failed,cancelled";
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

function Counts({ shown, asked }) {
  const bare = { ...asked };
  delete bare.workflow;
  return html`<nav class="counts" aria-label="Runs by status">${COUNTS.map(([key, text, sign, tone, filter]) =>
    html`<a key=${key} href=${to.runs({ ...filter, ...(asked.workflow ? { workflow: asked.workflow } : {}) })} aria-current=${same(bare, filter) ? "true" : undefined}>
      <b>${shown?.[key] ? capped(shown[key]) : "–"}</b><span class=${`sm i2 bar ${tone}`}>${sign && html`<${Sign} of=${sign} />`}<span>${text}</span></span></a>`)}</nav>`;
}

/** One field with tokens; a word becomes a token at a space or Enter. */
function Filter({ filter, input }) {
  const [text, setText] = useState(filter.q);
  useLayoutEffect(() => setText(filter.q), [filter.q]);
  const apply = (tokens, q) => go(to.runs(toQuery({ tokens, q })));
  const take = (value) => {
    const found = words(value);
    const tokens = found.map(token).filter(Boolean);
    const rest = found.filter((word) => !token(word)).join(" ");
    apply([...filter.tokens.filter((old) => !tokens.some((one) => one.key === old.key && one.key !== "status")), ...tokens], rest);
    setText(rest);
  };
  const keys = (event) => {
    if (event.key === "Enter") { event.preventDefault(); take(text); }
    else if (event.key === "Backspace" && text === "" && filter.tokens.length) {
      const last = filter.tokens.at(-1);
      apply(filter.tokens.slice(0, -1), "");
      setText(written(last));
      event.preventDefault();
    } else if (event.key === "Escape") event.target.blur();
  };
  const typed = (event) => {
    const value = event.target.value;
    if (/\s$/.test(value) && words(value).some(token) && (value.match(/"/g)?.length ?? 0) % 2 === 0) take(value);
    else setText(value);
  };
  return html`<div class="filter grow"><${Sign} of="search" />
    ${filter.tokens.map((one) => html`<span class="tok" key=${written(one)}><b>${one.key}${one.op}</b>${one.value}<button type="button" aria-label=${`Remove ${one.key} ${one.value}`}
      onClick=${() => { apply(filter.tokens.filter((other) => other !== one), filter.q); input.current.focus(); }}><${Sign} of="x" /></button></span>`)}
    <input ref=${input} aria-label="Filter" value=${text} onInput=${typed} onKeyDown=${keys} list="filter-words" autocomplete="off" spellcheck="false"
      placeholder=${filter.tokens.length ? "" : 'status:failed  workflow:order  since:2h  input.customer.id=7  error:"card declined"'} />
    <datalist id="filter-words">${Object.entries(SUGGESTIONS).flatMap(([key, values]) => (values.length ? values.map((value) => `${key}:${value}`) : [key.endsWith(".") ? key : `${key}:`])).map((word) => html`<option key=${word} value=${word} />`)}</datalist>
    <kbd>/</kbd></div>`;
}

/** The end of a step's path: a row has no room for all of it. */
const lastOf = (path) => path.slice(path.lastIndexOf("/") + 1);

function At({ run }) {
  const { at } = run;
  if (!at) return html`<div class="bar"></div>`;
  const { progress } = at;
  const failed = run.status === "failed";
  // What has progress says nothing else.
  const since = statusOf(run) === "paused" ? `since ${time(run.paused_at)}${at.text && ", "}` : "";
  const text = since + (progress?.total > 0 ? "" : at.text);
  return html`<div class="bar">${at.step && html`<code class="stp" title=${at.step}>${lastOf(at.step)}</code>`}
    ${progress && progress.total > 0 && html`<${Fragment}><span class="nw">${count(progress.done)} of ${count(progress.total)}</span><span class="multi pg" role="progressbar" aria-label=${`Progress of ${run.id}`}
      aria-valuenow=${Math.round((100 * progress.done) / progress.total)} aria-valuemin="0" aria-valuemax="100"><i class="running" style=${{ "--p": `${(100 * progress.done) / progress.total}%` }}></i></span>
      ${progress.failed > 0 && html`<span class="bad nw">${count(progress.failed)} failed</span>`}<//>`}
    <span class="cut i2" title=${text}>${failed && run.error ? html`<span class="bad">${run.error.type}:</span> ${run.error.message}` : text}${!failed && at.until && run.status === "suspended" ? `${at.text === "delay" ? "" : ","} until ${time(at.until)}` : ""}</span></div>`;
}

/** Took, against the usual: the tick is the median, a full bar is twice that. No bar where waiting is the point. */
function Took({ run }) {
  const open = !run.completed_at;
  if (open) void tick.value;
  const seconds = tookOf(run);
  const ratio = run.usual && run.status !== "suspended" && !run.paused_at && run.status !== "pending" && run.status !== "cancelled" ? seconds / run.usual : null;
  const tone = ratio === null ? "" : ratio >= 2 ? "waits" : run.status === "running" ? "running" : "";
  return html`<span class="vs" title=${ratio === null ? undefined : `${ratio.toFixed(1)} times the usual ${duration(run.usual)}`}><span class="t">${duration(seconds)}</span>
    ${ratio !== null && html`<${Fragment}><span class=${`vsb ${tone}`} aria-hidden="true"><i style=${{ "--p": `${Math.min(100, 50 * ratio)}%` }}></i></span>
    <span class=${`x ${ratio >= 2 ? "wait" : ""}`}>${ratio >= 99 ? "99+" : ratio < 0.05 ? "<0.1" : ratio.toFixed(1)}×</span><//>`}</span>`;
}

function Row({ run, chosen, current, choose }) {
  return html`<tr role="row" aria-selected=${String(chosen)} class=${current ? "cur" : ""} data-run=${run.id}>
    <td role="gridcell" class="c-x"><input type="checkbox" aria-label=${`Choose ${run.id}`} checked=${chosen} onClick=${choose} /></td>
    <td role="gridcell" class="c-st"><${Status} is=${statusOf(run)} waits=${run.at?.waits_for} /></td>
    <td role="rowheader" class="c-id"><a class="q m" href=${to.run(run.id)} title=${run.id}>${short(run.id, 34)}</a> <small class="only-s">${run.workflow}</small></td>
    <td role="gridcell" class="c-wf">${run.workflow} <span class="i3 m xs ver">${run.version.slice(0, 4)}</span></td>
    <td role="gridcell" class="c-at"><${At} run=${run} /></td>
    <td role="gridcell" class="c-s num i2" title=${moment(run.created_at)}>${time(run.created_at)}</td>
    <td role="gridcell" class="c-t"><${Took} run=${run} /></td>
    <td role="gridcell" class="c-in"><code class="i3" title=${run.input ?? ""}>${(run.input ?? "").replaceAll('"', "")}</code></td></tr>`;
}

function Bulk({ ids, total, filter, clear, all, setAll }) {
  const [verb, setVerb] = useState(null);
  if (!ids.size) return null;
  const act = (name, needs = {}) => html`<${Button} key=${name} kind=${needs.kind ?? ""} sign=${needs.sign} onClick=${() => setVerb([name, needs])} why=${may("verbs") ? null : "Your role may not change runs."}>${needs.text}<//>`;
  return html`<div class="bulk" role="toolbar" aria-label="What to do with the chosen runs">
    <span class="nw"><b>${all ? "All that match" : `${count(ids.size)} chosen`}</b>${" "}
      ${!all && total && html`<button type="button" class="lk sm" onClick=${() => setAll(true)}>or all that match</button>`}</span><span class="sep w-s"></span>
    ${act("retry", { text: "Retry…", sign: "retry", kind: "pri" })}${act("rewind", { text: "Rewind…", sign: "undone", step: true })}
    ${act("pause", { text: "Pause…", sign: "paused" })}${act("resume", { text: "Resume…", sign: "right" })}${act("cancel", { text: "Cancel…", sign: "cancelled", kind: "danger" })}
    <${Button} kind="no" sign="x" label="Choose none" onClick=${clear} />
    ${verb && html`<${BulkDialog} verb=${verb[0]} needs=${verb[1]} what=${all ? { filter: toApi(filter.tokens) } : { runs: [...ids] }} options=${asOptions(filter.tokens)} size=${ids.size} all=${all} close=${() => setVerb(null)} />`}
  </div>`;
}

/** Asks for what the verb needs, then makes a preview: the bulk action's own page shows it. */
function BulkDialog({ verb, needs, what, options, size, all, close }) {
  const [problem, setProblem] = useState(null);
  const [step, setStep] = useState("");
  const take = useAnswers([]);
  const begin = (event) => {
    event.preventDefault();
    take(post("bulk", { verb, ...what, ...(needs.step ? { step } : {}), dry_run: true }), (made) => go(to.bulk(made.id)), setProblem);
  };
  const shell = all ? `rival ${verb} ${needs.step ? `--step ${step || "STEP"} ` : ""}${options} --dry-run` : [...what.runs.slice(0, 3).map((id) => `rival ${verb} ${quoted(id)}${needs.step ? ` ${step ? quoted(step) : "STEP"}` : ""}`), ...(size > 3 ? ["…"] : [])].join("\n");
  return html`<${Modal} title=${`${needs.text.replace("…", "")} ${all ? "all runs that match" : `${count(size)} ${size === 1 ? "run" : "runs"}`}`} close=${close}>
    <form onSubmit=${begin} class="ask">
      ${needs.step && html`<div><label for="bulk-step">To which step</label><input class="in m" id="bulk-step" value=${step} onInput=${(event) => setStep(event.target.value)} required placeholder="charge" /></div>`}
      <p class="i2">Nothing changes yet: the next page shows what would happen to each run.</p>
      <${AsCommand} commands=${{ shell }} />
      ${problem && html`<p class="err" role="alert">${problem.detail ?? problem.title}</p>`}
      <div class="acts2"><span class="grow"></span><${Button} onClick=${close}>Leave<//><button type="submit" class="b acc">Preview</button></div>
    </form><//>`;
}

function Empty({ filter, first }) {
  if (first) return html`<div class="empty"><h2>No runs yet</h2><p class="i2">A run appears here as soon as it is started. From the terminal:</p>
    <pre class="code">rival dev --workflows examples/order_fulfilment
rival run order_fulfilment '{"customer": "ann"}'
rival ls</pre><p>Or <a href="workflows">start one from its form</a>.</p></div>`;
  const wider = filter.tokens.find((one) => one.key === "since");
  const widen = wider && to.runs(toQuery({ tokens: filter.tokens.map((one) => (one === wider ? { ...one, value: "7d" } : one)), q: filter.q }));
  return html`<div class="empty"><h2>No runs match</h2><p class="i2">${sentence(filter.tokens, filter.q)}</p>
    <p class="bar mid">${widen && wider.value !== "7d" && html`<a class="b" href=${widen}>Widen to 7 d</a>`}<a class="b" href="runs">Clear the filter</a></p></div>`;
}

const counts = signal(null);
/** The row that keys act on, and where it was last. */
const NO_ROW = { id: null, at: -1 };
/** Columns that can be hidden, in this browser: the class of their cells, and their names. */
const COLUMNS = [["wf", "Workflow"], ["at", "At / waits for"], ["s", "Started"], ["t", "Took"], ["in", "Input"]];
const HIDDEN = "rival-hidden";
const VIEWS = "rival-views";
const views = () => JSON.parse(localStorage.getItem(VIEWS) ?? "[]");

const NOTHING = { rows: null, next: null, searched: null, problem: null };

/** One page of runs; rows change in place, and newer runs are only counted. */
function useRuns(asked, after) {
  const [state, setState] = useState(NOTHING);
  const [newer, setNewer] = useState(0);
  const rows = useRef(null);
  const key = JSON.stringify(asked) + after;
  const take = useAnswers([key]);
  // What the stream has said while an answer was on its way: the answer may be older.
  const heard = useRef({ rows: new Map(), newest: null });
  const asking = useRef(null);
  const seen = (newest) => {
    const first = rows.current[0]?.id;
    const at = first === undefined ? newest.length : newest.indexOf(first);
    if (at > 0 && rows.current.length === 0) load();
    else setNewer(at < 0 ? newest.length : at);
  };
  const read = (more) => {
    heard.current = { rows: new Map(), newest: null };
    return asking.current = take(get("runs", { ...asked, after, limit: 50, ...more }), (answer) => {
      rows.current = answer.items.map((run) => ({ ...run, ...heard.current.rows.get(run.id) }));
      setNewer(answer.newer?.count ?? 0);
      if (heard.current.newest) seen(heard.current.newest);
      setState({ rows: rows.current, next: answer.next, searched: answer.searched_to, open: answer.open, problem: null });
    // Rows that another filter has found are not shown under one that has failed.
    }, (problem) => setState((old) => (rows.current ? { ...old, problem } : { ...NOTHING, problem })));
  };
  const load = () => read();
  // Events were missed: the same rows as they are now. Newer ones wait until the reader lets them in.
  const again = (why) => (why?.fresh && !rows.current ? asking.current?.then(() => again()) : read(after || asked.q || !rows.current?.length ? {} : { first: rows.current[0].id }));
  useEffect(() => { rows.current = null; load(); }, [key]);
  const ids = (state.rows ?? []).map((run) => idInUrl(run.id)).join(",");
  useEffect(() => {
    const filter = new URLSearchParams(Object.keys(asked).length ? asked : { status: ALL }).toString();
    const stop = watch({ counts: 1, ...(ids ? { rows: ids } : {}), ...(after || asked.q ? {} : { list: filter }) }, {
      again,
      hear(name, data) {
        if (name === "counts") counts.value = data;
        else if (name === "run") { heard.current.rows.set(data.run.id, data.run); setState((old) => ({ ...old, rows: old.rows?.map((run) => (run.id === data.run.id ? { ...run, ...data.run } : run)) ?? null })); }
        else if (name === "list" && data.list === filter) { heard.current.newest = data.newest; if (rows.current) seen(data.newest); }
      },
    });
    return stop;
  }, [key, ids]);
  return { ...state, newer, load };
}

export default function Runs() {
  const filter = fromQuery(query.value);
  const asked = toApi(filter.tokens, filter.q);
  const after = query.value.get("after");
  const { rows, next, searched, open, problem, newer, load } = useRuns(asked, after);
  const [chosen, setChosen] = useState(() => new Set());
  const [all, setAll] = useState(false);
  const [current, setCurrent] = useState(NO_ROW);
  const input = useRef(null);
  const table = useRef(null);
  const [hidden, setHidden] = useState(() => (localStorage.getItem(HIDDEN) ?? "").split(" "));
  const plain = toQuery({ tokens: filter.tokens, q: "" });

  useEffect(() => { document.title = "Runs · Rival"; get("runs/counts").then((found) => (counts.value = found), () => {}); }, []);
  useLayoutEffect(() => { setCurrent(NO_ROW); setChosen(new Set()); setAll(false); }, [place.value.query]);
  useEffect(() => { if (open) go(to.run(open.run, { step: open.step }), { replace: true }); }, [open]);
  useMemo(() => (footKeys.value = [[["j", "k"], "rows"], [["x"], "choose"], [["Enter"], "open"]]), []);

  const toggle = (id) => { setAll(false); setChosen((old) => { const made = new Set(old); if (!made.delete(id)) made.add(id); return made; }); };
  const here = rows?.findIndex((run) => run.id === current.id) ?? -1;
  const stand = (id) => { if (id !== current.id) setCurrent({ id, at: rows.findIndex((run) => run.id === id) }); };
  const move = (by) => {
    if (!rows?.length) return;
    // The row may have gone: its place has the one after it.
    const from = here >= 0 ? here : by > 0 ? current.at - 1 : current.at;
    const at = Math.max(0, Math.min(rows.length - 1, from + by));
    stand(rows[at].id);
    table.current?.querySelectorAll("tbody tr")[at]?.querySelector("a")?.focus();
  };
  // Rows that change places lose the focus.
  const held = table.current?.contains(document.activeElement);
  useLayoutEffect(() => { if (held && document.activeElement === document.body) table.current?.querySelector("tr.cur a")?.focus(); }, [rows]);
  useKeys({
    "/": [() => input.current?.focus(), "filter"],
    j: [() => move(1), "next row"], k: [() => move(-1), "previous row"],
    x: [() => rows?.[here] && toggle(current.id), "choose the row"],
    Enter: [() => rows?.[here] && go(to.run(current.id)), "open the run"],
    n: [() => load(), "let newer runs in"],
    Escape: [() => { setChosen(new Set()); setAll(false); }, "choose none"],
  });

  // As in any grid: up and down in the same column, left and right to the choice of the row and its link.
  const arrow = (event) => {
    const row = event.target.closest("tbody tr");
    const side = { ArrowLeft: "input", ArrowRight: "a" }[event.key] ?? (event.target.matches("input") ? "input" : "a");
    const next = { ArrowDown: row?.nextElementSibling, ArrowUp: row?.previousElementSibling, ArrowLeft: row, ArrowRight: row }[event.key];
    if (!next) return;
    event.preventDefault();
    next.querySelector(side).focus();
  };

  const everything = filter.tokens.length === 0 && !filter.q;
  const exported = (format) => `api/v1/runs/export?${new URLSearchParams({ ...asked, format })}`;
  const turn = (key) => { const made = hidden.includes(key) ? hidden.filter((one) => one !== key) : [...hidden, key]; localStorage.setItem(HIDDEN, made.join(" ")); setHidden(made); };
  const saved = views();
  const save = () => { localStorage.setItem(VIEWS, JSON.stringify([...saved, { text: sentence(filter.tokens, filter.q) || "all", query: place.value.query }])); say("The view is saved in this browser"); };
  return html`<main id="main" tabindex="-1"><h1 class="vh">Runs</h1>
    <${Counts} shown=${counts.value} asked=${plain} />
    <form class="bar fbar" role="search" aria-label="Filter runs" onSubmit=${(event) => event.preventDefault()}>
      <${Filter} filter=${filter} input=${input} />
      <${Menu} label="Views" items=${[...saved.map((view) => ({ text: view.text, href: `runs?${view.query}` })), { text: "Save this view", do: save, why: everything ? "There is no filter yet." : null },
        saved.length > 0 && { text: "Delete all views", do: () => { localStorage.removeItem(VIEWS); say("Deleted"); } }]}>Views<//>
      <${Menu} label="Columns" end items=${COLUMNS.map(([key, text]) => ({ text, hint: hidden.includes(key) ? "hidden" : "shown", do: () => turn(key) }))}>Columns<//>
      <${Menu} label="Export" end items=${[{ text: "As CSV", href: exported("csv"), download: "" }, { text: "As JSON lines", href: exported("jsonl"), download: "" }, { text: "As command", hint: `rival ls ${asOptions(filter.tokens)}`, do: () => copy(`rival ls ${asOptions(filter.tokens)} --json`.replace("  ", " "), "Copied the command") }]}>Export<//>
    </form>
    ${problem && html`<${Problem} problem=${problem} again=${load} />`}
    ${!rows && !problem && html`<div class="panel"><${Loading} rows=${12} /></div>`}
    ${rows && html`<section class="panel list" aria-label="Runs, newest first" data-hidden=${hidden.join(" ")}>
      <div role="status">${newer > 0 && html`<button class="newer" type="button" onClick=${load}><${Sign} of="retry" /> ${newer >= 50 ? "50+" : count(newer)} newer ${newer === 1 ? "run" : "runs"}</button>`}</div>
      ${rows.length === 0 ? html`<${Empty} filter=${filter} first=${everything && !after} />` : html`
      <table role="grid" aria-rowcount="-1" aria-multiselectable="true" aria-label="Runs" ref=${table} onKeyDown=${arrow}>
        <colgroup><col class="w-x" /><col class="w-st" /><col class="w-id" /><col class="w-wf c-wf" /><col class="c-at" /><col class="w-at c-s" /><col class="w-tk c-t" /><col class="w-in w-hide c-in" /></colgroup>
        <thead role="rowgroup"><tr role="row"><th role="columnheader"><input type="checkbox" aria-label="Choose all on this page" checked=${chosen.size > 0 && rows.every((run) => chosen.has(run.id))}
          onClick=${(event) => setChosen(event.target.checked ? new Set(rows.map((run) => run.id)) : new Set())} /></th>
          <th role="columnheader">Status</th><th role="columnheader">Run</th><th role="columnheader" class="c-wf">Workflow</th><th role="columnheader" class="c-at">At / waits for</th>
          <th role="columnheader" class="num c-s" aria-sort="descending">Started</th><th role="columnheader" class="num c-t">Took, against the usual</th><th role="columnheader" class="c-in">Input</th></tr></thead>
        <tbody role="rowgroup" onFocusIn=${(event) => stand(event.target.closest("tr").dataset.run)}>${rows.map((run) => html`<${Row} key=${run.id} run=${run} chosen=${chosen.has(run.id)} current=${run.id === current.id} choose=${() => { toggle(run.id); stand(run.id); }} />`)}</tbody></table>`}
      ${(rows.length > 0 || searched || after) && html`<div class="pager bar sm i3">${after && html`<a class="b" href=${to.runs(toQuery(filter))}>Newest</a>`}
        <span>${searched ? `searched back to ${time(searched)}, ${distance(searched)}` : "50 a page, newest first"}</span><span class="grow"></span>
        ${next && html`<a class="b" href=${to.runs({ ...toQuery(filter), after: next })}>${searched ? "Go on" : "Older"} <${Sign} of="right" /></a>`}</div>`}</section>`}
    <p class="vh" role="status">${chosen.size > 0 && (all ? "All that match are chosen" : `${count(chosen.size)} chosen`)}</p>
    <${Bulk} ids=${chosen} total=${Boolean(next) || chosen.size === rows?.length} filter=${filter} all=${all} setAll=${setAll} clear=${() => { setChosen(new Set()); setAll(false); }} />
  </main>`;
}
