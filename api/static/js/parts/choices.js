// A multiple-choice field: a button that names the chosen values and opens a list of checkboxes.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";

const NAMED = 2;

/**
 * options: [[value, label]]. chosen: the list of chosen values. set(values): called on every change.
 * presets: [[label, values]]; each is a button that chooses exactly these values.
 */
export function Choices({ label, options, chosen, set, presets = [] }) {
  const [open, setOpen] = useState(false);
  const box = useRef(null);
  useEffect(() => {
    if (!open) return undefined;
    const outside = (event) => !box.current.contains(event.target) && setOpen(false);
    const kinds = ["pointerdown", "focusin"];
    for (const kind of kinds) document.addEventListener(kind, outside);
    return () => {
      for (const kind of kinds) document.removeEventListener(kind, outside);
    };
  }, [open]);
  const keys = (event) => {
    if (event.key !== "Escape" || !open) return;
    event.stopPropagation();
    setOpen(false);
    box.current.querySelector("button").focus();
  };
  const words = options.filter(([value]) => chosen.includes(value)).map(([, word]) => word);
  const preset = presets.find(([, values]) => values.length === chosen.length && values.every((one) => chosen.includes(one)));
  const several = preset?.[0] ?? `${words.length} of ${options.length}`;
  const text = words.length > NAMED ? several : words.join(", ") || "any";
  const flip = (value) => set(chosen.includes(value) ? chosen.filter((one) => one !== value) : [...chosen, value]);
  return html`<div class="choices" ref=${box} onKeyDown=${keys}>
    <span aria-hidden="true">${label}</span>
    <button type="button" aria-expanded=${open} aria-label=${`${label}: ${words.join(", ") || "any"}`} onClick=${() => setOpen(!open)}>
      <span class="clip">${text}</span><span aria-hidden="true">▾</span>
    </button>
    ${open &&
    html`<fieldset class="menu-list">
      <legend class="hidden-text">${label}</legend>
      <p class="row">
        <button type="button" onClick=${() => set([])}>Any</button>
        ${presets.map(([name, values]) => html`<button type="button" onClick=${() => set(values)}>${name}</button>`)}
      </p>
      ${options.map(
        ([value, word]) => html`<label class="check"><input type="checkbox" checked=${chosen.includes(value)} onChange=${() => flip(value)} />${word}</label>`,
      )}
    </fieldset>`}
  </div>`;
}
