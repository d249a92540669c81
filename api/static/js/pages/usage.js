// The usage page: what the runs of each task and service took in a period, and the trend against the period before.
import { html } from "../../vendor/preact.js";
import { get } from "../api.js";
import { count, duration, number, size } from "../format.js";
import { Card, Empty, Head, UnitLink, Unloaded, useLoad, useTitle } from "../parts/basics.js";
import { go, link, route } from "../routes.js";
import { currentMs } from "../server_time.js";
import { unitNamed } from "../state.js";

const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
const PERIODS = { day: ["Day", 1], week: ["Week", 7], month: ["Month", 30], quarter: ["Quarter", 91] };
const cpu = (one) => one.cpuUserMs + one.cpuSystemMs;
const disk = (one) => (one.readBytes === undefined && one.writeBytes === undefined ? undefined : (one.readBytes ?? 0) + (one.writeBytes ?? 0));
/** By column: its heading, the figure of a unit, and its text. */
const COLUMNS = {
  cpu: ["Processor time", cpu, duration],
  memory: ["Peak memory", (one) => one.maxRssBytes, size],
  disk: ["Disk", disk, size],
  runs: ["Runs", (one) => one.runs, number],
  time: ["Run time", (one) => one.durationMs, duration],
};
const WITHOUT_TREND = ["time"]; // it is counted by whole days

/** The change from `before` to `now` as text, and whether it rose: {text, more}; null if there is nothing to compare. */
export function trendOf(now, before) {
  if (now === undefined || before === undefined || (!now && !before)) return null;
  if (!before) return { text: "new", more: true };
  const by = Math.round((100 * (now - before)) / before);
  if (!by) return { text: "same", more: false };
  return { text: by > 900 ? `× ${Math.round(now / before)}` : `${by > 0 ? "+" : "−"}${Math.abs(by)} %`, more: by > 0 };
}

/** Load the figures of a period that ends with the current hour, and of the one before. */
async function load(days, end, signal) {
  const [first, middle, last] = [2, 1, 0].map((times) => new Date(end - times * days * DAY_MS).toISOString());
  const [now, before] = await Promise.all([
    get("api/resources/totals", { from: middle, to: last }, signal),
    get("api/resources/totals", { from: first, to: middle }, signal),
  ]);
  return { items: now.items, from: now.from, to: now.to, before: new Map(before.items.map((one) => [one.taskName, one])) };
}

function Figure({ column, one, before, most }) {
  const [, of, text] = COLUMNS[column];
  const value = of(one);
  const whole = WITHOUT_TREND.includes(column);
  const trend = whole ? null : trendOf(value, of(before));
  return html`<td class="number figure-of"><span>${value === undefined ? "–" : text(value)}</span>
    ${!whole && html`<span class="small soft trend" title=${trend ? `In the period before: ${text(of(before))}` : undefined}>${trend?.text}</span>`}
    <i style=${{ width: `${most ? (100 * (value ?? 0)) / most : 0}%` }}></i></td>`;
}

export function Usage() {
  useTitle("Usage");
  const { query } = route.value;
  const period = PERIODS[query.get("period")] ? query.get("period") : "week";
  const sort = COLUMNS[query.get("sort")] ? query.get("sort") : "cpu";
  const up = query.get("dir") === "asc";
  const end = Math.ceil(currentMs() / HOUR_MS) * HOUR_MS;
  const { data, error, reload } = useLoad((signal) => load(PERIODS[period][1], end, signal), [period, end]);
  const set = (changes) => go(link("usage", { ...Object.fromEntries(query), ...changes }), { replace: true });
  const [, of] = COLUMNS[sort];
  const zero = { runs: 0, cpuUserMs: 0, cpuSystemMs: 0, durationMs: 0 };
  const items = (data?.items ?? []).toSorted((a, b) => ((of(b) ?? -1) - (of(a) ?? -1)) * (up ? -1 : 1) || a.taskName.localeCompare(b.taskName));
  const most = Object.fromEntries(Object.entries(COLUMNS).map(([key, [, figure]]) => [key, Math.max(0, ...items.map((one) => figure(one) ?? 0))]));
  const tools = html`<span class="row" role="group" aria-label="Period">${Object.entries(PERIODS).map(([key, [label]]) => html`<button key=${key} aria-pressed=${key === period} onClick=${() => set({ period: key })}>${label}</button>`)}</span>`;
  return html`<${Head} title="Usage" tools=${tools} />
    <${Card} label="Usage" className="usage-table">
      ${!data && html`<${Unloaded} error=${error} retry=${reload} rows=${8} />`}
      ${data && !items.length && html`<${Empty}>Nothing ran in this period.</${Empty}>`}
      ${items.length > 0 && html`<div class="scroll-x"><table>
        <thead><tr><th>Name</th><th class="wide">Group</th>${Object.entries(COLUMNS).map(([key, [label]]) => html`<th key=${key} class="number" aria-sort=${key === sort ? (up ? "ascending" : "descending") : undefined}>
          <button onClick=${() => set({ sort: key, dir: key === sort && !up ? "asc" : "" })}>${label}${key === sort ? (up ? " ↑" : " ↓") : ""}</button></th>`)}</tr></thead>
        <tbody>${items.map((one) => html`<tr key=${one.taskName}>
          <td class="name"><${UnitLink} name=${one.taskName} /></td><td class="wide soft">${unitNamed(one.taskName)?.group}</td>
          ${Object.keys(COLUMNS).map((key) => html`<${Figure} key=${key} column=${key} one=${one} before=${data.before.get(one.taskName) ?? zero} most=${most[key]} />`)}
        </tr>`)}</tbody>
      </table></div>
      <p class="body small soft">${count(PERIODS[period][1], "day")} until now, compared with the ${count(PERIODS[period][1], "day")} before. Run time is that of the runs that ended on these days (UTC).</p>`}
    </${Card}>`;
}
