// Finds running runs that exceed max_duration_alert or by far their usual duration, or that have printed nothing for silence_alert.
import { effect, signal } from "../../vendor/preact.js";
import { Refused, get, runPath } from "../api.js";
import { duration } from "../format.js";
import { now, unitNamed, units } from "../state.js";

const AGAIN_MS = 15_000; // shortest interval between requests for the last output of a run
const OVERLONG = { tone: "warn", word: "taking long", icon: "alert" };
const SILENT = { tone: "warn", word: "silent", icon: "alert" };

/** The time of the last output by run id, ms since the epoch; only of runs that may be silent. */
const printed = signal(new Map());
const asked = new Map();

/** Return the runs of a unit that may be running: {id, startedAt}. */
const runsOf = (unit) =>
  unit.kind === "service"
    ? (unit.instances ?? []).filter((one) => one.runId && one.since).map((one) => ({ id: one.runId, taskName: unit.name, status: one.state, startedAt: one.since }))
    : unit.lastRun ? [unit.lastRun] : [];

async function ask(run) {
  asked.set(run.id, now.peek());
  try {
    const { lastOutputAt } = await get(runPath(run.id, "details"));
    printed.value = new Map([...printed.value, [run.id, Date.parse(lastOutputAt ?? run.startedAt)]]);
  } catch (error) {
    if (!(error instanceof Refused)) throw error; // it is asked again
  }
}

effect(() => {
  const at = now.value;
  for (const unit of units.value ?? []) {
    const limit = unit.definition.silenceAlertMs;
    if (!limit) continue;
    for (const run of runsOf(unit)) {
      const last = printed.peek().get(run.id) ?? Date.parse(run.startedAt);
      if (run.status === "running" && at - last >= limit && at - (asked.get(run.id) ?? 0) >= AGAIN_MS) ask(run);
    }
  }
});

/** Return how a running run exceeds a limit of its unit, {look, text}; null if it does not. */
export function alertOf(run) {
  const unit = run.status === "running" ? unitNamed(run.taskName) : null;
  const { maxDurationAlertMs: longest, silenceAlertMs: quiet } = unit?.definition ?? {};
  const slow = unit?.slowAfterMs;
  if (!longest && !quiet && !slow) return null;
  const silentMs = now.value - (printed.value.get(run.id) ?? now.value);
  if (quiet && silentMs >= quiet) return { look: SILENT, text: `has printed nothing for ${duration(silentMs)}` };
  const tookMs = now.value - Date.parse(run.startedAt);
  if (longest && tookMs >= longest) return { look: OVERLONG, text: `has been running for ${duration(tookMs)}; max_duration_alert is ${duration(longest)}` };
  return slow && tookMs >= slow ? { look: OVERLONG, text: `has been running for ${duration(tookMs)}; usually it takes ${duration(unit.usualMs)}` } : null;
}

/** Return the alert of a unit, {look, text, run}: that of its last run, or of one of its instances. */
export function alertOfUnit(unit) {
  for (const run of runsOf(unit)) {
    const found = alertOf(run);
    if (found) return { ...found, run: run.id };
  }
  return null;
}
