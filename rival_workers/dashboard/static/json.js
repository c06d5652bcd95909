// A JSON value that opens level by level: only what is open is drawn, a hundred entries of a level at a time.
import { html, useState, copy } from "./ui.js";
import { bytes, count } from "./format.js";
import { may, pretty } from "./api.js";
import { isExact } from "./exact.js";

const PAGE = 100;
const isBranch = (value) => value !== null && typeof value === "object" && !isExact(value);
const entries = (value) => (Array.isArray(value) ? value.map((one, at) => [String(at), one]) : Object.entries(value));

/** One line for a value: what it is, and how much of it there is. */
export function summary(value) {
  if (Array.isArray(value)) return value.length === 0 ? "[]" : `[${count(value.length)} ${value.length === 1 ? "item" : "items"}]`;
  if (isBranch(value)) {
    const keys = Object.keys(value);
    return keys.length === 0 ? "{}" : `{${keys.slice(0, 3).join(", ")}${keys.length > 3 ? ", …" : ""}}`;
  }
  return JSON.stringify(value);
}

function Leaf({ value }) {
  const [whole, setWhole] = useState(false);
  const text = JSON.stringify(value);
  if (text.length <= 240 || whole) return html`<span class=${value === "***" ? "i3" : value === null ? "i3" : "v"}>${text}</span>`;
  return html`<span class="v">${text.slice(0, 200)}…</span> <button type="button" class="lk" onClick=${() => setWhole(true)}>all ${count(text.length)} characters</button>`;
}

function Entry({ name, value, level, open: begin }) {
  const [open, setOpen] = useState(begin);
  if (!isBranch(value) || Object.keys(value).length === 0) {
    return html`<li><span class="k">${name}</span> ${isBranch(value) ? html`<span class="i3">${summary(value)}</span>` : html`<${Leaf} value=${value} />`}</li>`;
  }
  return html`<li><button type="button" class="tgl" aria-expanded=${String(open)} onClick=${() => setOpen(!open)}><i class=${`s s-${open ? "down" : "right"}`} aria-hidden="true"></i><span class="k">${name}</span>${!open && html` <span class="i3">${summary(value)}</span>`}</button>
    ${open && html`<${Level} value=${value} level=${level + 1} />`}</li>`;
}

function Level({ value, level }) {
  const [most, setMost] = useState(PAGE);
  const all = entries(value);
  const small = all.length <= 12;
  return html`<ul class="json">${all.slice(0, most).map(([name, one]) => html`<${Entry} key=${name} name=${name} value=${one} level=${level} open=${small && level < 2 && isBranch(one) && Object.keys(one).length <= 6} />`)}
    ${all.length > most && html`<li><button type="button" class="lk" onClick=${() => setMost(most + PAGE * 5)}>${count(all.length - most)} more</button></li>`}</ul>`;
}

export function Json({ value }) {
  if (!isBranch(value)) return html`<div class="code"><${Leaf} value=${value} /></div>`;
  if (Object.keys(value).length === 0) return html`<div class="code i3">${summary(value)}</div>`;
  return html`<div class="code"><${Level} value=${value} level=${0} /></div>`;
}

/** A value of a user as the server gives it: shown, or its beginning and a download when it is large. */
export function Value({ of, title, download, none = "none", reveal = null }) {
  const [raw, setRaw] = useState(false);
  const [Reveal, setReveal] = useState(null);
  if (!of) return html`<div class="sec"><h3>${title}</h3><p class="i3 sm">${none}</p></div>`;
  const text = of.preview ?? pretty(of.value);
  return html`<div class="sec"><h3>${title} ${of.redacted?.length > 0 && html`<span class="tag" title=${of.redacted.join(", ")}>redacted</span>`}${of.redacted?.length > 0 && reveal && may("reveal") && html`<button type="button" class="lk xs" onClick=${async () => { const { Reveal: loaded } = await import("./reveal.js"); setReveal(() => loaded); }}>show…</button>`}
    <span class="bar end"><span class="i3 xs">${bytes(of.size)}</span>${of.preview === null && html`<button type="button" class="lk xs" aria-pressed=${String(raw)} onClick=${() => setRaw(!raw)}>${raw ? "as tree" : "raw"}</button>`}
    ${of.preview === null && html`<button type="button" class="lk xs" onClick=${() => copy(text)}>copy</button>`}${download && html`<a class="xs" href=${download} download="">download</a>`}</span></h3>
    ${of.preview !== null ? html`<pre class="code" tabindex="0" aria-label=${title}>${of.preview}…</pre>` : raw ? html`<pre class="code" tabindex="0" aria-label=${title}>${text}</pre>` : html`<${Json} value=${of.value} />`}${Reveal && html`<${Reveal} ...${reveal} pointers=${of.redacted} close=${() => setReveal(null)} />`}</div>`;
}
