// Finds the tasks and services that need attention, and the tabs that each belongs to.
import { computed } from "../vendor/preact.js";
import { duration, moment } from "./format.js";
import { alertOfUnit } from "./runs/alerts.js";
import { now, units } from "./state.js";
import { FAILURES, FLAPPING, LATE, ofRun } from "./states.js";
import { waits } from "./units/waits.js";
import { waitingFor } from "./verdict.js";

const STARTING_MS = 60_000; // for services without a readiness probe; a probe has its own time limit
const LATE_MS = 60_000; // a run that is overdue by less may be about to start
const DOWN = ["fatal", "backoff", "exited"];

/**
 * Return the tasks and services that need attention, worst first: [{unit, rank, look, text, why, at, run, active}].
 * all: every task and service. at: the current time, in milliseconds since the epoch. run: the ID of a run to look at.
 * why: the reason, a sentence. active: whether a run is under way, so that a restart or another run does not help.
 */
export function attention(all, at) {
  const found = [];
  for (const unit of all) {
    if (unit.flow) continue; // its flow needs attention
    const alert = alertOfUnit(unit);
    if (unit.kind === "service") {
      const late = lateInstance(unit, at);
      const why = unit.instances?.find((one) => one.state === unit.state && one.detail)?.detail;
      if (unit.state === "fatal") found.push({ unit, rank: 0, text: "is down: too many failures in a row, no more restarts", why, run: runOf(unit) });
      else if (unit.flapping) found.push({ unit, look: FLAPPING, rank: 1, text: `failed more than ${unit.definition.flapRestarts} times within ${duration(unit.definition.flapWindowMs)}, and restarts each time`, run: runOf(unit) });
      else if (late) found.push({ unit, rank: 1, text: `has been starting for ${duration(at - Date.parse(late.since))}`, why: reasonOf(unit, late), run: late.runId, active: true });
      else if (unit.state === "backoff") found.push({ unit, rank: 2, text: "ended and restarts soon", why, run: runOf(unit) });
      else if (unit.state === "exited") found.push({ unit, rank: 3, text: "exited; its restart policy does not restart it", why, run: runOf(unit) });
      else if (alert) found.push({ unit, rank: 2, ...alert, active: true });
      continue;
    }
    if (alert) {
      found.push({ unit, rank: 2, ...alert, active: true });
      continue;
    }
    const last = unit.lastRun;
    if (last && last.status === "ended" && FAILURES.includes(last.endReason)) {
      const code = last.endReason === "failed" ? ` with exit code ${last.exitCode}` : "";
      const attempts = last.retryAttempt ? `, attempt ${last.retryAttempt + 1}` : "";
      found.push({ unit, rank: 1, text: `${ofRun(last).word}${code}${attempts}`, at: last.endedAt ?? last.createdAt, run: last.id });
    } else if (unit.lateSince) {
      found.push({ unit, look: LATE, rank: 1, text: `was to be done by ${moment(unit.lateSince)}`, at: unit.lateSince, run: last?.id, active: unit.active.running > 0 });
    } else if (unit.failingSince) {
      found.push({ unit, look: FLAPPING, rank: 2, text: `failed too often: the limit is ${unit.definition.failureRate} runs`, at: unit.failingSince, run: last?.id });
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

/** Return why an instance is not ready: its own status, or what its run waits for. */
export function reasonOf(unit, one) {
  const reasons = waits.value.get(unit.name) ?? [];
  return one?.detail ?? (reasons.length ? waitingFor(reasons) : undefined);
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
  const late = service ? Boolean(lateInstance(unit, at)) : unit.lateSince || last?.endReason === "missed" || behind;
  return [failing && "failing", unit.flapping && "flapping", (late || alertOfUnit(unit)) && "late", unit.active.running > 0 && "running", unit.paused && "paused"].filter(Boolean);
}
