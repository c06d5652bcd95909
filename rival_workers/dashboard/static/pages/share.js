// A run that was shared: read only, redacted, until the link expires. It needs no login.
import { html, useEffect, useMemo, useState, Loading, Problem, Sign, look, statusOf, useLoad } from "../ui.js";
import { get, idPath } from "../api.js";
import { between, duration, idFromUrl, now, time } from "../format.js";
import { build, interesting } from "../run/model.js";
import { Graph } from "../run/graph.js";
import { Value } from "../json.js";

export default function Share({ token }) {
  const { value, problem } = useLoad(() => get(idPath`shares/${idFromUrl(token)}`), [token]);
  const [selected, setSelected] = useState(null);
  const [opened, setOpened] = useState(() => new Map());
  useEffect(() => { document.title = "A shared run · Rival"; }, []);
  const data = value?.run;
  const tree = useMemo(() => (data ? build(data.graph, data.steps, data.folded) : []), [data]);
  if (problem) return html`<main id="main" tabindex="-1"><h1>A shared run</h1><${Problem} problem=${problem} /></main>`;
  if (!value) return html`<main id="main" tabindex="-1"><h1 class="vh">A shared run</h1><${Loading} /></main>`;
  const { run } = data;
  const status = statusOf(run);
  const chosen = selected ?? interesting(tree, run);
  const row = data.steps.find((one) => one.path === chosen);
  return html`<main id="main" tabindex="-1"><header class="rh"><div class="grow"><h1><span class=${`st ${look(status)[1]}`}><${Sign} of=${look(status)[0]} big /><span class="vh">${status}</span></span><span class="m">${run.id}</span></h1><p class="facts"><span><b class=${{ failed: "bad", completed: "ok", running: "run" }[status] ?? ""}>${status}</b>${run.failed_step && html` at <b class="m">${run.failed_step}</b>`}</span><span>${run.workflow} <span class="m">${run.version.slice(0, 6)}</span></span><span>took <b>${duration(between(run.started_at ?? run.created_at, run.completed_at ?? now()))}</b></span><span>this link ends ${time(value.expires_at)}</span></p></div></header>
    ${value.why && html`<section class=${`note why ${look(status)[1]}`} aria-label="Why"><${Sign} of=${look(status)[0]} /><p class="lead">${value.why.sentence}</p><span></span></section>`}
    <div class="two"><section class="pane" aria-label="Graph"><${Graph} items=${tree} run=${run} stats=${null} selected=${chosen} pick=${setSelected} opened=${opened} toggle=${(path, open) => setOpened((old) => new Map(old).set(path, open))} turn=${() => {}} showItems=${null} preview=${null} label=${`Steps of ${run.id}`} /></section>
    <aside class="panel side still" aria-label="Step"><div class="sec0"><h2 class="m">${chosen}</h2><p class="i2">${row?.status}</p></div>${row?.error && html`<div class="sec err0"><p class="m bad">${row.error.type}: ${row.error.message}</p></div>`}<${Value} title="Input of the run" of=${run.input} /><${Value} title="Result of the run" of=${run.result} /></aside></div></main>`;
}
