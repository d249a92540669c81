// The appearance of states of runs and services: a tone (good, bad, warn, busy, mute), a word, an icon.

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

/** How a service that fails again and again is shown, beside its state. */
export const FLAPPING = { tone: "bad", word: "flapping", icon: "alert" };

const look = ([tone, word, icon]) => ({ tone, word, icon });

/** How a run is shown: by its phase, or by why it ended. */
export const ofRun = (run) => look(RUNS[run.status === "ended" ? run.endReason : run.status] ?? ["mute", "?", "alert"]);

/** How a reason, or a phase, is shown. */
export const ofReason = (reason) => look(RUNS[reason] ?? ["mute", reason, "alert"]);

/** How a service, or one of its instances, is shown. */
export const ofService = (state) => look(SERVICES[state] ?? ["mute", state, "alert"]);

/** Every phase and end reason, for filters. */
export const STATUSES = Object.keys(RUNS);

/** Reasons that mean that something went wrong. */
export const FAILURES = ["failed", "timeout", "crashed", "log_overflow", "start_failed"];

/** How a task or service is shown as a whole. */
export function ofUnit(unit) {
  if (unit.kind === "service") return ofService(unit.state);
  if (unit.active.running) return ofReason("running");
  if (unit.active.pending) return ofReason("pending");
  return unit.lastRun ? ofRun(unit.lastRun) : look(["mute", "never ran", "clock"]);
}
