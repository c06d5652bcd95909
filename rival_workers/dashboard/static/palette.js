// Ctrl-K: go anywhere. And `?`: what the keys do.
import { html, useEffect, useMemo, useRef, useState, useAnswers } from "./ui.js";
import { get } from "./api.js";
import { go, to } from "./router.js";
import { known, letters, setLetters } from "./keys.js";
import { Modal } from "./modal.js";

const PAGES = [["Runs", "runs"], ["Failed runs", "runs?status=failed"], ["Open runs", "runs?status=pending,running,suspended"], ["Workflows", "workflows"], ["Fleet", "fleet"], ["Events and waits", "events"], ["Schedules", "schedules"], ["Limits, breakers, dead letters", "limits"], ["Bulk actions", "bulk"], ["Audit", "audit"]];

export function Palette({ close }) {
  const [text, setText] = useState("");
  const [runs, setRuns] = useState({ items: [], open: null });
  const [workflows, setWorkflows] = useState([]);
  const [at, setAt] = useState(0);
  const list = useRef(null);
  const take = useAnswers([text]);
  useEffect(() => { get("workflows").then((answer) => setWorkflows(answer.items), () => {}); }, []);
  useEffect(() => {
    if (text.trim().length < 2) { setRuns({ items: [], open: null }); return undefined; }
    const timer = setTimeout(() => take(get("runs", { q: text.trim(), limit: 8 }), setRuns), 150);
    return () => clearTimeout(timer);
  }, [text]);
  const found = useMemo(() => {
    const word = text.trim().toLowerCase();
    const has = (one) => one.toLowerCase().includes(word);
    const pages = PAGES.filter(([name]) => has(name)).map(([name, where]) => ({ text: name, hint: "page", to: where }));
    return [
      ...(runs.open ? [{ text: runs.open.run, hint: `attempt ${runs.open.attempt} of ${runs.open.step}`, to: to.run(runs.open.run, { step: runs.open.step }) }] : []),
      ...runs.items.map((run) => ({ text: run.id, hint: `${run.workflow}, ${run.status}`, to: to.run(run.id) })),
      ...(word ? [] : pages),
      ...workflows.filter((one) => has(one.name)).slice(0, 6).flatMap((one) => [{ text: one.name, hint: "workflow", to: to.workflow(one.name) }, { text: `Start ${one.name}`, hint: "action", to: `${to.workflow(one.name)}/start` }]),
      ...(word ? pages : []),
    ].slice(0, 14);
  }, [text, runs, workflows]);
  const open = (one) => { close(); go(one.to); };
  const keys = (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move) { event.preventDefault(); setAt((at + move + found.length) % Math.max(1, found.length)); }
    else if (event.key === "Enter" && found[at]) { event.preventDefault(); open(found[at]); }
  };
  return html`<${Modal} title="Search everything" close=${close} cls="palette"><input class="in" role="combobox" aria-expanded="true" aria-controls="found" aria-activedescendant=${found[at] ? `found-${at}` : undefined} aria-label="Run id, task id, workflow, page" placeholder="Run id, task id, workflow, page" value=${text} onInput=${(event) => { setText(event.target.value); setAt(0); }} onKeyDown=${keys} autocomplete="off" />
    <ul id="found" role="listbox" aria-label="Found" ref=${list}>${found.map((one, nth) => html`<li key=${one.to} id=${`found-${nth}`} role="option" aria-selected=${String(nth === at)} onClick=${() => open(one)}><span class=${one.hint === "page" ? "" : "m"}>${one.text}</span> <span class="i3 sm">${one.hint}</span></li>`)}</ul>
    ${found.length === 0 && html`<p class="i3">Nothing found.</p>`}<//>`;
}

export function Help({ close }) {
  return html`<${Modal} title="Keys" close=${close}><dl class="keys">${known().map(([key, text]) => html`<dt key=${`t${key}`}>${key.replace("-", " ").split(" ").map((one) => html`<kbd key=${one}>${one}</kbd> `)}</dt><dd key=${`d${key}`}>${text}</dd>`)}
    <dt><kbd>↑</kbd> <kbd>↓</kbd> <kbd>←</kbd> <kbd>→</kbd></dt><dd>walk the graph, when it has the focus</dd></dl>
    <label class="sw"><input type="checkbox" role="switch" checked=${letters.value} onChange=${(event) => setLetters(event.target.checked)} />keys of a single letter</label><//>`;
}
