// Limits of steps, circuit breakers, rules of the fleet, idempotency keys and dead letters: what is full, open, set, shared
// or given up, and changing it.
import { html, useEffect, useState, Button, Loading, Menu, Status, useLoad, say, Wide } from "../ui.js";
import { get, idPath, may, post, put } from "../api.js";
import { footKeys } from "../frame.js";
import { to } from "../router.js";
import { count, distance, duration, executorName, moment, now, plural, time } from "../format.js";
import { Ask, Field, parsed } from "../ask.js";
import { Modal } from "../modal.js";

function Panel({ title, note, list, head, children, actions, none = "None." }) {
  return html`<section class="panel" aria-label=${title}><div class="ph"><h2>${title}</h2><span class="sm i3 cut">${note}</span><span class="grow"></span>${actions}</div>${list.problem ? html`<p class="sec0 i3">${list.problem.detail ?? list.problem.title}</p>` : !list.value ? html`<${Loading} rows=${3} />` : list.value.items.length === 0 ? html`<p class="sec0 i3">${none}</p>` : html`<${Wide} label=${title}><table class="lim"><thead><tr>${head.map((one) => html`<th key=${one} class=${{ Actions: "num w-x", Choose: "w-x" }[one] ?? ""}>${one === "Actions" || one === "Choose" ? html`<span class="vh">${one}</span>` : one}</th>`)}</tr></thead><tbody>${children}</tbody></table><//>`}</section>`;
}

/** A limit, and each key of it that is in use. */
function limitRows(one, no, open) {
  const keys = one.keys.length ? one.keys : [{ key: null, maximum: one.maximum, used: 0, waiting: { count: 0 } }];
  return keys.map((its, at) => html`<tr key=${one.name + its.key}><td class="m">${at === 0 ? one.name : ""}</td><td class="m i2">${its.key ?? ""}</td>
    <td><span class="bar"><b>${count(its.used)}</b> of ${count(its.maximum)}${one.per ? ` per ${duration(one.per)}` : " at a time"}<span class="multi pg" role="img" aria-label=${`${its.used} of ${its.maximum} in use`}><i class=${its.used >= its.maximum ? "waits" : "running"} data-none=${its.used ? undefined : ""} style=${{ "--p": `${Math.min(100, (100 * its.used) / Math.max(1, its.maximum))}%` }}></i></span></span></td>
    <td class=${its.waiting.count ? "wait" : "i3"}>${count(its.waiting.count)}${its.waiting.more ? "+" : ""}</td><td class="i2">${one.set_by ?? ""}</td>
    <td class="num">${at === 0 && html`<${Menu} label=${`Actions of ${one.name}`} end sign="more" items=${[{ text: "What waits", do: () => open(["waiting", one]) }, { text: "Change the maximum…", why: no, do: () => open(["limit", one]) }, { text: "As the workflow defines it…", why: no ?? (one.set_by ? null : "It is as the workflow defines it."), do: () => open(["unlimit", one]) }]} />`}</td></tr>`);
}

function Waiting({ one, close }) {
  const { value, problem } = useLoad(() => get(idPath`limits/${one.name}`), [one.name]);
  return html`<${Modal} title=${`What waits for ${one.name}`} close=${close} cls="wide">${problem ? html`<p class="err" role="alert">${problem.detail ?? problem.title}</p>` : !value ? html`<${Loading} rows=${3} />` : value.waiting.length === 0 ? html`<p class="i2">Nothing waits.</p>` : html`<table class="lim"><thead><tr><th>Run</th><th>Step</th><th>Key</th><th>Since</th><th>State</th></tr></thead><tbody>${value.waiting.map((its) => html`<tr key=${its.run + its.step}><td><a class="m" href=${to.run(its.run)} onClick=${close}>${its.run}</a></td><td class="m">${its.step ?? "the run"}</td><td class="m i2">${its.key}</td><td class="i2" title=${moment(its.since)}>${distance(its.since)}</td><td>${its.granted ? "may start" : "waits"}</td></tr>`)}</tbody></table>`}<//>`;
}

function SetLimit({ one, close, done }) {
  const [max, setMax] = useState(String(one.maximum));
  const ask = (dry) => put(idPath`limits/${one.name}`, { max: Number(max), dry_run: dry });
  return html`<${Ask} title=${`Change ${one.name}`} note="It applies at once, in the whole fleet. More: what waits starts. Fewer: what runs ends first." ask=${ask} on=${max} why=${/^\d+$/.test(max) ? null : "Give a whole number."} button="Change" close=${close} done=${() => { say(`${one.name}: at most ${max}`); done(); }}>${() => html`<${Field} id="li-max" label=${one.per ? `Starts in ${duration(one.per)}` : "At a time"} value=${max} set=${setMax} inputmode="numeric" />`}<//>`;
}

const BREAKER = {
  open: ["Open", "Steps with this breaker are not called until it is closed."],
  close: ["Close", "Steps with this breaker are called again."],
  reset: ["Reset", "It is closed, and what it has counted is deleted."],
};

function Breaker({ one, verb, close, done }) {
  const [seconds, setSeconds] = useState("");
  const [name, setName] = useState(one?.name ?? "");
  const [force, setForce] = useState(false);
  const [word, note] = BREAKER[verb];
  const ask = (dry) => post(idPath`breakers/${name}/` + verb, { ...(verb === "open" && seconds ? { seconds: Number(seconds) } : {}), ...(force ? { force } : {}), dry_run: dry });
  return html`<${Ask} title=${`${word} ${one?.name ?? "a circuit breaker"}`} note=${note} ask=${ask} on=${`${name} ${seconds} ${force}`} why=${!name ? "Give the name." : seconds && !(Number(seconds) > 0) ? "Give seconds." : null} button=${word} danger=${verb === "open"} close=${close} done=${() => { say(`${name}: ${{ open: "open", close: "closed", reset: "reset" }[verb]}`); done(); }}>${() => html`${!one && html`<${Field} id="br-name" label="Name" value=${name} set=${setName} />`}${verb === "open" && html`<${Field} id="br-s" label="Seconds until one attempt may probe" hint="optional; without them until it is closed" value=${seconds} set=${setSeconds} inputmode="numeric" />${!one && html`<label class="sw"><input type="checkbox" checked=${force} onChange=${(event) => setForce(event.target.checked)} /> also if no registered workflow has it</label>`}`}`}<//>`;
}

/** `name=charge` and `label.tenant=acme` as the API takes them. */
function matcher(text) {
  const found = {};
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const [, key, value] = /^([\w.]+)=(.+)$/.exec(word) ?? [];
    if (!key) return null;
    if (key.startsWith("label.")) found.labels = { ...found.labels, [key.slice(6)]: value };
    else found[key] = key === "kind" ? value.split(",") : value;
  }
  return found;
}

function NewRule({ close, done }) {
  const [match, setMatch] = useState("");
  const [options, setOptions] = useState('{"timeout": 60}');
  const [reason, setReason] = useState("");
  const [until, setUntil] = useState("");
  const wanted = matcher(match);
  const given = parsed(options);
  const why = !wanted ? "Write what it matches as name=charge or label.tenant=acme." : !given || typeof given.value !== "object" ? "The options are not a JSON object yet." : null;
  const ask = (dry) => post("policies", { match: wanted, options: given.value, ...(reason ? { reason } : {}), ...(until ? { until } : {}), dry_run: dry });
  return html`<${Ask} title="New rule for the fleet" note="It overrides the options of every step that it matches, from the next attempt on, in every process within a second." ask=${ask} on=${JSON.stringify([match, options, reason, until])} why=${why} button="Set" close=${close} done=${(made) => { say(`Rule ${made.rule.id} is set`); done(); }}>${() => html`
    <${Field} id="ru-match" label="Matches" hint="name, regex, kind, path, tag, workflow, label.NAME; empty: every step" value=${match} set=${setMatch} placeholder="workflow=order name=charge" /><${Field} id="ru-options" label="Options as JSON" area="3" value=${options} set=${setOptions} aria-invalid=${given ? undefined : "true"} />
    <${Field} id="ru-until" label="Expires in" hint="optional: 30m, 2h, 7d" value=${until} set=${setUntil} /><${Field} id="ru-why" label="Reason" hint="optional" value=${reason} set=${setReason} />`}<//>`;
}

const KEY_STATES = { running: "running", completed: "completed", free: "pending" };

/** Drops a key: the next step that has it is called. */
function DropKey({ one, close, done }) {
  const ask = (dry) => post("idempotency-keys/drop", { key: one.key, ...(one.workflow ? { workflow: one.workflow } : {}), ...(one.step ? { step: one.step } : {}), dry_run: dry });
  return html`<${Ask} title=${`Drop ${one.key}`} note="Its result is forgotten: the next step with this key is called, and what it does outside happens again. Runs that have the result keep it." ask=${ask} button="Drop" danger=${true} close=${close} done=${(made) => { say(made.dropped ? `${one.key} dropped` : `${one.key} has no result to drop`); done(); }} />`;
}

/** Dead letters: run their steps again, or remove them from the list. */
function Letters({ runs, verb, close, done }) {
  const again = verb === "redrive";
  const ask = (dry) => post(`dead-letters/${verb}`, { runs, dry_run: dry });
  const report = (made) => say(again ? `${plural(made.done.length, "run")} opened again` : "Removed; the runs stay");
  return html`<${Ask} title=${`${again ? "Run" : "Remove"} ${plural(runs.length, "dead letter")}${again ? " again" : ""}`} note=${again ? null : "They leave this list. The runs stay as they are."} ask=${ask} button=${again ? "Run again" : "Remove"} danger=${!again} close=${close} done=${(made) => { report(made); done(); }}>${(shown) => {
    const refused = Object.entries(shown?.refused ?? {});
    return again && shown && html`<p>${plural(shown.done.length, "run")} can be opened again${refused.length ? `, ${refused.length} cannot: ${refused.slice(0, 3).map(([run, why]) => `${run} (${why})`).join(", ")}` : ""}.</p>`;
  }}<//>`;
}

export default function Limits() {
  const limits = useLoad(() => get("limits"), []);
  const breakers = useLoad(() => get("breakers"), []);
  const rules = useLoad(() => get("policies"), []);
  const letters = useLoad(() => get("dead-letters"), []);
  const keys = useLoad(() => get("idempotency-keys"), []);
  const [chosen, setChosen] = useState(() => new Set());
  const [dialog, setDialog] = useState(null);
  const again = () => { for (const one of [limits, breakers, rules, letters, keys]) one.again(); };
  useEffect(() => { document.title = "Limits · Rival"; footKeys.value = []; const timer = setInterval(() => !document.hidden && again(), 5000); return () => clearInterval(timer); }, []);
  const toggle = (run) => setChosen((old) => { const made = new Set(old); if (!made.delete(run)) made.add(run); return made; });
  const no = may("verbs") ? null : "Your role may not change this.";
  const notAdmin = may("schedules") ? null : "This needs the role admin.";
  const close = () => setDialog(null);
  const [kind, one, verb] = dialog ?? [];
  return html`<main id="main" tabindex="-1"><header class="rh"><div class="grow"><h1>Limits, breakers, rules, dead letters, keys</h1></div></header>
    <${Panel} title="Limits" note="how many steps may run at a time, or in a span of time" list=${limits} head=${["Limit", "Key", "In use", "Waiting", "Set by", "Actions"]}>${limits.value?.items.flatMap((its) => limitRows(its, notAdmin, setDialog))}<//>
    <${Panel} title="Circuit breakers" note="steps that are not tried while what they need is down" list=${breakers} none="None has counted a failure." head=${["Breaker", "State", "Failures", "Until", "Changed by", "Actions"]} actions=${html`<${Button} why=${no} onClick=${() => setDialog(["breaker", null, "open"])}>Open one…<//>`}>${breakers.value?.items.map((its) => html`<tr key=${its.name}><td class="m">${its.name}</td><td><${Status} is=${its.state === "closed" ? "ok" : its.state === "open" ? "bad" : "warn"} word=${its.state.replace("_", " ")} /></td><td>${its.failures ?? ""}</td><td title=${moment(its.until)}>${its.state === "open" && its.until && new Date(its.until) <= now() ? "the next attempt probes" : time(its.until) || "–"}</td><td class="i2" title=${its.changed_by ?? ""}>${executorName(its.changed_by)}</td>
      <td class="num"><${Menu} label=${`Actions of ${its.name}`} end sign="more" items=${[its.state !== "open" && { text: "Open…", why: no, do: () => setDialog(["breaker", its, "open"]) }, its.state !== "closed" && { text: "Close…", why: no, do: () => setDialog(["breaker", its, "close"]) }, { text: "Reset…", why: no, do: () => setDialog(["breaker", its, "reset"]) }]} /></td></tr>`)}<//>
    <${Panel} title="Rules of the fleet" note="options that operators have set for all steps that match; the newest counts first" list=${rules} head=${["Rule", "Matches", "Options", "Reason", "By", "Until", "Actions"]} actions=${html`<${Button} why=${notAdmin} onClick=${() => setDialog(["rule"])}>New rule…<//>`}>${rules.value?.items.map((its) => html`<tr key=${its.id}><td class="m">${its.id}</td><td class="m">${its.match}</td><td class="m i2">${Object.entries(its.options).map(([key, value]) => `${key}=${JSON.stringify(value)}`).join(" ")}</td><td class="i2">${its.reason ?? ""}</td><td class="i2">${its.by ?? ""}</td><td class="i2">${its.expires_at ? time(its.expires_at) : "it is removed"}</td>
      <td class="num"><${Button} why=${notAdmin} label=${`Remove rule ${its.id}`} sign="x" kind="no" onClick=${() => setDialog(["unrule", its])} /></td></tr>`)}<//>
    <${Panel} title="Dead letters" note="steps that were given up and set aside for an operator" list=${letters} head=${["Choose", "Run", "Step", "Workflow", "Error", "At"]} actions=${chosen.size > 0 && html`<${Button} kind="pri" sign="retry" why=${no} onClick=${() => setDialog(["letters", null, "redrive"])}>Run ${count(chosen.size)} again…<//><${Button} why=${no} onClick=${() => setDialog(["letters", null, "drop"])}>Remove…<//>`}>
      ${letters.value?.items.map((its) => html`<tr key=${its.run + its.step} aria-selected=${String(chosen.has(its.run))}><td><input type="checkbox" aria-label=${`Choose ${its.run}`} checked=${chosen.has(its.run)} onChange=${() => toggle(its.run)} /></td><td><a class="m" href=${to.run(its.run, { step: its.step })}>${its.run}</a></td><td class="m">${its.step}</td><td>${its.workflow}</td><td class="i2" title=${its.error.message}><span class="bad">${its.error.type}:</span> ${its.error.message}</td><td class="i2" title=${moment(its.at)}>${time(its.at)}</td></tr>`)}<//>
    <${Panel} title="Idempotency keys" note="steps that share one result instead of being called twice; the newest 50" list=${keys} head=${["Key", "State", "Step", "Run", "Waiting", "Until", "Actions"]}>${keys.value?.items.map((its) => html`<tr key=${`${its.workflow} ${its.step} ${its.key}`}><td class="m">${its.key}</td><td><${Status} is=${KEY_STATES[its.status]} word=${its.status} /></td><td class="m">${its.workflow ? `${its.workflow}.${its.step ?? "*"}` : "every step"}</td><td>${its.run && html`<a class="m" href=${to.run(its.run, { step: its.path })}>${its.run}</a>`}</td><td class=${its.waiting ? "wait" : "i3"}>${count(its.waiting)}</td><td class="i2" title=${moment(its.expires_at)}>${its.expires_at ? time(its.expires_at) : "it is dropped"}</td>
      <td class="num"><${Button} why=${no} label=${`Drop ${its.key}`} sign="x" kind="no" onClick=${() => setDialog(["key", its])} /></td></tr>`)}<//>
    ${kind === "key" && html`<${DropKey} one=${one} close=${close} done=${again} />`}
    ${kind === "waiting" && html`<${Waiting} one=${one} close=${close} />`}${kind === "limit" && html`<${SetLimit} one=${one} close=${close} done=${again} />`}
    ${kind === "unlimit" && html`<${Ask} title=${`${one.name} as the workflow defines it`} note="What an operator has set does not apply any more." ask=${(dry) => post(idPath`limits/${one.name}/reset`, { dry_run: dry })} button="Reset" close=${close} done=${(made) => { say(`${one.name}: at most ${made.max}`); again(); }} />`}
    ${kind === "breaker" && html`<${Breaker} one=${one} verb=${verb} close=${close} done=${again} />`}${kind === "rule" && html`<${NewRule} close=${close} done=${again} />`}
    ${kind === "unrule" && html`<${Ask} title=${`Remove rule ${one.id}`} note="The options of the steps apply again, from their next attempt on." ask=${(dry) => post(`policies/${one.id}/remove`, { dry_run: dry })} button="Remove" danger close=${close} done=${() => { say(`Rule ${one.id} is removed`); again(); }} />`}
    ${kind === "letters" && html`<${Letters} runs=${[...chosen]} verb=${verb} close=${close} done=${() => { setChosen(new Set()); again(); }} />`}</main>`;
}
