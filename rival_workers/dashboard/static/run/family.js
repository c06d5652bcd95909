// The tree of runs that this run belongs to.
import { html, Loading, Problem, Status, useLoad } from "../ui.js";
import { get, idPath } from "../api.js";
import { to } from "../router.js";
import { duration, time, tookOf } from "../format.js";

function Branch({ node, level }) {
  return html`<li><div class=${`fam ${node.is_this ? "this" : ""}`} style=${{ "--l": level }}><${Status} is=${node.status} /><a class="m" href=${to.run(node.id)} aria-current=${node.is_this ? "true" : undefined}>${node.id}</a><span>${node.workflow}</span>
    ${node.step && html`<span class="i3">by <code>${node.step}</code></span>`}<span class="grow"></span><span class="i3">${time(node.created_at)}</span><span class="num w80">${duration(tookOf(node))}</span></div>
    ${node.children.length > 0 && html`<ul>${node.children.map((child) => html`<${Branch} key=${child.id} node=${child} level=${level + 1} />`)}</ul>`}
    ${node.more > 0 && html`<p class="fam i3" style=${{ "--l": level + 1 }}><a href=${to.runs({ parent: node.id })}>${node.more} more child runs</a></p>`}</li>`;
}

export default function Family({ run, moves }) {
  const { value, problem, again } = useLoad(() => get(idPath`runs/${run.id}/tree`, { depth: 4, width: 50 }), [run.id, Math.floor(moves / 10), run.status]);
  if (problem) return html`<${Problem} problem=${problem} again=${again} />`;
  if (!value) return html`<${Loading} />`;
  const alone = value.root.children.length === 0 && value.root.is_this;
  return html`<section class="tlp" aria-label="Family"><p class="i2 tlh">${alone ? "This run has no parent and has started no child runs." : "The runs that belong together, each with the step that started it."}</p><div class="panel"><ul class="famt"><${Branch} node=${value.root} level=${0} /></ul></div></section>`;
}
