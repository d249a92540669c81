// The search page: searches the logs of all tasks and services.
import { html } from "../../vendor/preact.js";
import { moment } from "../format.js";
import { Hits, SearchField, finder, parametersOf, queryOf, useSearch } from "../log/search.js";
import { Card, Empty, useTitle } from "../parts/basics.js";
import { go, link, route } from "../routes.js";
import { units } from "../state.js";

const PERIODS = { "": "any time", "1h": "the last hour", "24h": "the last day", "7d": "the last week" };
const HOURS = { "1h": 1, "24h": 24, "7d": 168 };

export function Search() {
  useTitle("Search");
  const { query: address } = route.value;
  const query = queryOf(address);
  const task = address.get("task") ?? "";
  const period = HOURS[address.get("period")] ? address.get("period") : "";
  const found = useSearch("api/logs/search", { task: task || undefined, since: () => sinceOf(period) }, query, `${task} ${period}`);
  const open = (wanted) => go(link("search", wanted), { replace: true });
  const search = (wanted) => open({ task: task || undefined, period: period || undefined, ...parametersOf(wanted) });
  const narrow = (name) => (event) => open({ task: task || undefined, period: period || undefined, ...parametersOf(query), [name]: event.target.value || undefined });
  const names = (units.value ?? []).map((unit) => unit.name);
  return html`<h1>Search</h1>
    <${Card} label="Search all logs" title="All logs" tools=${html`<${SearchField} key=${query?.q ?? ""} search=${search} label="Search all logs" initial=${query} />`}>
      <div class="body row search-scope">
        <label>In <select aria-label="Task or service" value=${task} onChange=${narrow("task")}>
          <option value="">all tasks and services</option>
          ${task && !names.includes(task) && html`<option value=${task}>${task}</option>`}
          ${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
        </select></label>
        <label>from <select aria-label="Time" value=${period} onChange=${narrow("period")}>
          ${Object.entries(PERIODS).map(([value, words]) => html`<option key=${value} value=${value}>${words}</option>`)}
        </select></label>
      </div>
      ${query
        ? html`<${Hits} found=${found} pattern=${finder(query)} label=${(hit) => `${hit.taskName} ${moment(hit.ts)}`} choose=${(hit) => go(link("run", hit.runId, { line: hit.n + 1, ...parametersOf(query) }))} />`
        : html`<${Empty}><p>Finds text or a regular expression (RE2) in the logs of all runs, the newest run first.</p></${Empty}>`}
    </${Card}>`;
}

function sinceOf(period) {
  return period ? new Date(Date.now() - HOURS[period] * 3_600_000).toISOString() : undefined;
}
