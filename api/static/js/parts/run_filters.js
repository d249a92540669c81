// The filters of a list of runs, as they stand in the address, in its form, and in the body of a bulk operation.
import { html, useState } from "../../vendor/preact.js";
import { localMinute } from "../format.js";
import { units } from "../state.js";
import { FAILURES, STATUSES, ofReason } from "../states.js";
import { Choices } from "./choices.js";

export const FILTERS = ["status", "task_name", "triggered_by", "created_after", "created_before", "exit_code_min", "exit_code_max", "retries_only", "search"];
const RARE = ["created_after", "created_before", "exit_code_min", "exit_code_max", "retries_only"];
const STATUS_OPTIONS = STATUSES.map((one) => [one, ofReason(one).word]);
const MOST = Number.MAX_SAFE_INTEGER; // beyond every exit code
const TRIGGERS = ["cron", "api", "cloud", "service", "startup"];

/** Those that are set; `read(key)` gives the text of one, "" for none. */
export const filterOf = (read) => Object.fromEntries(FILTERS.filter((key) => read(key)).map((key) => [key, read(key)]));

/** Bulk selectors are exact, as lists in camelCase are; numbers and truth are typed there. */
export function bulkFilter(filter) {
  const typed = { ...filter };
  for (const key of ["exit_code_min", "exit_code_max"]) if (key in typed) typed[key] = Math.max(-MOST, Math.min(MOST, Number(typed[key])));
  if ("retries_only" in typed) typed.retries_only = typed.retries_only === "true";
  return typed;
}

/** The time that a date-time field shows, as the API takes it. */
const toApi = (local) => (local ? new Date(local).toISOString() : "");

/** name: the runs are of this task alone. set(changes): what the address is to say. active: whether any is set. */
export function Filters({ name, read, set, active, clear }) {
  const [more, setMore] = useState(RARE.some(read));
  const statuses = read("status").split(",").map((one) => one.trim()).filter(Boolean);
  const text = (key) => (event) => set({ [key]: event.target.value });
  return html`<form class="filters" role="search" aria-label="Filter runs" onSubmit=${(event) => event.preventDefault()}>
    <label>Search<input type="search" value=${read("search")} onChange=${text("search")} placeholder="Part of name or id" /></label>
    <${Choices} label="Status" options=${STATUS_OPTIONS} chosen=${statuses} presets=${[["Failures", FAILURES]]} set=${(values) => set({ status: values.join() })} />
    ${!name &&
    html`<label>Task<input list="unit-names" value=${read("task_name")} onChange=${text("task_name")} />
      <datalist id="unit-names">${(units.value ?? []).map((unit) => html`<option value=${unit.name} />`)}</datalist>
    </label>`}
    <label>Triggered by
      <select value=${read("triggered_by")} onChange=${text("triggered_by")}>
        <option value="">any</option>
        ${TRIGGERS.map((one) => html`<option>${one}</option>`)}
      </select>
    </label>
    ${more &&
    html`<label>Created after<input type="datetime-local" value=${localMinute(read("created_after"))} onChange=${(event) => set({ created_after: toApi(event.target.value) })} /></label>
    <label>Created before<input type="datetime-local" value=${localMinute(read("created_before"))} onChange=${(event) => set({ created_before: toApi(event.target.value) })} /></label>
    <label>Exit code from<input type="number" size="4" value=${read("exit_code_min")} onChange=${text("exit_code_min")} /></label>
    <label>to<input type="number" size="4" value=${read("exit_code_max")} onChange=${text("exit_code_max")} /></label>
    <label class="check"><input type="checkbox" checked=${read("retries_only") === "true"} onChange=${(event) => set({ retries_only: event.target.checked ? "true" : "" })} />Retries only</label>`}
    <button type="button" class="plain" aria-expanded=${more} onClick=${() => setMore(!more)}>${more ? "Fewer filters" : "More filters"}</button>
    ${active && html`<button type="button" class="plain" onClick=${clear}>Clear filters</button>`}
  </form>`;
}
