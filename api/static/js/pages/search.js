// The search page: searches the logs of all tasks and services.
import { html } from "../../vendor/preact.js";
import { localMinute, moment, toApi } from "../format.js";
import { Hits, SearchField, finder, parametersOf, queryOf, useSearch } from "../log/search.js";
import { Card, Empty, useTitle } from "../parts/basics.js";
import { Select } from "../parts/select.js";
import { go, link, route } from "../routes.js";
import { currentMs } from "../server_time.js";
import { units } from "../state.js";

const PERIODS = { "": "any time", "1h": "the last hour", "24h": "the last day", "7d": "the last week", between: "between two times" };
const HOURS = { "1h": 1, "24h": 24, "7d": 168 };
const SCOPE = ["task", "group", "tag", "period", "since", "until"];

export function Search() {
  useTitle("Search");
  const { query: address } = route.value;
  const query = queryOf(address);
  const scope = Object.fromEntries(SCOPE.map((name) => [name, address.get(name) ?? ""]));
  const { task, group, tag } = scope;
  const between = Boolean(scope.since || scope.until) || scope.period === "between";
  const period = between ? "between" : HOURS[scope.period] ? scope.period : "";
  const since = () => (between ? scope.since : period && new Date(currentMs() - HOURS[period] * 3_600_000).toISOString());
  const found = useSearch("api/logs/search", { task, group, tag, until: between ? scope.until : "", since }, query, JSON.stringify(scope));
  const open = (changes, wanted = query) => go(link("search", { ...scope, ...changes, ...parametersOf(wanted) }), { replace: true });
  const all = units.value ?? [];
  const time = (name, label) => html`<label>${label} <input type="datetime-local" value=${localMinute(scope[name])} onChange=${(event) => open({ [name]: toApi(event.target.value) })} /></label>`;
  return html`<h1>Search</h1>
    <${Card} label="Search all logs" title="All logs" className="search-page" tools=${html`<${SearchField} key=${query?.q ?? ""} search=${(wanted) => open({}, wanted)} label="Search all logs" initial=${query} />`}>
      <div class="body row search-scope">
        <${Select} label="Task or service" all="all tasks and services" value=${task} values=${all.map((unit) => unit.name)} set=${(value) => open({ task: value })} />
        <${Select} label="Group" all="all groups" value=${group} values=${all.flatMap((unit) => unit.group ?? [])} set=${(value) => open({ group: value })} />
        <${Select} label="Tag" all="all tags" value=${tag} values=${all.flatMap((unit) => unit.tags)} set=${(value) => open({ tag: value })} />
        <select aria-label="Time" value=${period} onChange=${(event) => open({ period: event.target.value, since: "", until: "" })}>
          ${Object.entries(PERIODS).map(([value, words]) => html`<option key=${value} value=${value}>${words}</option>`)}
        </select>
        ${between && html`${time("since", "from")}${time("until", "to")}`}
      </div>
      ${query
        ? html`<${Hits} found=${found} pattern=${finder(query)} label=${(hit) => `${hit.taskName} ${moment(hit.ts)}`} address=${(hit) => link("run", hit.runId, { line: hit.n + 1, ...parametersOf(query) })} />`
        : html`<${Empty}><p>Finds text or a regular expression (RE2) in the logs of all runs, the newest run first.</p></${Empty}>`}
    </${Card}>`;
}
