// The run of a downloaded file, whose answer is in the file itself. What stands there for readers without scripts goes.
import { html, render } from "./ui.js";
import { parseJson } from "./exact.js";
import { moment } from "./format.js";
import { SharedRun } from "./run/shared.js";

const value = parseJson(document.getElementById("run").textContent);
const page = document.getElementById("app");
page.replaceChildren();
render(html`<${SharedRun} value=${value} note=${html`<span>as it was ${moment(value.why.at)}</span>`} />`, page);
