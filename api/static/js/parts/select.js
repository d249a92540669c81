// A drop-down list of values that occur, such as the groups of all units.
import { html } from "../../vendor/preact.js";

/** The distinct `values`, below an entry `all` for no choice; renders nothing if there are none. */
export function Select({ label, all, value, values, set }) {
  const known = [...new Set(value ? [value, ...values] : values)].sort((a, b) => a.localeCompare(b));
  if (!known.length) return null;
  return html`<select aria-label=${label} value=${value} onChange=${(event) => set(event.target.value)}>
    <option value="">${all}</option>
    ${known.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
  </select>`;
}
