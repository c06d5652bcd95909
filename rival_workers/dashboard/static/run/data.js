// What went into the run and what came out of it.
import { html, Status } from "../ui.js";
import { idPath } from "../api.js";
import { Value } from "../json.js";
import { Traceback } from "./traceback.js";

export default function Data({ run }) {
  const raw = (of) => `api/v1/${idPath`runs/${run.id}/payload`}?of=${of}`;
  return html`<section class="tlp cols" aria-label="Input and result"><h2 class="vh">Input and result</h2><div class="panel"><${Value} title="Input" of=${run.input} download=${raw("input")} reveal=${{ run: run.id, of: "input" }} none="This workflow takes no input." /></div>
    <div class="panel">${run.error ? html`<div class="sec"><h3>Error</h3><p class="m bad">${run.error.type}: ${run.error.message}</p></div>${run.error.traceback && html`<${Traceback} text=${run.error.traceback} />`}` : ""}
      ${run.completed_at ? html`<${Value} title="Result" of=${run.result} download=${raw("result")} reveal=${{ run: run.id, of: "result" }} none="It has no result." />` : html`<div class="sec"><h3>Result</h3><p class="i3"><${Status} is=${run.status} /> It has not ended.</p></div>`}</div></section>`;
}
