// A line about an acknowledged failure of a task or service: the user, the time, the expiry and the note.
import { html } from "../../vendor/preact.js";
import { Ago, At } from "../parts/basics.js";

export function Acknowledged({ unit }) {
  const { by, at, until, note } = unit.acknowledged;
  return html`<span>Acknowledged by ${by} <${Ago} at=${at} />, ${until ? html`until <${At} at=${until} />` : "until it fails again"}${note && html`: <q>${note}</q>`}</span>`;
}
