// Limits of steps, circuit breakers and dead letters, as far as this server has them.
import { html, useEffect, useState, AsCommand, Button, Loading, Problem, Status, useLoad, say } from "../ui.js";
import { get, hasRoute, may, post } from "../api.js";
import { to } from "../router.js";
import { count, duration, moment, plural, time } from "../format.js";
import { Modal } from "../modal.js";

/** Loads a list that a server of an older version does not have. */
const useOptional = (path) => useLoad(async () => ((await hasRoute(`/${path}`)) ? get(path) : { items: [] }), [path]);

function Panel({ title, note, list, head, children, actions }) {
  return html`<section class="panel" aria-label=${title}><div class="ph"><h2>${title}</h2><span class="sm i3">${note}</span><span class="grow"></span>${actions}</div>${list.problem ? html`<p class="sec0 i3">${list.problem.detail ?? list.problem.title}</p>` : !list.value ? html`<${Loading} rows=${3} />` : list.value.items.length === 0 ? html`<p class="sec0 i3">None.</p>` : html`<div class="sx" tabindex="0" role="group" aria-label=${title}><table><thead><tr>${head.map((one) => html`<th key=${one}>${one}</th>`)}</tr></thead><tbody>${children}</tbody></table></div>`}</section>`;
}

/** A limit, and each key of it that is in use. */
function limitRows(one) {
  const keys = one.keys.length ? one.keys : [{ key: null, maximum: one.maximum, used: 0, waiting: { count: 0 } }];
  return keys.map((its, at) => html`<tr key=${one.name + its.key}><td class="m">${at === 0 ? one.name : ""}</td><td class="m i2">${its.key ?? ""}</td>
    <td><span class="bar"><b>${count(its.used)}</b> of ${count(its.maximum)}${one.per ? ` per ${duration(one.per)}` : " at a time"}<span class="multi pg" role="img" aria-label=${`${its.used} of ${its.maximum} in use`}><i class=${its.used >= its.maximum ? "waits" : "running"} style=${{ "--p": `${Math.min(100, (100 * its.used) / Math.max(1, its.maximum))}%` }}></i></span></span></td>
    <td class=${its.waiting.count ? "wait" : "i3"}>${count(its.waiting.count)}${its.waiting.more ? "+" : ""}</td><td class="i2">${one.set_by ?? ""}</td></tr>`);
}

function Redrive({ runs, close, done }) {
  const { value, problem } = useLoad(() => post("dead-letters/redrive", { runs, dry_run: true }), []);
  const act = async () => { try { const made = await post("dead-letters/redrive", { runs, dry_run: false }); say(`${plural(made.done.length, "run")} opened again`); done(); close(); } catch (found) { say(found.detail ?? found.title, "bad"); } };
  const refused = Object.entries(value?.refused ?? {});
  return html`<${Modal} title=${`Run ${plural(runs.length, "dead letter")} again`} close=${close}>${problem && html`<${Problem} problem=${problem} />`}
    ${value && html`<p>${plural(value.done.length, "run")} can be opened again${refused.length ? `, ${refused.length} cannot: ${refused.slice(0, 3).map(([run, why]) => `${run} (${why})`).join(", ")}` : ""}.</p><${AsCommand} commands=${value.commands} />`}
    <div class="acts2"><span class="grow"></span><${Button} onClick=${close}>Leave<//><${Button} kind="acc" sign="retry" why=${value?.done.length ? null : "None of them can be opened again."} onClick=${act}>Run again<//></div><//>`;
}

export default function Limits() {
  const limits = useOptional("limits");
  const breakers = useOptional("breakers");
  const letters = useOptional("dead-letters");
  const [chosen, setChosen] = useState(() => new Set());
  const [dialog, setDialog] = useState(false);
  useEffect(() => { document.title = "Limits · Rival"; }, []);
  const toggle = (run) => setChosen((old) => { const made = new Set(old); if (!made.delete(run)) made.add(run); return made; });
  const drop = async () => { try { await post("dead-letters/drop", { runs: [...chosen] }); say("Removed; the runs stay"); setChosen(new Set()); letters.again(); } catch (found) { say(found.detail ?? found.title, "bad"); } };
  return html`<main id="main" tabindex="-1"><header class="rh"><div class="grow"><h1>Limits, breakers, dead letters</h1></div></header>
    <${Panel} title="Limits" note="how many steps may run at a time, or in a span of time" list=${limits} head=${["Limit", "Key", "In use", "Waiting", "Set by"]}>${limits.value?.items.flatMap(limitRows)}<//>
    <${Panel} title="Circuit breakers" note="steps that are not tried while what they need is down" list=${breakers} head=${["Breaker", "State", "Failures", "Until"]}>${breakers.value?.items.map((one) => html`<tr key=${one.name}><td class="m">${one.name}</td><td><${Status} is=${one.state === "closed" ? "ok" : one.state === "open" ? "bad" : "warn"} word=${one.state} /></td><td>${one.failures ?? ""}</td><td>${time(one.until ?? one.opened_until)}</td></tr>`)}<//>
    <${Panel} title="Dead letters" note="steps that were given up and set aside for an operator" list=${letters} head=${["Choose", "Run", "Step", "Workflow", "Error", "At"]} actions=${chosen.size > 0 && may("verbs") && html`<${Button} kind="pri" sign="retry" onClick=${() => setDialog(true)}>Run ${count(chosen.size)} again…<//><${Button} onClick=${drop}>Remove<//>`}>
      ${letters.value?.items.map((one) => html`<tr key=${one.run + one.step} aria-selected=${String(chosen.has(one.run))}><td><input type="checkbox" aria-label=${`Choose ${one.run}`} checked=${chosen.has(one.run)} onChange=${() => toggle(one.run)} /></td><td><a class="m" href=${to.run(one.run, { step: one.step })}>${one.run}</a></td><td class="m">${one.step}</td><td>${one.workflow}</td><td class="i2" title=${one.error.message}><span class="bad">${one.error.type}:</span> ${one.error.message}</td><td class="i2" title=${moment(one.at)}>${time(one.at)}</td></tr>`)}<//>
    ${dialog && html`<${Redrive} runs=${[...chosen]} close=${() => setDialog(false)} done=${() => { setChosen(new Set()); letters.again(); }} />`}</main>`;
}
