// Two runs side by side: path taken, durations, attempts, input, results; across versions also the plans.
import { html, useEffect, useState, Loading, Problem, Segment, Status, useLoad, Wide } from "../ui.js";
import { get, idPath } from "../api.js";
import { footKeys } from "../frame.js";
import { to } from "../router.js";
import { duration, idFromUrl, time, tookOf } from "../format.js";
import { PlanDiff } from "./versions.js";

const CHANGES = { same: "same", left_only: "only left", right_only: "only right", status: "ends differently", slower: "slower", faster: "faster", attempts: "other attempts" };
const words = ({ change, ratio }) => (ratio && change === "slower" ? `${ratio.toFixed(1)}× as long` : ratio && change === "faster" ? `${(1 / ratio).toFixed(1)}× as fast` : CHANGES[change] ?? change);
const TONES = { left_only: "undo", right_only: "undo", status: "bad", slower: "wait", faster: "ok", attempts: "wait" };

const Cell = ({ of }) => (of ? html`<span class="bar"><${Status} is=${of.status} /><span class="i2">${duration(of.duration)}</span>${of.attempts > 1 && html`<span class="i3 xs">${of.attempts} attempts</span>`}</span>` : html`<span class="i3">–</span>`);

function Values({ title, items }) {
  return html`<section class="panel" aria-label=${title}><div class="ph"><h2>${title}</h2><span class="sm i3">${items.length === 0 ? "the same" : `${items.length} ${items.length === 1 ? "difference" : "differences"}`}</span></div>
    ${items.length > 0 && html`<${Wide} label=${`${title}, side by side`}><table><thead><tr><th>Where</th><th>Left</th><th>Right</th></tr></thead><tbody>${items.map((one) => html`<tr key=${one.pointer}><td class="m">${one.pointer || "/"}</td><td class="m wrap-t">${one.kind === "right_only" ? "–" : JSON.stringify(one.left)}</td><td class="m wrap-t">${one.kind === "left_only" ? "–" : JSON.stringify(one.right)}</td></tr>`)}</tbody></table><//>`}</section>`;
}

export default function Compare({ id: coded, other: codedOther }) {
  const id = idFromUrl(coded);
  const other = idFromUrl(codedOther);
  const { value, problem, again } = useLoad(() => get(idPath`runs/${id}/diff/${other}`), [id, other]);
  const [only, setOnly] = useState(true);
  useEffect(() => { document.title = `${id} and ${other} · Rival`; footKeys.value = []; }, [id, other]);
  if (problem) return html`<main id="main" tabindex="-1"><h1 class="vh">Compare</h1><${Problem} problem=${problem} again=${again} /></main>`;
  if (!value) return html`<main id="main" tabindex="-1"><h1 class="vh">Compare</h1><${Loading} /></main>`;
  const steps = value.steps.filter((one) => !only || one.change !== "same");
  const head = (run) => html`<a class="m" href=${to.run(run.id)}>${run.id}</a> <${Status} is=${run.status} /> <span class="i2">${time(run.created_at)}, ${duration(tookOf(run))}</span>`;
  return html`<main id="main" tabindex="-1"><header class="rh"><div class="grow"><h1>Two runs of <span class="m">${value.left.workflow}</span></h1><p class="facts"><span class="bar">left ${head(value.left)}</span><span class="bar">right ${head(value.right)}</span>${!value.same_version && html`<span class="tag waits">versions differ</span>`}</p></div></header>
    <section class="panel" aria-label="Steps"><div class="ph"><h2>Steps</h2><span class="grow"></span><${Segment} label="Which" of=${[[true, "differences"], [false, "all"]]} value=${only} onPick=${setOnly} /></div>
      <${Wide} label="Side by side"><table class="vs-t"><colgroup><col /><col /><col /><col class="w-tk" /></colgroup><thead><tr><th>Step</th><th>Left</th><th>Right</th><th>Difference</th></tr></thead><tbody>${steps.slice(0, 300).map((one) => html`<tr key=${one.path}><td class="m">${one.path}</td><td><${Cell} of=${one.left} /></td><td><${Cell} of=${one.right} /></td><td class=${TONES[one.change] ?? "i3"}>${words(one)}</td></tr>`)}
      ${steps.length === 0 && html`<tr><td colspan="4" class="i3">The steps went the same way, at about the same speed.</td></tr>`}</tbody></table><//>
      ${value.folded.length > 0 && html`<p class="pager sm i3">Of ${value.folded.map((path, at) => html`${at ? ", " : ""}<code>${path}</code>`)} only what was read of both runs is compared: it has too many steps.</p>`}</section>
    <${Values} title="Input" items=${value.input} /><${Values} title="Result" items=${value.result} />${value.plan && html`<${PlanDiff} diff=${value.plan} />`}</main>`;
}
