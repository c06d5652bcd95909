// Who did what through the dashboard and the API.
import { html, useEffect, Loading, Problem, useLoad, Wide } from "../ui.js";
import { get } from "../api.js";
import { footKeys } from "../frame.js";
import { to } from "../router.js";
import { moment, time, words } from "../format.js";

export default function Audit() {
  const { value, problem, again } = useLoad(() => get("audit", { limit: 100 }), []);
  useEffect(() => { document.title = "Audit · Rival"; footKeys.value = []; }, []);
  const about = (text) => (text?.startsWith("run:") ? html`<a class="m" href=${to.run(text.slice(4))}>${text.slice(4)}</a>` : html`<span class="m">${text}</span>`);
  return html`<main id="main" tabindex="-1"><header class="rh"><div class="grow"><h1>Audit</h1></div></header>${problem && html`<${Problem} problem=${problem} again=${again} />`}${!value && !problem && html`<${Loading} />`}
    ${value && html`<section class="panel" aria-label="Audit"><${Wide} label="Entries"><table><colgroup><col class="w-wf" /><col class="w-wf" /><col class="w-wf" /><col class="w-wf" /><col /></colgroup><thead><tr><th>Time</th><th>By</th><th>What</th><th>About</th><th>Detail</th></tr></thead><tbody>${value.items.map((one) => html`<tr key=${one.id}><td class="i2" title=${moment(one.at)}>${time(one.at)}</td><td>${one.by}</td><td>${one.what.replaceAll("_", " ")}</td><td>${about(one.about)}</td><td class="m i2">${words(one.detail) || "–"}</td></tr>`)}
      ${value.items.length === 0 && html`<tr><td colspan="5" class="i3">Nothing yet.</td></tr>`}</tbody></table><//></section>`}</main>`;
}
