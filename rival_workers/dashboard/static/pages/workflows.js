// The registered workflows.
import { html, useEffect, Loading, Problem, useLoad } from "../ui.js";
import { get, may } from "../api.js";
import { footKeys } from "../frame.js";
import { to } from "../router.js";
import { count, distance, moment } from "../format.js";

const capped = (found) => (found ? `${count(found.count)}${found.more ? "+" : ""}` : "–");

export default function Workflows() {
  const { value, problem, again } = useLoad(() => get("workflows"), []);
  useEffect(() => { document.title = "Workflows · Rival"; footKeys.value = []; }, []);
  // Workers register their workflows when they start.
  useEffect(() => { const timer = setInterval(() => !document.hidden && again(), value?.items.length ? 10_000 : 1500); return () => clearInterval(timer); }, [value?.items.length]);
  return html`<main id="main" tabindex="-1"><header class="rh"><div class="grow"><h1>Workflows</h1><p class="facts">${value && html`<span><b>${value.items.length}</b> registered</span>`}</p></div></header>
    ${problem && html`<${Problem} problem=${problem} again=${again} />`}${!value && !problem && html`<div class="panel"><${Loading} /></div>`}
    ${value?.items.length === 0 && html`<div class="panel empty"><h2>No workflows yet</h2><p class="i2">A worker registers the workflows of its files when it starts.</p><pre class="code">rival dev --workflows examples/order_fulfilment</pre></div>`}
    ${value?.items.length > 0 && html`<div class="panel"><table class="wfs"><colgroup><col class="w-nm" /><col /><col class="w-at" /><col class="w-at" /><col class="w-at" /><col class="w-at" /><col class="w-at" /></colgroup><thead><tr><th>Workflow</th><th>Description</th><th>Version</th><th class="num">Steps</th><th class="num">Open runs</th><th class="num">Failed, 24 h</th><th><span class="vh">Start</span></th></tr></thead><tbody>
    ${value.items.map((one) => html`<tr key=${one.name}><td><a class="m" href=${to.workflow(one.name)}>${one.name}</a></td><td class="i2 wide">${(one.description ?? "").split("\n")[0]}</td><td class="m i3" title=${`registered ${moment(one.registered_at)}, ${distance(one.registered_at)}`}>${one.version.slice(0, 6)}${one.versions > 1 && html` <span class="xs">of ${one.versions}</span>`}</td>
      <td class="num">${one.steps}</td><td class="num"><a class="q" href=${to.runs({ workflow: one.name, status: "pending,running,suspended" })}>${capped(one.open)}</a></td><td class=${`num ${one.failed_24h?.count ? "bad" : "i3"}`}><a class="q" href=${to.runs({ workflow: one.name, status: "failed", since: "24h" })}>${capped(one.failed_24h)}</a></td>
      <td class="num">${may("start") && html`<a class="b" href=${`${to.workflow(one.name)}/start`} aria-label=${`Start ${one.name}`}>Start</a>`}</td></tr>`)}</tbody></table></div>`}</main>`;
}
