// The filters of a list of runs: their form, their query parameters, and their encoding for bulk operations.
import { html, useState } from "../../vendor/preact.js";
import { localMinute, toApi } from "../format.js";
import { units } from "../state.js";
import { FAILURES, STATUSES, ofReason } from "../states.js";
import { STARTERS } from "../verdict.js";
import { Choices } from "../parts/choices.js";

export const FILTERS = ["status", "task_name", "triggered_by", "created_after", "created_before", "exit_code_min", "exit_code_max", "retries_only", "search"];
const RARE = ["created_after", "created_before", "exit_code_min", "exit_code_max", "retries_only"];
const STATUS_OPTIONS = STATUSES.map((one) => [one, ofReason(one).word]);
const MOST = Number.MAX_SAFE_INTEGER; // larger than every exit code

/** Return the filters that are set, as {key: text}. read(key) returns the text of a filter, "" if it is not set. */
export const filterOf = (read) => Object.fromEntries(FILTERS.filter((key) => read(key)).map((key) => [key, read(key)]));

/** Convert the texts of `filter` for the body of a bulk operation, which requires JSON numbers and booleans. */
export function bulkFilter(filter) {
  const typed = { ...filter };
  for (const key of ["exit_code_min", "exit_code_max"]) if (key in typed) typed[key] = Math.max(-MOST, Math.min(MOST, Number(typed[key])));
  if ("retries_only" in typed) typed.retries_only = typed.retries_only === "true";
  return typed;
}

/**
 * name: the task or service, if the list is limited to one. read(key): see filterOf. set(changes): change the query
 * parameters. active: whether any filter is set. clear(): remove all filters.
 */
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
        ${Object.entries(STARTERS).map(([trigger, words]) => html`<option value=${trigger}>${words}</option>`)}
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
