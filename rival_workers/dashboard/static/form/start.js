// Starts a run: a form made from the input model, or JSON; checked by the validator that admits runs.
import { html, useEffect, useMemo, useRef, useState, AsCommand, Button, Menu, Segment, Sign, copy, say, useAnswers } from "../ui.js";
import { ApiProblem, get, idPath, may, post, pretty } from "../api.js";
import { go, to } from "../router.js";
import { useKeys } from "../keys.js";
import { short, time } from "../format.js";
import { copyOf, typedJson, whyNot } from "../exact.js";
import { initial, read } from "./schema.js";
import { Field, ObjectFields, idOf } from "./fields.js";

/** What is sent: the input; where parts of another run's input are hidden, the name of that run, and the input if it was changed. */
export function bodyOf(value, like) {
  const input = value === undefined ? {} : value;
  if (!like?.hidden) return { input };
  return JSON.stringify(value) === JSON.stringify(like.value) ? { like: like.run } : { like: like.run, input };
}

const named = (runId) => (runId.trim() ? { run_id: runId.trim() } : {});

/** A browser writes each refusal to its console: what does not fit is not sent. */
async function started(workflow, body) {
  const { ok, errors } = await post(idPath`workflows/${workflow}/validate`, body);
  if (!ok) throw new ApiProblem({ title: "The input does not fit", errors });
  return post("runs", { workflow, ...body });
}

function useChecked(workflow, value, like, runId) {
  const [checked, setChecked] = useState(null);
  const text = JSON.stringify(value ?? null);
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(() => post(idPath`workflows/${workflow}/validate`, { ...bodyOf(value, like), ...named(runId) }, { signal: abort.signal }).then(
      setChecked, (problem) => problem.name !== "AbortError" && setChecked({ ok: false, errors: problem.errors?.length ? problem.errors : [{ pointer: "", message: problem.detail ?? problem.title }] })), 300);
    return () => { clearTimeout(timer); abort.abort(); };
  }, [workflow, text, like, runId]);
  return checked;
}

function JsonTab({ value, set, free }) {
  const [text, setText] = useState(() => (value === undefined ? "" : pretty(value)));
  const [bad, setBad] = useState(null);
  const change = (event) => {
    setText(event.target.value);
    try { set(event.target.value.trim() === "" ? undefined : typedJson(event.target.value)); setBad(null); } catch (error) { setBad(whyNot(error)); }
  };
  return html`<div class="sec0"><label class="h3" for="start-json">Input as JSON${free && html` <span class="i3">the workflow has no input model: anything is accepted</span>`}</label><textarea id="start-json" class="in area m" rows=${free ? 4 : 18} spellcheck="false" value=${text} onInput=${change} aria-invalid=${bad ? "true" : undefined} data-unread=${bad ? "1" : undefined}></textarea>${bad && html`<p class="err" role="alert">${bad}</p>`}</div>`;
}

/** Errors of the server at the field, or at the nearest field around it that is drawn. */
const near = (errors) => (errors ?? []).map((one) => ({ pointer: one.pointer ?? "", message: MISSING.test(one.message) ? "is required" : one.message, missing: MISSING.test(one.message) }));
const MISSING = /is a required property/;

export function StartForm({ workflow, prefill, likeId }) {
  const schema = workflow.input_schema;
  const root = schema ?? {};
  const found = useMemo(() => (schema ? read(schema, root) : null), [schema]);
  const [value, setValue] = useState(() => (prefill !== undefined ? prefill : schema ? initial(schema, root) : {}));
  const [like, setLike] = useState(null);
  const [tab, setTab] = useState(schema ? "form" : "json");
  const [turn, setTurn] = useState(0);
  const [tried, setTried] = useState(false);
  const [touched, setTouched] = useState(false);
  const [problem, setProblem] = useState(null);
  const [recent, setRecent] = useState([]);
  const [runId, setRunId] = useState("");
  const form = useRef(null);
  const checked = useChecked(workflow.name, value, like, runId);
  const errors = near(problem?.errors?.length ? problem.errors : checked?.errors);
  // What is still missing is an error only after an attempt to start.
  const shown = tried ? errors : touched ? errors.filter((one) => !one.missing) : [];
  const fill = (made, from = null) => { setValue(made); setLike(from); setProblem(null); setTurn((old) => old + 1); };
  const fillLike = (id, shown) => fill(copyOf(shown.value), { run: id, value: shown.value, hidden: shown.redacted?.length > 0 || shown.value === null });
  useEffect(() => { get(idPath`workflows/${workflow.name}/inputs`).then((answer) => setRecent(answer.items), () => {}); }, [workflow.name]);
  useEffect(() => { if (likeId) get(idPath`runs/${likeId}`).then((answer) => fillLike(likeId, answer.run.input), setProblem); }, [likeId]);
  const take = useAnswers([]);
  // A button that is pressed twice starts one run.
  const busy = useRef(false);
  const submit = (event) => {
    event?.preventDefault();
    setTried(true);
    if (busy.current) return;
    // The value is still that of before what is typed there.
    const unread = form.current.querySelector("[data-unread]");
    if (unread) { unread.focus(); return; }
    busy.current = true;
    const body = { ...bodyOf(value, like), ...named(runId) };
    take(started(workflow.name, body), (made) => { if (made.status !== "started") say(`${made.run} exists already, with this input: this is that run`); go(to.run(made.run)); },
      (caught) => { busy.current = false; setProblem(caught); if (caught.errors?.length) focusOn(near(caught.errors)[0]); });
  };
  const focusOn = (error) => {
    for (let pointer = error.pointer; ; pointer = pointer.slice(0, pointer.lastIndexOf("/"))) {
      const target = document.getElementById(idOf(pointer)) ?? document.getElementById(`${idOf(pointer)}-set`);
      if (target) { target.scrollIntoView({ block: "center" }); target.focus(); return; }
      if (!pointer) return;
    }
  };
  useKeys({ "Ctrl-enter": [submit, "start the run"] });
  const link = () => copy(new URL(`${to.workflow(workflow.name)}/start?${like?.hidden ? new URLSearchParams({ like: like.run }) : new URLSearchParams({ input: JSON.stringify(value ?? {}) })}`, document.baseURI).href, "Copied a link that fills this form");
  const hidden = like?.hidden;
  const set = (made) => { setProblem(null); setTouched(true); setValue(made); };
  const sources = [{ text: "Empty", do: () => fill(undefined) }, { text: "Defaults", do: () => fill(schema ? initial(schema, root) : {}) },
    ...recent.map((one) => ({ text: short(one.run), hint: `${one.status}, ${time(one.created_at)}`, do: () => fillLike(one.run, one.input) }))];
  const general = errors.filter((one) => one.pointer === "" && found?.kind !== "object");
  return html`<form class="panel side startf" id="start-form" tabindex="-1" data-workflow=${workflow.name} ref=${form} aria-labelledby="sh" novalidate onSubmit=${submit}>
    <div class="ph"><h2 id="sh">Start a run</h2>${schema && html`<${Segment} label="Input as" role="tablist" of=${[["form", "Form"], ["json", "JSON"]]} value=${tab} onPick=${setTab} />`}<span class="grow"></span><${Menu} label="Fill from" end items=${sources}>Fill from<//></div>
    <div class="fbody">${hidden && html`<p class="sec0 sm i2">Like <a class="m" href=${to.run(like.run)}>${like.run}</a>. What is shown as <code>***</code> is copied on the server.</p>`}
      ${tab === "json" ? html`<${JsonTab} key=${`j${turn}`} value=${value} set=${set} free=${!schema} />` : html`<div class="form" key=${`f${turn}`}>
        ${found.kind === "object" ? html`<${ObjectFields} bare schema=${found.schema} root=${root} value=${value} set=${set} pointer="" errors=${shown} />` : html`<${Field} name="input" schema=${schema} root=${root} value=${value} set=${set} required=${true} pointer="" errors=${shown} />`}
        ${found.kind === "object" && shown.filter((one) => one.pointer === "").map((one) => html`<p class="err wide" key=${one.message}><${Sign} of="failed" /><span>${one.message}</span></p>`)}</div>`}
      <div class="form"><label class="fl" for="run-id">run id</label><div><input class="in" id="run-id" autocomplete="off" placeholder="made for you" value=${runId} onInput=${(event) => setRunId(event.target.value)} /></div></div>
      <${AsCommand} commands=${checked?.commands} /></div>
    <div class="acts2 sec"><div class="grow" role="status">${problem && !problem.errors?.length ? html`<p class="err">${problem.detail ?? problem.title}</p>` : checked?.ok ? html`<p class="sm ok bar"><${Sign} of="completed" /> fits</p>`
        : shown.length ? html`<p class="err"><${Sign} of="failed" /><button type="button" class="lk bad" onClick=${() => focusOn(shown[0])}>${shown.length === 1 ? "1 problem" : `${shown.length} problems`}: ${shown[0].pointer.slice(1).replaceAll("/", ", ") || shown[0].message}</button></p>`
        : errors.length ? html`<p class="sm i3">${errors.length === 1 ? "1 field" : `${errors.length} fields`} still to fill</p>` : ""}
        ${general.length > 0 && tab === "json" && html`<p class="err">${general[0].message}</p>`}</div>
      <${Button} onClick=${link}>Copy link<//><button type="submit" class="b acc" aria-disabled=${may("start") ? undefined : "true"} title=${may("start") ? undefined : "Your role may not start runs."}>Start run</button></div></form>`;
}
