// The modal dialog; only one is open at a time. The browser keeps the focus inside; closing it restores the focus.
import { html, signal, useEffect, useRef } from "../../vendor/preact.js";

const current = signal(null);
let shownSoFar = 0;

/**
 * Open a dialog whose body is the result of `content()`. Code closes it with `close`; the user with Escape, a click
 * outside or the browser's Back button, which also calls `onClose`.
 */
export function show(content, { className = "", label, onClose } = {}) {
  // A new key gives each dialog its own element: the browser reports a close late, when another dialog may be open.
  current.value = { key: ++shownSoFar, content, className, label, onClose };
}

export function close() {
  current.value = null;
}

addEventListener("popstate", () => current.value?.onClose?.() || close());

export const isOpen = () => current.value !== null;

/** Ask for confirmation in a dialog. Resolve to true if the user presses the button `label`, otherwise to false. */
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
  const before = useRef(null); // the element that had the focus before the dialog opened
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
