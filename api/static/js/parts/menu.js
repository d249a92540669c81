// A button that opens a menu of further actions.
import { html, useLayoutEffect, useRef, useState } from "../../vendor/preact.js";
import { Icon } from "./icon.js";

/** items: [{label, run, disabled, title}]; falsy items are skipped. */
export function Menu({ label, items }) {
  const [open, setOpen] = useState(false);
  const [busy, setBusy] = useState(false);
  const choose = async (item) => {
    setOpen(false);
    box.current.querySelector("button").focus();
    setBusy(true);
    try {
      await item.run();
    } finally {
      setBusy(false);
    }
  };
  const box = useRef(null);
  // A layout effect moves the focus into the menu before the next key press.
  useLayoutEffect(() => {
    if (!open) return undefined;
    box.current.querySelector(".menu-list button:not(:disabled)")?.focus();
    const outside = (event) => !box.current.contains(event.target) && setOpen(false);
    document.addEventListener("pointerdown", outside);
    return () => document.removeEventListener("pointerdown", outside);
  }, [open]);
  const keys = (event) => {
    if (event.key === "Escape" && open) {
      event.stopPropagation();
      setOpen(false);
      box.current.querySelector("button").focus();
    }
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    const buttons = [...box.current.querySelectorAll(".menu-list button:not(:disabled)")];
    const step = event.key === "ArrowDown" ? 1 : -1;
    buttons.at((buttons.indexOf(document.activeElement) + step) % buttons.length)?.focus();
  };
  return html`<div class="menu" ref=${box} onKeyDown=${keys}>
    <button class="plain" aria-label=${label} aria-haspopup="menu" aria-expanded=${open} aria-busy=${busy} onClick=${() => setOpen(!open)}>
      <${Icon} name="more" />
    </button>
    ${open &&
    html`<div class="menu-list" role="menu">
      ${items.filter(Boolean).map(
        (item) =>
          html`<button
            role="menuitem"
            disabled=${item.disabled}
            title=${item.title}
            onClick=${() => choose(item)}
          >
            ${item.label}
          </button>`,
      )}
    </div>`}
  </div>`;
}
