// Describes in words why a run ended, or why it is waiting.
import { count, duration, moment, tookMs } from "./format.js";
import { alertOf } from "./runs/alerts.js";

/** Names of triggers. */
export const STARTERS = { cron: "schedule", api: "user or API client", cloud: "remote control plane", service: "service restart", startup: "daemon start" };

/** Why a run was skipped, by the cause of its end. */
const SKIPPED = { paused: "the schedule was paused at that time", superseded: "a newer time of the schedule has succeeded" };

/** What a run waits for until a time. */
const DUE = {
  retry: "Waiting for its retry at",
  at: "Starts as requested at",
  condition: "Waiting for its condition, at most until",
  delay: "Waiting for its delay until",
  gate: "Waiting for other tasks, at most until",
  approval: "Waiting for approval, at most until",
};

const NOT_APPROVED = { rejected: "Rejected", approval_timeout: "Stopped: nobody approved it" };

/** Why a run was skipped, for lists. */
export const SKIPPED_FOR = { calendar: "closed day", window: "window", condition: "condition not met", gate: "other tasks had not succeeded", paused: "paused", superseded: "superseded" };

/** The name of a client, without the kind of its account. */
export const person = (by) => by.replace(/^(proxy )?user /, "").replace(/^hook:/, "hook ").replace(/^window: /, "the window ");

/** Who or what started a run; `by`: from its details. */
export const starter = (run, by) => (by ? person(by) : STARTERS[run.triggeredBy]);

/** ending: the response of /api/runs/{runId}/ending, or of …/details for a waiting run; null until it has loaded. */
export function sentence(run, ending) {
  if (run.status === "pending") return waiting(run, ending?.waitingFor ?? []);
  if (run.status === "running") return alertOf(run) ? `Running, but ${alertOf(run).look.word}.` : "Running.";
  const took = tookMs(run);
  const after = took === undefined ? "" : ` after ${duration(took)}`;
  const by = ending?.requestedBy ? ` by ${person(ending.requestedBy)}` : "";
  const signal = ending?.signal ? ` by ${ending.signal}${ending.coreDumped ? ", with a core dump" : ""}` : "";
  const told = systemLine(ending);
  const words = {
    succeeded: `Succeeded${after}.`,
    failed: ending?.endCause === "too_short" ? `Failed: it succeeded${after}, sooner than min_duration allows.` : signal ? `Killed${signal}${after} (not by Ringward).` : `Failed${after} (exit code ${run.exitCode}).`,
    stopped: NOT_APPROVED[ending?.endCause] ? `${NOT_APPROVED[ending.endCause]}${ending.endCause === "rejected" ? by : ""} before it started.` : took === undefined ? `Stopped${by} before it started.` : `Stopped${by}${after}.`,
    timeout: `Timed out: stopped${after}.`,
    crashed: "Outcome unknown: the daemon crashed during the run.",
    skipped: `Skipped: ${skippedFor(ending)}.`,
    log_overflow: `Stopped${after}: its output exceeded log_max_size.`,
    queue_full: "Rejected: the queue of the task was full.",
    dst_skipped: "Skipped: its local time does not exist (clock change).",
    daemon_stopped: `Stopped${after}: the daemon was shut down.`,
    missed: `Missed: the daemon was down, the host was suspended, or the database could not be written${ending?.missedCount > 1 ? ` (${count(ending.missedCount, "scheduled time")})` : ""}.`,
    start_failed: `Could not start${told ? `: ${told.replace(/^could not start: /, "")}` : "."}`,
  };
  const parts = [words[run.endReason]];
  if (ending?.oomKilled) parts.push("Out of memory: killed by the kernel.");
  if (ending?.killedLeftovers?.length) parts.push(`Killed ${count(ending.killedLeftovers.length, "process", "processes")} that outlived the main process.`);
  if (ending?.retryAt) parts.push(`Retry at ${moment(ending.retryAt)}.`);
  return parts.join(" ");
}

function skippedFor(ending) {
  if (ending?.endCause === "condition") return `its condition was not met (${ending.requestedBy?.replace(/^only_if: /, "") ?? "only_if"})${timesOf(ending)}`;
  if (ending?.endCause === "gate") return `these tasks had not succeeded: ${ending.requestedBy?.replace(/^requires: /, "") ?? "those in requires"}${timesOf(ending)}`;
  if (ending?.endCause === "window") return `the window ${ending.requestedBy?.replace(/^window: /, "") ?? ""} was open${timesOf(ending)}`;
  if (ending?.endCause !== "calendar") return SKIPPED[ending?.endCause] ?? "another run of the task was active";
  return `the day is closed by ${ending.requestedBy?.replace(/^calendar: /, "") ?? "a calendar"}${timesOf(ending)}`;
}

const timesOf = (ending) => (ending.missedCount > 1 ? ` (${count(ending.missedCount, "scheduled time")})` : "");

function waiting(run, reasons) {
  if (!reasons.length) return run.retryAttempt ? "Waiting for its retry." : "Queued.";
  return waitingFor(reasons);
}

/** Return why a run waits, in sentences. reasons: `waitingFor` of its details. */
export const waitingFor = (reasons) => reasons.map(reason).join(" ");

function reason({ kind, name, size, heldBy, until, approvers }) {
  if (kind === "approval" && approvers) return `Waiting for approval by ${approvers.join(" or ")}, at most until ${moment(until)}.`;
  if (kind === "paused") return "Waiting for the end of a pause.";
  if (until) return `${DUE[kind]} ${moment(until)}.`;
  const holders = [...new Set((heldBy ?? []).map((one) => one.taskName))];
  const by = holders.length ? `: ${holders.slice(0, 5).join(", ")}${holders.length > 5 ? ` and ${holders.length - 5} more` : ""}` : "";
  if (kind === "slot") return `Waiting for the slot ${name} (${count(size, "place")})${by}.`;
  if (kind === "task") return `Waiting for an earlier run: max_concurrent is ${size}.`;
  return `Waiting for other tasks: max_running is ${size}.`;
}

const systemLine = (ending) => ending?.lastLines?.findLast((line) => line.stream === "system")?.text;
