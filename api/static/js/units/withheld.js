// A line about a disabled service, a paused task or an open window: the user, if any, the time, the end and the note.
import { html } from "../../vendor/preact.js";
import { Ago, At } from "../parts/basics.js";

export function Withheld({ word, by, at, until, note }) {
  return html`<span>${word}${by && ` by ${by}`} <${Ago} at=${at} />${until && html`, until <${At} at=${until} />`}${note && html`: <q>${note}</q>`}</span>`;
}
