// A dialogue in the browser's own `<dialog>`: it keeps the focus, and Escape closes it.
import { html, useLayoutEffect, useRef, Button } from "./ui.js";

export function Modal({ title, close, children, cls = "" }) {
  const box = useRef(null);
  useLayoutEffect(() => {
    const back = document.activeElement;
    box.current.showModal();
    box.current.querySelector("input, select, textarea")?.focus();
    // After the dialogue has left the document: until then, nothing outside it can have the focus.
    return () => queueMicrotask(() => back?.focus?.());
  }, []);
  return html`<dialog ref=${box} class=${`modal ${cls}`} aria-label=${title} onClose=${close} onCancel=${close}
    onPointerDown=${(event) => event.target === box.current && close()}>
    <div class="ph"><h2 class="grow">${title}</h2><${Button} kind="no" sign="x" label="Close" onClick=${close} /></div>
    <div class="mbody">${children}</div></dialog>`;
}
