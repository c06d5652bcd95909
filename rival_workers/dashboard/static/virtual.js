// A long list of rows of one height: only those in view are in the document.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./ui.js";

/**
 * @param {{total: number, height: number, row: (index: number) => any, label: string, most?: number, stick?: boolean,
 *   tree?: {id: string, at: number, keys: (event: KeyboardEvent) => void, of: (index: number) => object}|null}} props
 *   `stick`: stay at the end while it grows. `tree`: its rows are those of a tree; the box keeps the focus, since a row is
 *   gone once it is out of view, and names the row that keys are for (`at`), which is brought into view.
 */
export function VirtualList({ total, height, row, label, most = 480, stick = false, tree = null }) {
  const box = useRef(null);
  const [top, setTop] = useState(0);
  const [view, setView] = useState(most);
  useEffect(() => {
    const seen = new ResizeObserver(([entry]) => setView(entry.contentRect.height || most));
    seen.observe(box.current);
    return () => seen.disconnect();
  }, []);
  useLayoutEffect(() => {
    const [above, below] = [tree?.at * height, (tree?.at + 1) * height];
    if (above < box.current.scrollTop) box.current.scrollTop = above;
    else if (below > box.current.scrollTop + box.current.clientHeight) box.current.scrollTop = below - box.current.clientHeight;
    if (tree) setTop(box.current.scrollTop);
  }, [tree?.at]);
  useEffect(() => { if (stick) box.current.scrollTop = total * height; }, [stick, total]);
  const first = Math.max(0, Math.floor(top / height) - 4);
  const last = Math.min(total, Math.ceil((top + view) / height) + 4);
  const rows = [];
  for (let index = first; index < last; index++) rows.push(html`<li key=${index} ...${tree && { id: `${tree.id}-${index}`, role: "treeitem", ...tree.of(index) }} aria-setsize=${tree ? undefined : total} aria-posinset=${tree ? undefined : index + 1} style=${{ "--y": `${index * height}px`, "--h": `${height}px` }}>${row(index)}</li>`);
  const active = tree && tree.at >= first && tree.at < last ? `${tree.id}-${tree.at}` : undefined;
  return html`<div class="vl" ref=${box} tabindex="0" role=${tree ? "tree" : "group"} aria-label=${label} aria-activedescendant=${active} onKeyDown=${tree?.keys} style=${{ "--most": `${Math.min(most, Math.max(1, total) * height)}px` }} onScroll=${(event) => setTop(event.target.scrollTop)}>
    <ol role=${tree ? "none" : undefined} style=${{ "--all": `${total * height}px` }}>${rows}</ol></div>`;
}
