// Loads the runs of a window of time, arranges them in rows and lanes, and finds their overlaps and slot usage.
import { get } from "../api.js";
import { currentMs } from "../server_time.js";

const TASKS = ["cron", "api", "cloud", "startup"]; // triggers of task runs
const MOST = 500; // runs loaded per trigger
const MOST_BEFORE = 200; // runs loaded that were created before the window, per request
const BEFORE_MS = 7 * 86_400_000; // ended runs created longer before the window are not loaded
const VISIBLE = 0.01; // share of the window; a shorter run is too narrow to see
const LANES = 4;
const NAMED = 4; // overlapping units listed by name

/** Return when a run ended, ms since the epoch; `nowMs` if it has not ended. */
export function endOf(run, nowMs) {
  if (run.endedAt) return Date.parse(run.endedAt);
  return run.status === "ended" ? Date.parse(run.startedAt ?? run.createdAt) : nowMs;
}

/**
 * Load the runs that were waiting or running between `from` and `to` (ms; `to` null: until now). `services` includes
 * runs of services. Return {runs, missing, since, some}:
 * runs: by creation time, oldest first. missing: the number of runs in the window that exceed the limit.
 * since: the runs created after this time are complete, ms; null if none is missing.
 * some: whether runs that began before the window may be missing.
 */
export async function loadRuns({ from, to, services }, signal) {
  const list = (query) => get("api/runs", { naming: "camel", ...query }, signal);
  const begin = new Date(from).toISOString();
  const before = { createdBefore: new Date(from - 1).toISOString() };
  const triggers = services ? [...TASKS, "service"] : TASKS;
  const [active, longest, ...within] = await Promise.all([
    list({ ...before, status: "running,pending", limit: MOST_BEFORE }),
    list({ ...before, status: "ended", createdAfter: new Date(from - BEFORE_MS).toISOString(), sortField: "duration", limit: MOST_BEFORE }),
    ...triggers.map((triggeredBy) => list({ triggeredBy, createdAfter: begin, createdBefore: to ? new Date(to).toISOString() : undefined, limit: MOST })),
  ]);
  const found = new Map();
  for (const { runs } of [...within, active, longest]) for (const run of runs) found.set(run.id, run);
  const cut = within.filter(({ runs, total }) => total > runs.length);
  const missing = cut.reduce((sum, { runs, total }) => sum + total - runs.length, 0);
  const shortest = longest.runs.at(-1);
  const some = active.total > active.runs.length || (longest.total > longest.runs.length && lasted(shortest) > VISIBLE * ((to ?? currentMs()) - from));
  return {
    runs: [...found.values()].sort((a, b) => a.createdAt.localeCompare(b.createdAt)),
    missing,
    since: missing ? Math.max(...cut.map(({ runs }) => Date.parse(runs.at(-1).createdAt))) : null,
    some,
  };
}

const lasted = (run) => (run.startedAt && run.endedAt ? Date.parse(run.endedAt) - Date.parse(run.startedAt) : 0);

/** Return the runs that were waiting or running in a window. */
export const runsIn = (runs, { from, to }, nowMs) => runs.filter((run) => endOf(run, nowMs) >= from && Date.parse(run.createdAt) <= to);

/**
 * Return a row {name, lanes} for each unit in `runs` (oldest first), sorted by name. A lane is a list of runs that do
 * not overlap. The last of LANES lanes also holds the runs that fit in no other lane.
 */
export function rowsOf(runs, nowMs) {
  const rows = new Map();
  for (const run of runs) {
    const begin = Date.parse(run.createdAt);
    const end = endOf(run, nowMs);
    if (!rows.has(run.taskName)) rows.set(run.taskName, { name: run.taskName, lanes: [], ends: [] });
    const { lanes, ends } = rows.get(run.taskName);
    let lane = ends.findIndex((one) => one <= begin);
    if (lane < 0) lane = Math.min(lanes.length, LANES - 1);
    lanes[lane] ??= [];
    lanes[lane].push(run);
    ends[lane] = Math.max(ends[lane] ?? 0, end);
  }
  return [...rows.values()].sort((a, b) => a.name.localeCompare(b.name));
}

/**
 * Return a map from the id of a run to the other units that ran at the same time: {names, more}. `names` lists at most
 * NAMED of them; `more` counts the rest.
 */
export function overlapsOf(runs, nowMs) {
  const found = new Map();
  const note = (run, other) => {
    if (run.taskName === other.taskName) return;
    if (!found.has(run.id)) found.set(run.id, new Set());
    found.get(run.id).add(other.taskName);
  };
  let running = [];
  const started = runs.filter((run) => run.startedAt).sort((a, b) => a.startedAt.localeCompare(b.startedAt));
  for (const run of started) {
    const begin = Date.parse(run.startedAt);
    running = running.filter((other) => endOf(other, nowMs) > begin);
    for (const other of running) {
      note(run, other);
      note(other, run);
    }
    running.push(run);
  }
  return new Map([...found].map(([id, names]) => [id, { names: [...names].sort().slice(0, NAMED), more: Math.max(0, names.size - NAMED) }]));
}

/**
 * Return the slots that the runs held, sorted by name: [{name, most, parts}]. A part {from, to, held} is a period (ms)
 * in which the runs held `held` places; `most` is the maximum. usesOf(taskName): {slot: places}.
 */
export function slotsOf(runs, usesOf, nowMs) {
  const changes = new Map();
  for (const run of runs) {
    if (!run.startedAt) continue;
    for (const [slot, places] of Object.entries(usesOf(run.taskName))) {
      if (!changes.has(slot)) changes.set(slot, []);
      changes.get(slot).push([Date.parse(run.startedAt), places], [endOf(run, nowMs), -places]);
    }
  }
  return [...changes].sort(([a], [b]) => a.localeCompare(b)).map(([name, all]) => {
    const parts = [];
    let held = 0;
    let at = 0;
    for (const [time, by] of all.sort((a, b) => a[0] - b[0] || a[1] - b[1])) {
      if (held && time > at) parts.push({ from: at, to: time, held });
      held += by;
      at = time;
    }
    return { name, parts, most: Math.max(0, ...parts.map((one) => one.held)) };
  });
}
