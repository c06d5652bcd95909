// Shows one hidden value to an admin, with a reason that is recorded.
import { html, useState, Button, useAnswers } from "./ui.js";
import { idPath, post } from "./api.js";
import { Modal } from "./modal.js";
import { Json } from "./json.js";

/** @param {{run: string, of: string, step?: string, pointers: string[], close: () => void}} props */
export function Reveal({ run, of, step, pointers, close }) {
  const [pointer, setPointer] = useState(pointers[0]);
  const [reason, setReason] = useState("");
  const [shown, setShown] = useState(null);
  const [problem, setProblem] = useState(null);
  const take = useAnswers([pointer]);
  const ask = (event) => {
    event.preventDefault();
    take(post(idPath`runs/${run}/reveal`, { of, ...(step ? { step } : {}), pointer, reason }), (found) => { setShown(found); setProblem(null); }, setProblem);
  };
  return html`<${Modal} title="Show a hidden value" close=${close}><form class="ask" onSubmit=${ask}>
    <div><label for="rv-what">Which</label><select class="in m" id="rv-what" value=${pointer} onChange=${(event) => { setPointer(event.target.value); setShown(null); }}>${pointers.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select></div>
    <div><label for="rv-why">Reason <span class="i3">goes into the audit, with your name</span></label><input class="in" id="rv-why" required value=${reason} onInput=${(event) => setReason(event.target.value)} /></div>
    ${shown && html`<${Json} value=${shown.value} />`}${problem && html`<p class="err" role="alert">${problem.errors?.[0]?.message ?? problem.detail ?? problem.title}</p>`}
    <div class="acts2"><span class="grow"></span><${Button} onClick=${close}>Leave<//><button type="submit" class="b acc">Show</button></div></form><//>`;
}
