// The difference between two versions of a workflow.
import { html, useEffect, Loading, Problem, useLoad } from "../ui.js";
import { get, idPath } from "../api.js";
import { footKeys } from "../frame.js";
import { to } from "../router.js";
import { idFromUrl, plural } from "../format.js";

const TONES = { "+": "add", "-": "del" };

/** The lines of `rival plan --diff`: a sign, a step, what is different about it. */
export function PlanDiff({ diff }) {
  return html`<section class="panel" aria-label="Plans"><div class="ph"><h2>Plans</h2><span class="sm i3">${diff.same ? "the same" : plural(diff.changes.length, "difference")}</span></div>
    <pre class="code diff" tabindex="0" aria-label="Difference of the plans">${diff.same ? "The steps and their options are the same." : diff.changes.map((line) => html`<span key=${line} class=${TONES[line[0]] ?? ""}>${line}${"\n"}</span>`)}</pre></section>`;
}

export default function Versions({ name: coded, from, to: into }) {
  const name = idFromUrl(coded);
  const { value, problem, again } = useLoad(() => get(idPath`workflows/${name}/diff/${from}/${into}`), [name, from, into]);
  useEffect(() => { document.title = `${name}, versions · Rival`; footKeys.value = []; }, [name]);
  return html`<main id="main" tabindex="-1"><header class="rh"><div class="grow"><h1>Two versions of <span class="m">${name}</span></h1><p class="facts"><span>from <b class="m">${from.slice(0, 8)}</b> to <b class="m">${into.slice(0, 8)}</b></span></p></div><div class="bar"><a class="b" href=${to.workflow(name)}>The workflow</a></div></header>
    ${problem && html`<${Problem} problem=${problem} again=${again} />`}${!value && !problem && html`<${Loading} />`}${value && html`<${PlanDiff} diff=${value} />`}</main>`;
}
