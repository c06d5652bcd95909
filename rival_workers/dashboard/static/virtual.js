// A long list of rows of one height: only those in view are in the document.
import { html, useEffect, useRef, useState } from "./ui.js";

/** @param {{total: number, height: number, row: (index: number) => any, label: string, most?: number, stick?: boolean}} props `stick`: stay at the end while it grows */
export function VirtualList({ total, height, row, label, most = 480, stick = false }) {
  const box = useRef(null);
  const [top, setTop] = useState(0);
  const [view, setView] = useState(most);
  useEffect(() => {
    const seen = new ResizeObserver(([entry]) => setView(entry.contentRect.height || most));
    seen.observe(box.current);
    return () => seen.disconnect();
  }, []);
  useEffect(() => { if (stick) box.current.scrollTop = total * height; }, [stick, total]);
  const first = Math.max(0, Math.floor(top / height) - 4);
  const last = Math.min(total, Math.ceil((top + view) / height) + 4);
  const rows = [];
  for (let index = first; index < last; index++) rows.push(html`<li key=${index} aria-setsize=${total} aria-posinset=${index + 1} style=${{ "--y": `${index * height}px`, "--h": `${height}px` }}>${row(index)}</li>`);
  return html`<div class="vl" ref=${box} tabindex="0" role="group" aria-label=${label} style=${{ "--most": `${Math.min(most, Math.max(1, total) * height)}px` }} onScroll=${(event) => setTop(event.target.scrollTop)}>
    <ol style=${{ "--all": `${total * height}px` }}>${rows}</ol></div>`;
}
