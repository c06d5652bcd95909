// Chooses the run to compare with: the newest of the same workflow, or an id.
import { html, useRef, Loading, Problem, Status, useLoad } from "../ui.js";
import { get } from "../api.js";
import { go, to } from "../router.js";
import { duration, time, tookOf } from "../format.js";

export default function Compare({ run }) {
  const { value, problem, again } = useLoad(() => get("runs", { workflow: run.workflow, limit: 20 }), [run.workflow]);
  const field = useRef(null);
  if (problem && !value) return html`<${Problem} problem=${problem} again=${again} />`;
  if (!value) return html`<${Loading} />`;
  const others = value.items.filter((one) => one.id !== run.id);
  return html`<section class="tlp" aria-label="Compare"><form class="bar tlh" aria-label="Another run" onSubmit=${(event) => { event.preventDefault(); if (field.current.value.trim()) go(to.diff(run.id, field.current.value.trim())); }}><label for="other">Compare with run</label><input id="other" class="in m w200" ref=${field} placeholder="its id" /><button class="b" type="submit">Compare</button></form>
    <div class="panel"><h2 class="ph bar">Newest runs of ${run.workflow}</h2><table class="cmp"><colgroup><col class="w-st" /><col /><col class="w-at" /><col class="w-at" /></colgroup><thead><tr><th>Status</th><th>Run</th><th class="num">Started</th><th class="num">Took</th></tr></thead><tbody>
    ${others.map((one) => html`<tr key=${one.id}><td><${Status} is=${one.status} /></td><td><a class="m" href=${to.diff(run.id, one.id)}>${one.id}</a></td><td class="num i2">${time(one.created_at)}</td><td class="num">${duration(tookOf(one))}</td></tr>`)}
    ${others.length === 0 && html`<tr><td colspan="4" class="i3">There is no other run of this workflow.</td></tr>`}</tbody></table></div></section>`;
}
