// One dialog at a time, over everything else; the browser keeps the focus in it, and afterwards it is where it was.
import { html, signal, useEffect, useRef } from "../../vendor/preact.js";

const current = signal(null);
let shownSoFar = 0;

/** Show `content` (a component's call) until it calls the `close` it is given, or Escape is pressed. */
export function show(content, { className = "", label, onClose } = {}) {
  // Each has an element of its own: the browser reports a close a moment later, when another one may be shown.
  current.value = { key: ++shownSoFar, content, className, label, onClose };
}

export function close() {
  current.value = null;
}

addEventListener("popstate", () => current.value?.onClose?.() || close());

export const isOpen = () => current.value !== null;

/** Ask before something that cannot be undone; gives whether it is wanted. */
export function confirm({ title, text, label, danger = true }) {
  return new Promise((settle) => {
    const answer = (value) => {
      settle(value);
      close();
    };
    const content = () => html`<form
      onSubmit=${(event) => {
        event.preventDefault();
        answer(true);
      }}
      onReset=${() => answer(false)}
    >
      <h2>${title}</h2>
      <p>${text}</p>
      <div class="buttons">
        <button type="reset">Cancel</button>
        <button class=${danger ? "danger" : "primary"} autofocus>${label}</button>
      </div>
    </form>`;
    show(content, { label: title, onClose: () => settle(false) });
  });
}

export function Dialog() {
  const box = useRef(null);
  const before = useRef(null); // where the focus was
  const shown = current.value;
  useEffect(() => {
    if (shown) {
      before.current ??= document.activeElement;
      box.current.showModal();
      return;
    }
    before.current?.focus({ preventScroll: true });
    before.current = null;
  }, [shown]);
  if (!shown) return null;
  const closed = () => {
    shown.onClose?.();
    if (current.value === shown) close();
  };
  const outside = (event) => event.target === box.current && box.current.close();
  return html`<dialog key=${shown.key} ref=${box} class=${shown.className} aria-label=${shown.label} onClose=${closed} onClick=${outside}>
    ${shown.content()}
  </dialog>`;
}
