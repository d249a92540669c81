// The page of a task or service: its state, schedule or uptime, history, runs, logs and definition.
import { html, useEffect, useMemo, useState } from "../../vendor/preact.js";
import { enableService, unacknowledge } from "../actions.js";
import { get, taskPath } from "../api.js";
import { keyName, valueText } from "../definition.js";
import { duration, localMinute, moment, number, size, tookMs } from "../format.js";
import { Acknowledged } from "../units/acknowledged.js";
import { Act, Ago, At, Badge, Card, Crumbs, Empty, Problem, Skeleton, useLoad, useTitle } from "../parts/basics.js";
import { Calendar } from "../units/calendar.js";
import { Chart, TIMES } from "../parts/chart.js";
import { StoppedBy, UnitHistory, useChanges } from "../units/history.js";
import { Heat, HeatKey } from "../units/heat.js";
import { RunsTable } from "../runs/runs_table.js";
import { FlowGrid, FlowSteps } from "../units/flow.js";
import { UnitActions } from "../units/unit_actions.js";
import { Instances, Uptime, useUptime } from "../units/uptime.js";
import { Withheld } from "../units/withheld.js";
import { listen } from "../live.js";
import { LogPanel } from "../log/panel.js";
import { Hits, SearchField, finder, parametersOf, queryOf, useSearch } from "../log/search.js";
import { UnitLog } from "../log/source.js";
import { go, link, route } from "../routes.js";
import { words } from "../schedule.js";
import { daemon, mayOperate, throttle, unitNamed, units } from "../state.js";
import { FAILURES, FLAPPING, ofUnit } from "../states.js";

const CHARTED = 200;
const NOTES = { gap: "this local time does not exist; runs at the end of the gap", repeated: "the clocks show this time twice" };

export function UnitPage({ name }) {
  useTitle(name);
  const unit = unitNamed(name);
  const changes = useChanges(name, unit);
  if (!units.value) return html`<h1>${name}</h1><${Card} label="Loading"><${Skeleton} rows=${8} /></${Card}>`;
  if (!unit) {
    return html`<h1>${name}</h1><${Card} label="Not configured"><${Empty}>
      <p>No task or service with this name is configured. Earlier runs are below.</p>
    </${Empty}></${Card}><${RunsTable} name=${name} page=${["task", name]} />`;
  }
  const task = unit.kind === "task";
  return html`<div class="trail"><${Crumbs} above=${[["Overview", link()], ...(unit.flow ? [[unit.flow, link("task", unit.flow)]] : [])]}>${name}</${Crumbs}></div>
    <div class="page-head">
      <h1>${name}</h1><${Badge} look=${ofUnit(unit)} />
      ${unit.flapping && html`<${Badge} look=${FLAPPING} />`}
      ${unit.paused && html`<${Badge} look=${{ tone: "warn", word: "schedule paused", icon: "pause" }} />`}
      ${unit.tags.map((tag) => html`<span class="tag">${tag}</span>`)}
      <span class="spring"></span><${UnitActions} unit=${unit} large />
    </div>
    ${unit.description && html`<p class="soft">${unit.description}</p>`}
    ${unit.withheld && html`<div class="banner busy"><${Withheld} word=${task ? "Paused" : "Disabled"} ...${unit.withheld} /><span class="spring"></span>
      ${!task && html`<${Act} disabled=${!mayOperate.value} run=${() => enableService(name)}>Enable</${Act}>`}</div>`}
    ${unit.acknowledged && html`<div class="banner busy"><${Acknowledged} unit=${unit} /><span class="spring"></span>
      <${Act} disabled=${!mayOperate.value} run=${() => unacknowledge(name)}>Undo</${Act}></div>`}
    <${StoppedBy} unit=${unit} changes=${changes} />
    ${task ? html`<${OfTask} unit=${unit} />` : html`<${OfService} unit=${unit} />`}
    <${LogSearch} name=${name} />
    <${RunsTable} name=${name} page=${["task", name]} />
    <${UnitHistory} changes=${changes} />
    <${Definition} unit=${unit} />`;
}

function OfTask({ unit }) {
  return html`${unit.steps && unit.lastRun && html`<${FlowSteps} key=${unit.lastRun.id} runId=${unit.lastRun.id} title="Steps of the newest run" /><${FlowGrid} name=${unit.name} />`}
    <div class="cards"><${Facts} unit=${unit} /><${Schedule} unit=${unit} /><${Durations} name=${unit.name} /></div>
    ${unit.nextRunAt && html`<${Calendar} unit=${unit} />`}
    <${Year} name=${unit.name} />`;
}

function OfService({ unit }) {
  const uptime = useUptime(unit.name);
  const source = useMemo(() => new UnitLog(taskPath(unit.name, "log/stream")), [unit.name]);
  const address = (n) => {
    const line = source.lineAt(n);
    return line?.runId ? link("run", line.runId, { line: line.runLine + 1 }) : null;
  };
  return html`<${Uptime} name=${unit.name} uptime=${uptime} />
    <div class="cards"><${Instances} unit=${unit} uptime=${uptime} /><${Facts} unit=${unit} /></div>
    <${LogPanel} source=${source} title="Log of all instances" address=${address} />`;
}

function Facts({ unit }) {
  const { data, reload } = useLoad((signal) => get("api/runs/summary", { task_name: unit.name }, signal), [unit.name]);
  const { data: took, reload: measure } = useLoad((signal) => get(taskPath(unit.name, "resources"), {}, signal), [unit.name]);
  useEffect(() => {
    const again = throttle(() => (reload(), measure()), 2000);
    return listen((kind, body) => (kind === "resumed" || (kind === "run.ended" && body.taskName === unit.name)) && again());
  }, [unit.name]);
  const judged = data ? data.success + data.failed : 0; // excludes runs that have not ended
  const rate = judged ? Math.round((100 * data.success) / judged) : null;
  return html`<${Card} title="At a glance"><div class="body"><dl class="facts">
    <div><dt>${unit.kind === "task" ? "Schedule" : "Kind"}</dt><dd>${words(unit)}</dd></div>
    ${unit.timezone && html`<div><dt>Time zone</dt><dd>${unit.timezone}</dd></div>`}
    ${unit.usualMs && html`<div><dt>Usually takes</dt><dd>${duration(unit.usualMs)}</dd></div>`}
    ${(unit.lateSince ?? unit.doneBy) && html`<div><dt>To be done by</dt><dd><${At} at=${unit.lateSince ?? unit.doneBy} /></dd></div>`}
    ${unit.group && html`<div><dt>Group</dt><dd>${unit.group}</dd></div>`}
    <div><dt>Runs kept</dt><dd class="figure">${data ? number(data.total) : "–"}</dd></div>
    ${unit.kind === "task" && html`<div><dt>Succeeded</dt><dd class="figure">${rate === null ? "–" : `${rate} %`}</dd></div>`}
    <div><dt>Failed</dt><dd class="figure">${data ? number(data.failed) : "–"}</dd></div>
    <div><dt>CPU, last day</dt><dd class="figure">${took ? duration(took.cpuUserMs + took.cpuSystemMs) : "–"}</dd></div>
    <div><dt>Peak memory, last day</dt><dd class="figure">${size(took?.maxRssBytes || undefined)}</dd></div>
    <div><dt>Last failure</dt><dd>${data?.lastFailure ? html`<a href=${link("run", data.lastFailure.id)}><${Ago} at=${data.lastFailure.createdAt} /></a>` : "–"}</dd></div>
  </dl></div></${Card}>`;
}

/** Return the time in the task's time zone, as "2026-03-01 02:30 there"; "" if the browser's clock shows the same. */
function there({ at, local }) {
  const minute = local.slice(0, 16);
  return minute === localMinute(at) ? "" : `${minute.replace("T", " ")} there`;
}

/** Explain why a task has no upcoming runs. */
function noneComing(unit) {
  if (unit.paused) return "The schedule is paused.";
  if (daemon.value?.pause) return "All schedules are paused.";
  if (unit.definition.runOnStart) return "It runs each time the daemon starts, and has no other schedule.";
  if (unit.definition.onChange?.length) return "It runs when files change, and has no other schedule.";
  return "No schedule. Run it by hand or through the API.";
}

function Schedule({ unit }) {
  const { data, error, reload } = useLoad((signal) => get(taskPath(unit.name, "schedule"), { count: 6 }, signal), [unit.name, unit.nextRunAt, unit.paused]);
  const coming = unit.paused || daemon.value?.pause ? [] : (data?.items ?? []);
  return html`<${Card} title="Next runs" className=${unit.nextRunAt && !unit.paused ? "next-runs" : ""}>
    ${error && html`<${Problem} error=${error} retry=${reload} />`}
    ${!data && !error && html`<${Skeleton} rows=${5} />`}
    ${data && !coming.length && html`<${Empty}>${noneComing(unit)}</${Empty}>`}
    <ul class="lines">${coming.map((one) => html`<li key=${one.at}>
      <span><${At} at=${one.startsAt ?? one.at} /> ${there(one) && html`<span class="soft small">${there(one)}</span>`}
        ${[NOTES[one.note], one.calendar, one.window].filter(Boolean).map((text) => html`<div class="small soft">${text}</div>`)}
        ${one.doneBy && html`<div class="small soft">to be done by <${At} at=${one.doneBy} /></div>`}</span>
      <span class="spring"></span><span class="soft small"><${Ago} at=${one.startsAt ?? one.at} /></span>
    </li>`)}</ul>
  </${Card}>`;
}

function Durations({ name }) {
  const { data, reload } = useLoad((signal) => get(taskPath(name, "runs"), { limit: CHARTED, status: "ended" }, signal), [name]);
  useEffect(() => {
    const again = throttle(reload, 3000);
    return listen((kind, body) => (kind === "resumed" || (kind === "run.ended" && body.taskName === name)) && again());
  }, [name]);
  const chart = useMemo(() => {
    const runs = (data?.items ?? []).filter((run) => tookMs(run) !== undefined && run.endedAt).reverse();
    const failed = (run) => FAILURES.includes(run.endReason);
    return {
      runs,
      times: runs.map((run) => Date.parse(run.startedAt) / 1000),
      series: [
        { label: "duration", token: "accent", format: duration, values: runs.map((run) => tookMs(run)) },
        { label: "failed", token: "bad-mark", format: duration, points: true, values: runs.map((run) => (failed(run) ? tookMs(run) : null)) },
      ],
    };
  }, [data]);
  const pick = (index) => chart.runs[index] && go(link("run", chart.runs[index].id));
  return html`<${Card} title="Durations" className="durations">
    ${!data && html`<${Skeleton} rows=${6} />`}
    ${data && chart.runs.length < 2 && html`<${Empty}>The chart appears after the second run.</${Empty}>`}
    ${chart.runs.length > 1 && html`<div class="body"><${Chart} times=${chart.times} series=${chart.series} steps=${TIMES} height=${150} onPick=${pick} text=${`Durations of the last ${chart.runs.length} runs, failures marked`} /></div>`}
  </${Card}>`;
}

function Year({ name }) {
  const { data, error, reload } = useLoad((signal) => get(taskPath(name, "days"), {}, signal), [name]);
  const address = (key) => {
    const begin = new Date(`${key}T00:00:00Z`);
    const end = new Date(begin.getTime() + 86_400_000 - 1);
    return link("runs", { task_name: name, created_after: begin.toISOString(), created_before: end.toISOString() });
  };
  return html`<${Card} title="The last year" className="year" tools=${html`<${HeatKey} />`}>
    ${error && html`<${Problem} error=${error} retry=${reload} />`}
    <div class="body">${data ? html`<${Heat} days=${data.items} address=${address} />` : !error && html`<${Skeleton} rows=${3} />`}</div>
  </${Card}>`;
}

function LogSearch({ name }) {
  const [query, setQuery] = useState(queryOf(route.value.query));
  const found = useSearch(taskPath(name, "log/search"), {}, query);
  const search = (wanted) => {
    setQuery(wanted);
    const none = { q: undefined, regex: undefined, case: undefined, all: undefined };
    go(link("task", name, { ...Object.fromEntries(route.value.query), ...none, ...parametersOf(wanted) }), { replace: true });
  };
  return html`<${Card} title="Search logs" tools=${html`<${SearchField} search=${search} label=${`Search all runs of ${name}`} initial=${query} />`}>
    ${query && html`<${Hits} found=${found} pattern=${finder(query)} label=${(hit) => moment(hit.ts)} address=${(hit) => link("run", hit.runId, { line: hit.n + 1, ...parametersOf(query) })} />`}
  </${Card}>`;
}

function Definition({ unit }) {
  const entries = Object.entries(unit.definition).filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && !value.length) && !(typeof value === "object" && !Object.keys(value).length));
  return html`<${Card} title="Definition"><div class="body"><dl class="definition">
    ${entries.map(([key, value]) => html`<dt>${keyName(key)}</dt><dd>${valueText(key, value)}</dd>`)}
  </dl></div></${Card}>`;
}
