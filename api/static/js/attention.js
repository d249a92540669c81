// Finds the tasks and services that need attention, and the tabs that each belongs to.
import { computed } from "../vendor/preact.js";
import { duration } from "./format.js";
import { now, units } from "./state.js";
import { FAILURES, FLAPPING, ofRun } from "./states.js";

const STARTING_MS = 60_000; // for services without a readiness probe; a probe has its own time limit
const LATE_MS = 60_000; // a run that is overdue by less may be about to start
const DOWN = ["fatal", "backoff", "exited"];

/**
 * Return the tasks and services that need attention, worst first: [{unit, rank, look, text, at, run}].
 * all: every task and service. at: the current time, in milliseconds since the epoch. run: the ID of a run to look at.
 */
export function attention(all, at) {
  const found = [];
  for (const unit of all) {
    if (unit.kind === "service") {
      const late = lateInstance(unit, at);
      if (unit.state === "fatal") found.push({ unit, rank: 0, text: "is down: too many failures in a row, no more restarts", run: runOf(unit) });
      else if (unit.flapping) found.push({ unit, look: FLAPPING, rank: 1, text: `failed more than ${unit.definition.flapRestarts} times within ${duration(unit.definition.flapWindowMs)}, and restarts each time`, run: runOf(unit) });
      else if (late) found.push({ unit, rank: 1, text: `has been starting for ${duration(at - Date.parse(late.since))}${late.detail ? `: ${late.detail}` : ""}`, run: late.runId });
      else if (unit.state === "backoff") found.push({ unit, rank: 2, text: "ended and restarts soon", run: runOf(unit) });
      else if (unit.state === "exited") found.push({ unit, rank: 3, text: "exited; its restart policy does not restart it", run: runOf(unit) });
      continue;
    }
    const last = unit.lastRun;
    if (last && last.status === "ended" && FAILURES.includes(last.endReason)) {
      const code = last.endReason === "failed" ? ` with exit code ${last.exitCode}` : "";
      const attempts = last.retryAttempt ? `, attempt ${last.retryAttempt + 1}` : "";
      found.push({ unit, rank: 1, text: `${ofRun(last).word}${code}${attempts}`, at: last.endedAt ?? last.createdAt, run: last.id });
    } else if (last?.endReason === "missed") {
      found.push({ unit, rank: 3, text: "missed its scheduled time", at: last.createdAt, run: last.id });
    }
  }
  return found.sort((a, b) => a.rank - b.rank || (b.at ?? "").localeCompare(a.at ?? ""));
}

/** Return an instance that has been starting for longer than its limit, or undefined. */
function lateInstance(unit, at) {
  const limit = unit.definition.ready?.timeoutMs ?? STARTING_MS;
  return unit.instances?.find((one) => one.state === "starting" && at - Date.parse(one.since) > limit);
}

const runOf = (unit) => unit.instances?.find((one) => one.state === unit.state)?.runId ?? unit.lastRun?.id;

/** How many tasks and services need attention and are not acknowledged. */
export const troubles = computed(() => attention(units.value ?? [], now.value).filter(({ unit }) => !unit.acknowledged).length);

/** Return the tabs that list a task or service, any of "failing", "flapping", "late", "running" and "paused". */
export function standsAs(unit, at) {
  const service = unit.kind === "service";
  const last = unit.lastRun;
  const failing = service ? DOWN.includes(unit.state) : last?.status === "ended" && FAILURES.includes(last.endReason);
  const behind = !service && !unit.paused && unit.nextRunAt && at - Date.parse(unit.nextRunAt) > LATE_MS;
  const late = service ? Boolean(lateInstance(unit, at)) : last?.endReason === "missed" || behind;
  return [failing && "failing", unit.flapping && "flapping", late && "late", unit.active.running > 0 && "running", unit.paused && "paused"].filter(Boolean);
}
