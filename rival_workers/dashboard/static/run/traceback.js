// A Python traceback: own frames shown, frames of libraries folded, the error last. The text itself is what `copy` takes.
import { html, useState, copy } from "../ui.js";

const FRAME = /^\s*File "(.+?)", line (\d+), in (.+)$/;
const LIBRARY = /site-packages|dist-packages|\/lib\/python3|<frozen|rival_workers\/runtime/;

/** @returns {{file: string, line: string, name: string, code: string[], library: boolean}[]} */
export function frames(text) {
  const found = [];
  for (const line of text.split("\n")) {
    const match = FRAME.exec(line);
    if (match) found.push({ file: match[1], line: match[2], name: match[3], code: [], library: LIBRARY.test(match[1]) });
    else if (/^\s{4,}\S/.test(line) && found.length && !/^\s*[~^]+\s*$/.test(line)) found.at(-1).code.push(line.trim());
  }
  return found;
}

const package_ = (file) => /(?:site|dist)-packages\/([^/]+)/.exec(file)?.[1] ?? "python";
const shortFile = (file) => file.split("/").slice(-2).join("/");

export function Traceback({ text }) {
  const [all, setAll] = useState(false);
  const found = frames(text);
  const groups = [];
  for (const frame of found) {
    if (frame.library && !all && groups.at(-1)?.folded) groups.at(-1).frames.push(frame);
    else groups.push({ folded: frame.library && !all, frames: [frame] });
  }
  return html`<div class="sec"><h3>Traceback <button type="button" class="lk xs" onClick=${() => copy(text, "Copied the traceback")}>copy</button></h3>
    <pre class="code" tabindex="0" aria-label="Traceback">${found.length === 0 ? text : groups.map((group, at) => group.folded
      ? html`<button type="button" class="lk i3" key=${at} onClick=${() => setAll(true)}>▸ ${group.frames.length} ${group.frames.length === 1 ? "frame" : "frames"} of ${[...new Set(group.frames.map((one) => package_(one.file)))].join(", ")}</button>${"\n"}`
      : group.frames.map((one) => html`<span key=${at} title=${one.file}>${shortFile(one.file)}:${one.line}</span> in <span class="k">${one.name}</span>${"\n"}${one.code.map((line) => `    ${line}\n`)}`))}</pre></div>`;
}
