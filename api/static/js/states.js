// How the states of runs and services look: a tone (good, bad, warn, busy or mute), a word and an icon.
import { alertOf, alertOfUnit } from "./runs/alerts.js";

const RUNS = {
  pending: ["mute", "waiting", "clock"],
  running: ["busy", "running", "play"],
  ended: ["mute", "ended", "square"],
  succeeded: ["good", "succeeded", "check"],
  failed: ["bad", "failed", "cross"],
  stopped: ["mute", "stopped", "square"],
  timeout: ["bad", "timed out", "cross"],
  crashed: ["bad", "crashed", "cross"],
  skipped: ["mute", "skipped", "skip"],
  log_overflow: ["bad", "log overflow", "cross"],
  queue_full: ["warn", "queue full", "alert"],
  dst_skipped: ["mute", "skipped (DST)", "skip"],
  daemon_stopped: ["mute", "daemon stopped", "square"],
  missed: ["warn", "missed", "alert"],
  start_failed: ["bad", "start failed", "cross"],
};

const SERVICES = {
  stopped: ["mute", "stopped", "square"],
  starting: ["busy", "starting", "play"],
  running: ["good", "running", "check"],
  backoff: ["warn", "restarting soon", "alert"],
  stopping: ["mute", "stopping", "square"],
  exited: ["mute", "exited", "square"],
  fatal: ["bad", "down", "cross"],
};

/** The look of a service that fails repeatedly, shown beside its state. */
export const FLAPPING = { tone: "bad", word: "flapping", icon: "alert" };

/** The look of a task that has not done its work by its deadline. */
export const LATE = { tone: "bad", word: "late", icon: "alert" };

const look = ([tone, word, icon]) => ({ tone, word, icon });

/** Return the look of a run: that of its end reason once it has ended, otherwise that of its alert or its status. */
export const ofRun = (run) => alertOf(run)?.look ?? look(RUNS[run.status === "ended" ? run.endReason : run.status] ?? ["mute", "?", "alert"]);

/** Return the look of an end reason or a status. */
export const ofReason = (reason) => look(RUNS[reason] ?? ["mute", reason, "alert"]);

/** Return the look of a service state; instances have the same states. */
export const ofService = (state) => look(SERVICES[state] ?? ["mute", state, "alert"]);

/** Every status and end reason, for filters. */
export const STATUSES = Object.keys(RUNS);

/** End reasons that count as failures. */
export const FAILURES = ["failed", "timeout", "crashed", "log_overflow", "start_failed"];

/** Return the look of a task or service. An alert comes first; a task looks like its active runs, or else its last run. */
export function ofUnit(unit) {
  if (unit.kind === "service" && unit.state === "running") return alertOfUnit(unit)?.look ?? ofService(unit.state);
  if (unit.kind === "service") return unit.withheld && unit.state === "stopped" ? look(["mute", "disabled", "square"]) : ofService(unit.state);
  if (unit.lateSince) return LATE;
  if (unit.active.running) return alertOfUnit(unit)?.look ?? ofReason("running");
  if (unit.active.pending) return ofReason("pending");
  return unit.lastRun ? ofRun(unit.lastRun) : look(["mute", "never ran", "clock"]);
}
