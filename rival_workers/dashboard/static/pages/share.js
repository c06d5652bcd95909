// A run that was shared: read only, redacted, until the link expires. It needs no login.
import { html, useEffect, Loading, Problem, useLoad } from "../ui.js";
import { get, idPath } from "../api.js";
import { idFromUrl, time } from "../format.js";
import { SharedRun } from "../run/shared.js";

export default function Share({ token }) {
  const { value, problem } = useLoad(() => get(idPath`shares/${idFromUrl(token)}`), [token]);
  useEffect(() => { document.title = value ? `${value.run.run.id}, shared · Rival` : "A shared run · Rival"; }, [value]);
  if (problem) return html`<main id="main" tabindex="-1"><h1>A shared run</h1><${Problem} problem=${problem} /></main>`;
  if (!value) return html`<main id="main" tabindex="-1"><h1 class="vh">A shared run</h1><${Loading} /></main>`;
  return html`<${SharedRun} value=${value} note=${html`<span>this link ends ${time(value.expires_at)}</span>`} />`;
}
