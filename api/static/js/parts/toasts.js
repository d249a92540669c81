// Toasts: short messages at the edge of the window, optionally with a button.
import { html, signal } from "../../vendor/preact.js";

const toasts = signal([]);
const SHOWN_MS = 8000;
let last = 0;

/**
 * Show `text` for `shownMs` milliseconds; an error (`bad`) stays until the user closes it. `action`, {label, run}, adds
 * a button.
 */
export function toast(text, { bad = false, action = null, shownMs = SHOWN_MS } = {}) {
  const id = ++last;
  toasts.value = [...toasts.value.slice(-3), { id, text, bad, action }];
  if (!bad) setTimeout(() => close(id), shownMs);
}

function close(id) {
  toasts.value = toasts.value.filter((one) => one.id !== id);
}

export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.value.map(
      ({ id, text, bad, action }) => html`<div class="toast ${bad ? "bad" : ""}" key=${id}>
        <p>${text}</p>
        ${action &&
        html`<button
          onClick=${() => {
            close(id);
            action.run();
          }}
        >
          ${action.label}
        </button>`}
        <button class="plain" aria-label="Close" onClick=${() => close(id)}>×</button>
      </div>`,
    )}
  </div>`;
}
