// The overview page: units that need attention, the host, the board of all units, recent failures, slots, running runs
// and upcoming runs.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { acknowledge, unacknowledge } from "../actions.js";
import { get } from "../api.js";
import { attention } from "../attention.js";
import { count, exact, moment, relative, size } from "../format.js";
import { listen } from "../live.js";
import { Acknowledged } from "../units/acknowledged.js";
import { Act, Ago, At, Badge, Card, Empty, Problem, Skeleton, UnitLink, useLoad, useTitle } from "../parts/basics.js";
import { Board, useWide } from "../units/board.js";
import { Cause, CauseLine, learn } from "../runs/cause.js";
import { HostLine } from "../parts/host.js";
import { Icon } from "../parts/icon.js";
import { Slots, useSlots } from "../units/slots.js";
import { UnitActions, keysOf } from "../units/unit_actions.js";
import { link } from "../routes.js";
import { instanceOf, loadUnits, mayOperate, now, throttle, trouble, units } from "../state.js";
import { FAILURES, ofRun, ofUnit } from "../states.js";

const COMING = 8;
const LIVE_MS = 5000;
const RECENT_DAYS = 7;
const CAUSES_MS = 1500; // longest wait for failures and slots, which would move the content below them
const FAILURES_MS = 10_000; // shortest interval between reloads, in case a service crashes in a loop

/** Return the local midnight RECENT_DAYS days ago, as ISO 8601 in UTC. */
function lastWeek() {
  const day = new Date();
  day.setDate(day.getDate() - RECENT_DAYS);
  day.setHours(0, 0, 0, 0);
  return day.toISOString();
}

/**
 * Load the newest failure of each unit in the last RECENT_DAYS days, and reload when runs fail.
 * Return {failures, unlisted, known}: `failures` is [{run, cause}], `unlisted` the number of further units; `known` is
 * false until the first response.
 */
function useFailures() {
  const { data, error, reload } = useLoad((signal) => get("api/runs/failures", { since: lastWeek(), limit: 50 }, signal), []);
  useEffect(() => {
    const again = throttle(reload, FAILURES_MS, Date.now());
    return listen((kind, body) => (kind === "resumed" || (kind === "run.ended" && FAILURES.includes(body.endReason)) || body.affected) && again());
  }, []);
  useEffect(() => {
    if (data) learn(data.items);
  }, [data]);
  const failures = data?.items ?? [];
  return { failures, unlisted: (data?.total ?? 0) - failures.length, known: Boolean(data || error) };
}

/** Units that failed in the last RECENT_DAYS days but no longer need attention. */
function Recent({ all, failures, unlisted }) {
  const [more, setMore] = useState(false);
  const sick = new Set(attention(all, now.value).map(({ unit }) => unit.name));
  const found = failures.filter(({ run }) => !sick.has(run.taskName));
  if (!found.length) return null;
  const shown = more ? found : found.slice(0, 5);
  return html`<${Card} title="Failed in the last week" className="recent" tools=${html`<a class="small" href=${link("runs", { status: FAILURES.join() })}>all failures</a>`}>
    <ul class="lines">${shown.map(({ run, cause }) => html`<li key=${run.id}>
      <a class="when" href=${link("run", run.id)} aria-label=${`Failure of ${run.taskName}, ${moment(run.createdAt)}`}><${At} at=${run.createdAt} /></a>
      <span class="clip name"><${UnitLink} name=${run.taskName} /></span>
      <span class="clip why">${cause ? html`<${CauseLine} id=${run.id} cause=${cause} />` : html`<span class="soft">${ofRun(run).word}</span>`}</span>
    </li>`)}</ul>
    ${found.length > shown.length && html`<p class="body"><button class="link" onClick=${() => setMore(true)}>Show all ${found.length}</button></p>`}
    ${unlisted > 0 && html`<p class="body soft">Not listed: ${count(unlisted, "more unit")} that failed earlier.</p>`}
  </${Card}>`;
}

/**
 * The cause of a unit's failure: of a service's newest failure, or of the task's run with the id `run`. If `failures`
 * lacks that run, its cause is requested.
 */
function Why({ unit, run, failures, known }) {
  const newest = failures.find((one) => one.run.taskName === unit.name);
  if (newest && (unit.kind === "service" || newest.run.id === run)) return newest.cause ? html`<${CauseLine} id=${newest.run.id} cause=${newest.cause} />` : null;
  return known && unit.kind === "task" && FAILURES.includes(unit.lastRun?.endReason) ? html`<${Cause} id=${run} />` : null;
}

function Attention({ all, failures, known }) {
  const [more, setMore] = useState(false);
  const every = attention(all, now.value);
  const found = every.filter(({ unit }) => !unit.acknowledged);
  const acknowledged = every.filter(({ unit }) => unit.acknowledged);
  const shown = more ? found : found.slice(0, useWide() ? 6 : 2); // at most a third of the screen; wider ones scroll
  const tools = html`${found.length > shown.length && html`<button class="link" onClick=${() => setMore(true)}>Show all ${found.length}</button>`}
    ${found.length > 0 && html`<span class="badge bad">${found.length}</span>`}`;
  return html`<${Card} title="Needs attention" className=${more ? "attention" : "attention short"} tools=${tools}>
    ${!found.length && html`<p class="calm"><${Icon} name="check" />${acknowledged.length ? "All other tasks and services are fine." : "All good: no failed tasks, no failing services."}</p>`}
    <ul>${shown.map(
      ({ unit, look, text, why, at, run, active }) => html`<li key=${unit.name} onKeyDown=${keysOf(unit)}>
        <${Badge} look=${look ?? ofUnit(unit)} />
        <div class="what"><p><${UnitLink} name=${unit.name} /> ${text}${at && html` <span class="soft"><${Ago} at=${at} /></span>`}</p>
          ${why ? html`<span class="cause" title=${why}>${why}</span>` : html`<${Why} unit=${unit} run=${run} failures=${failures} known=${known} />`}</div>
        ${run && html`<a class="button" href=${link("run", run)}>Details</a>`}
        <button disabled=${!mayOperate.value} onClick=${() => acknowledge(unit.name)}>Acknowledge</button>
        <${UnitActions} unit=${unit} advised=${!active} />
      </li>`,
    )}</ul>
    ${acknowledged.length > 0 && html`<details class="acknowledged"><summary>${acknowledged.length} acknowledged</summary>
      <ul>${acknowledged.map(({ unit, text }) => html`<li key=${unit.name}><div class="what"><p><${UnitLink} name=${unit.name} /> ${text}</p><p class="small"><${Acknowledged} unit=${unit} /></p></div>
        <${Act} disabled=${!mayOperate.value} run=${() => unacknowledge(unit.name)}>Undo</${Act}></li>`)}</ul>
    </details>`}
  </${Card}>`;
}

/** Return whether the element of `ref` has been in view. */
function useSeen(ref) {
  const [seen, setSeen] = useState(false);
  useEffect(() => {
    if (seen) return undefined;
    const observer = new IntersectionObserver((entries) => setSeen(entries.at(-1).isIntersecting));
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, [seen]);
  return seen;
}

function Running({ all }) {
  const list = useRef(null);
  const seen = useSeen(list);
  const turn = Math.floor(now.value / LIVE_MS);
  const names = all.filter((unit) => unit.active.running).length;
  const { data, error } = useLoad(async (signal) => (seen ? get("api/resources", { samples: 1 }, signal) : null), [seen && turn, names, seen]);
  const items = [...(data?.items ?? [])].reverse();
  const services = new Set(all.filter((unit) => unit.kind === "service").map((unit) => unit.name));
  const shown = [...items.filter((one) => !services.has(one.taskName)), ...items.filter((one) => services.has(one.taskName))].slice(0, COMING);
  const usage = (one) => {
    const last = one.samples.at(-1);
    return last ? `${last.cpuPercent === undefined ? "" : `${last.cpuPercent.toFixed(0)} % · `}${size(last.rssBytes)}` : "";
  };
  return html`<${Card} title="Running now" tools=${html`<a class="small" href=${link("runs", { status: "running,pending" })}>${items.length ? `all ${items.length}` : "all"}</a>`}>
    ${seen && !data && !error && html`<${Skeleton} />`}
    ${data && !items.length && html`<${Empty}>Nothing is running.</${Empty}>`}
    <ul class="lines" ref=${list}>${shown.map((one) => html`<li key=${one.runId}>
      <a class="clip" href=${link("run", one.runId)}>${one.taskName}${instanceOf(one)}</a>
      <span class="spring"></span>
      <span class="soft small number">${usage(one)}</span>
    </li>`)}</ul>
  </${Card}>`;
}

function Coming({ all }) {
  const next = all.filter((unit) => unit.nextRunAt).sort((a, b) => a.nextRunAt.localeCompare(b.nextRunAt)).slice(0, COMING);
  return html`<${Card} title="Upcoming">
    ${!next.length && html`<${Empty}>Nothing is scheduled.</${Empty}>`}
    <ul class="lines">${next.map((unit) => html`<li key=${unit.name}>
      <span class="clip"><${UnitLink} name=${unit.name} /></span>
      <span class="spring"></span>
      <span class="small soft number" title=${exact(unit.nextRunAt)}><${At} at=${unit.nextRunAt} />, ${relative(unit.nextRunAt, now.value)}</span>
    </li>`)}</ul>
  </${Card}>`;
}

export function Overview() {
  useTitle("Overview");
  const all = units.value;
  const { failures, unlisted, known } = useFailures();
  const { slots, known: slotsKnown } = useSlots();
  const [waited, setWaited] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setWaited(true), CAUSES_MS);
    return () => clearTimeout(timer);
  }, []);
  if (!all || !((known && slotsKnown) || waited)) {
    return html`<h1>Overview</h1>${trouble.value ? html`<${Card} label="Problem"><${Problem} error=${{ message: trouble.value }} retry=${loadUnits} /></${Card}>` : html`<${Card} label="Loading"><${Skeleton} rows=${10} /></${Card}>`}`;
  }
  if (!all.length) {
    return html`<h1>Overview</h1><${Card} label="Nothing configured"><${Empty}>
      <p><b>No tasks or services yet.</b></p>
      <p>Add one to the configuration file, then reload it: <code>ringward reload</code></p>
      <pre class="mono sample">[tasks.hello]${"\n"}cron = "* * * * *"${"\n"}run = "echo hello"</pre>
      <a class="button" href=${link("daemon")}>Show configuration path</a>
    </${Empty}></${Card}>`;
  }
  return html`<h1 class="hidden-text">Overview</h1>
    <${Attention} all=${all} failures=${failures} known=${known} />
    <${HostLine} />
    <${Board} all=${all} />
    <${Recent} all=${all} failures=${failures} unlisted=${unlisted} />
    <${Slots} slots=${slots} />
    <div class="cards"><${Running} all=${all} /><${Coming} all=${all} /></div>`;
}
