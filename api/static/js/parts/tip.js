// A tooltip for small elements with the keyboard focus. For a pointer, their title attribute gives the same text.
import { html, signal, useEffect } from "../../vendor/preact.js";

const WIDE_PX = 260;
const shown = signal(null);

/** Show `text` below the focused element, unless a pointer moved the focus. */
function tell(event, text) {
  if (!event.currentTarget.matches(":focus-visible")) return;
  const { left, bottom } = event.currentTarget.getBoundingClientRect();
  shown.value = { text, left: `${Math.max(8, Math.min(left, innerWidth - WIDE_PX))}px`, top: `${bottom + 6}px` };
}

const hide = () => {
  shown.value = null;
};

/** Return the event handlers of an element whose tooltip is `text`. */
export const told = (text) => ({ onFocus: (event) => tell(event, text), onBlur: hide });

export function Tip() {
  useEffect(() => {
    addEventListener("scroll", hide, { capture: true, passive: true });
    return () => removeEventListener("scroll", hide, { capture: true });
  }, []);
  if (!shown.value) return null;
  const { text, left, top } = shown.value;
  return html`<div class="tip" style=${{ left, top }} aria-hidden="true">${text}</div>`;
}
