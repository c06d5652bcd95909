// The difference between two versions of a workflow.
import { html, useEffect, Loading, Problem, useLoad } from "../ui.js";
import { get, idPath } from "../api.js";
import { to } from "../router.js";
import { idFromUrl } from "../format.js";

export function PlanDiff({ diff }) {
  const [more, less] = [diff.added ?? [], diff.removed ?? []];
  const options = (one) => Object.entries(one.options).map(([name, [old, made]]) => `${name}: ${JSON.stringify(old)} → ${JSON.stringify(made)}`).join(", ");
  return html`<section class="panel" aria-label="Plans"><div class="ph"><h2>Plans</h2><span class="sm i3">${diff.same ? "the same" : `${(diff.changes ?? []).length} differences`}</span></div>
    <pre class="code diff" tabindex="0" aria-label="Difference of the plans">${less.map((path) => html`<span key=${`-${path}`} class="del">- ${path}${"\n"}</span>`)}${more.map((path) => html`<span key=${`+${path}`} class="add">+ ${path}${"\n"}</span>`)}${(diff.moved ?? []).map((one) => html`<span key=${`m${one.path}`}>~ ${one.path} ${one.how ?? "moved"}${"\n"}</span>`)}${(diff.changed ?? []).map((one) => html`<span key=${`c${one.path}`}>~ ${one.path} ${options(one)}${"\n"}</span>`)}${diff.same ? "The steps and their options are the same." : ""}</pre></section>`;
}

export default function Versions({ name: coded, from, to: into }) {
  const name = idFromUrl(coded);
  const { value, problem, again } = useLoad(() => get(idPath`workflows/${name}/diff/${from}/${into}`), [name, from, into]);
  useEffect(() => { document.title = `${name}, versions · Rival`; }, [name]);
  return html`<main id="main" tabindex="-1"><header class="rh"><div class="grow"><h1><span class="m">${name}</span></h1><p class="facts"><span>from <b class="m">${from.slice(0, 8)}</b> to <b class="m">${into.slice(0, 8)}</b></span></p></div><div class="bar"><a class="b" href=${to.workflow(name)}>The workflow</a></div></header>
    ${problem && html`<${Problem} problem=${problem} again=${again} />`}${!value && !problem && html`<${Loading} />`}${value && html`<${PlanDiff} diff=${value} />`}</main>`;
}
