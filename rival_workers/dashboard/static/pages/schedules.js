// Schedules: when runs start by the clock; pause, start now, catch up on missed times, change and remove.
import { html, useEffect, useState, AsCommand, Button, Loading, Menu, Problem, Status, Tag, useAnswers, useLoad, say, tick, Wide } from "../ui.js";
import { Ask, Field, parsed } from "../ask.js";
import { get, idPath, may, post, pretty, put, remove } from "../api.js";
import { footKeys } from "../frame.js";
import { to } from "../router.js";
import { bytes, distance, duration, moment, time } from "../format.js";
import { Modal } from "../modal.js";

const ruleOf = (one) => (one.every ? `every ${duration(one.every)}` : one.rule);

function Edit({ one, workflows, close, done }) {
  // An input that is too large to be shown stays as it is, unless another one is written.
  const large = Boolean(one) && one.input?.preview !== null;
  const before = large ? "" : pretty(one?.input?.value ?? {});
  const [made, setMade] = useState({ name: one?.name ?? "", workflow: one?.workflow ?? workflows[0]?.name ?? "", cron: one?.cron ?? (one ? "" : "0 3 * * *"), every: one?.every ?? "", timezone: one?.timezone ?? "UTC", catch_up: one?.catch_up ?? "last", input: before });
  const set = (key) => (value) => setMade((old) => ({ ...old, [key]: value }));
  const same = Boolean(one) && made.input === before;
  const input = same ? {} : parsed(made.input);
  const rule = made.every ? { every: Number(made.every) } : { cron: made.cron };
  const ask = (dry) => put(idPath`schedules/${made.name}`, { workflow: made.workflow, ...rule, timezone: made.timezone, catch_up: made.catch_up, ...(same ? {} : { input: input.value }), dry_run: dry });
  const field = (key, label, more = {}) => html`<${Field} id=${`sc-${key}`} label=${label} value=${made[key]} set=${set(key)} ...${more} />`;
  return html`<${Ask} title=${one ? `Change ${one.name}` : "New schedule"} ask=${ask} on=${JSON.stringify(made)} why=${!made.name ? "Give the name." : input ? null : "The input is not JSON yet."} button="Save" close=${close} done=${() => { say("Saved"); done(); }}>${(shown) => html`
    ${field("name", "Name", { disabled: Boolean(one) })}<div><label for="sc-workflow">Workflow</label><select class="in" id="sc-workflow" value=${made.workflow} onChange=${(event) => set("workflow")(event.target.value)}>${workflows.map((wf) => html`<option key=${wf.name} value=${wf.name}>${wf.name}</option>`)}</select></div>
    ${field("cron", "Cron: minute, hour, day, month, weekday", { placeholder: "0 3 * * *", disabled: Boolean(made.every) })}${field("every", "or every so many seconds", { inputmode: "numeric" })}${field("timezone", "Time zone")}
    <div><label for="sc-catch">Missed times</label><select class="in w200" id="sc-catch" value=${made.catch_up} onChange=${(event) => set("catch_up")(event.target.value)}><option value="none">are left out</option><option value="last">start one run</option><option value="all">start a run each</option></select></div>
    ${field("input", "Input as JSON", { area: "3", "aria-invalid": input ? undefined : "true", placeholder: large ? `too large to be shown (${bytes(one.input.size)}): it stays as it is` : undefined })}
    ${shown?.next?.length > 0 && html`<p class="sm i2">Next: ${shown.next.map(moment).join(", ")}</p>`}`}<//>`;
}

function Backfill({ one, close }) {
  const [span, setSpan] = useState({ since: "", until: "" });
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState(null);
  // The preview of another span must not let this one start.
  const take = useAnswers([span.since, span.until]);
  const ask = (dry) => {
    if (!span.since || !span.until) return setProblem({ detail: "Give both times." });
    const body = { since: new Date(span.since).toISOString(), until: new Date(span.until).toISOString(), dry_run: dry };
    return take(post(idPath`schedules/${one.name}/backfill`, body), (answer) => {
      setFound(answer);
      setProblem(null);
      if (!dry) { say(`${answer.runs.length} runs started`); close(); }
    }, setProblem);
  };
  const field = (key, label) => html`<div><label for=${`bf-${key}`}>${label}</label><input class="in w200" id=${`bf-${key}`} type="datetime-local" value=${span[key]} onInput=${(event) => { setSpan({ ...span, [key]: event.target.value }); setFound(null); }} /></div>`;
  return html`<${Modal} title=${`Backfill ${one.name}`} close=${close}><div class="ask"><p class="i2">Starts a run for each time of the schedule in a span of the past. A time that has its run already starts none.</p>${field("since", "From")}${field("until", "Until")}
    ${found && html`<p>${found.runs.length}${found.more ? "+" : ""} ${found.runs.length === 1 ? "run" : "runs"}: <span class="m i2">${found.runs.slice(0, 5).join(", ")}${found.runs.length > 5 ? ", …" : ""}</span></p><${AsCommand} commands=${found.commands} />`}${problem && html`<p class="err" role="alert">${problem.detail ?? problem.title}</p>`}
    <div class="acts2"><span class="grow"></span><${Button} onClick=${() => ask(true)}>Preview<//><${Button} kind="acc" why=${found ? null : "Look at the preview first."} onClick=${() => ask(false)}>Start them<//></div></div><//>`;
}

const VERBS = {
  fire: ["Start", "now", "Starts a run at once, also while it is paused. Its times stay as they are.", (one, made) => `Started ${made.run}`],
  pause: ["Pause", "", "It starts no runs until it is resumed.", (one) => `${one.name}: paused`],
  resume: ["Resume", "", "It continues with its next time; a backfill starts what it has missed.", (one) => `${one.name}: resumed`],
  remove: ["Remove", "", "Runs that it has started continue. A schedule of a workflow's file comes back with the next worker.", (one) => `${one.name} removed`],
};

/** Start now, pause, resume, remove: what it means, its command, one button. */
function Act({ one, verb, close, done }) {
  const [word, more, note, sentence] = VERBS[verb];
  const ask = (dry) => (verb === "remove" ? remove(idPath`schedules/${one.name}` + (dry ? "?dry_run=true" : "")) : post(idPath`schedules/${one.name}/` + verb, { dry_run: dry }));
  return html`<${Ask} title=${`${word} ${one.name} ${more}`.trim()} note=${note} ask=${ask} button=${`${word} ${more}`.trim()} danger=${verb === "remove"} close=${close} done=${(made) => { say(sentence(one, made)); done(); }} />`;
}

export default function Schedules() {
  const { value, problem, again } = useLoad(() => get("schedules"), []);
  const workflows = useLoad(() => get("workflows"), []);
  const [dialog, setDialog] = useState(null);
  useEffect(() => { document.title = "Schedules · Rival"; footKeys.value = [[["g", "s"], "schedules"]]; const timer = setInterval(() => !document.hidden && again(), 5000); return () => clearInterval(timer); }, []);
  const no = may("schedules") ? null : "Your role may not change schedules.";
  void tick.value;
  return html`<main id="main" tabindex="-1"><header class="rh"><div class="grow"><h1>Schedules</h1><p class="facts">${value && html`<span><b>${value.items.length}</b> in all</span>`}</p></div><div class="bar"><${Button} why=${no} onClick=${() => setDialog(["edit", null])}>New schedule…<//></div></header>
    ${problem && html`<${Problem} problem=${problem} again=${again} />`}${!value && !problem && html`<div class="panel"><${Loading} /></div>`}
    ${value?.items.length === 0 && html`<div class="panel empty"><h2>No schedules</h2><p class="i2">A schedule starts a run of a workflow by the clock.</p><pre class="code">rival schedule add nightly report '0 3 * * *' --timezone Europe/Berlin</pre></div>`}
    ${value?.items.length > 0 && html`<section class="panel" aria-label="Schedules"><${Wide} label="Schedules"><table class="scs"><thead><tr><th>Schedule</th><th>Workflow</th><th>Rule</th><th>Next</th><th>Last</th><th>State</th><th><span class="vh">Actions</span></th></tr></thead><tbody>${value.items.map((one) => html`<tr key=${one.name}><td class="m">${one.name}</td><td><a href=${to.workflow(one.workflow)}>${one.workflow}</a></td><td><span class="m">${ruleOf(one)}</span></td>
      <td title=${(one.next ?? []).map(moment).join("\n")}>${one.paused_at ? html`<span class="i3">–</span>` : html`${time(one.next_at)} <span class="i3">${distance(one.next_at)}</span>`}</td><td>${one.last_run ? html`<a class="m" href=${to.run(one.last_run)}>${time(one.last_at)}</a>` : html`<span class="i3">never</span>`}</td>
      <td>${one.error ? html`<span class="bad" title=${one.error}>${one.error}</span>` : one.paused_at ? html`<${Status} is="paused" />` : html`<${Status} is="ok" />`} ${one.own && html`<${Tag}>from the workflow<//>`}</td>
      <td class="num"><${Menu} label=${`Actions of ${one.name}`} end sign="more" items=${[{ text: "Start now…", why: no, do: () => setDialog(["act", one, "fire"]) }, one.paused_at ? { text: "Resume…", why: no, do: () => setDialog(["act", one, "resume"]) } : { text: "Pause…", why: no, do: () => setDialog(["act", one, "pause"]) }, { text: "Backfill…", why: no, do: () => setDialog(["backfill", one]) }, { text: "Change…", why: no ?? (one.own ? "It belongs to the workflow's file." : null), do: () => setDialog(["edit", one]) }, { text: "Remove…", kind: "bad", why: no, do: () => setDialog(["act", one, "remove"]) }]} /></td></tr>`)}</tbody></table><//></section>`}
    ${dialog?.[0] === "edit" && html`<${Edit} one=${dialog[1]} workflows=${workflows.value?.items ?? []} close=${() => setDialog(null)} done=${again} />`}${dialog?.[0] === "act" && html`<${Act} one=${dialog[1]} verb=${dialog[2]} close=${() => setDialog(null)} done=${again} />`}${dialog?.[0] === "backfill" && html`<${Backfill} one=${dialog[1]} close=${() => setDialog(null)} />`}</main>`;
}
