// Why a run ended, in one sentence.
import { count, duration, moment, tookMs } from "./format.js";

/** `ending`: the answer of /api/runs/{runId}/ending, or null while it is not known. */
export function sentence(run, ending) {
  if (run.status === "pending") return run.retryAttempt ? "It waits until it is tried again." : "It waits for its turn.";
  if (run.status === "running") return "It is running.";
  const took = tookMs(run);
  const after = took === undefined ? "" : ` after ${duration(took)}`;
  const by = ending?.requestedBy ? ` by ${ending.requestedBy}` : "";
  const signal = ending?.signal ? ` by ${ending.signal}${ending.coreDumped ? ", with a core dump" : ""}` : "";
  const told = systemLine(ending);
  const words = {
    succeeded: `It succeeded${after}.`,
    failed: signal ? `It was killed${signal}${after}, and nobody here asked for that.` : `It failed${after} with exit code ${run.exitCode}.`,
    stopped: took === undefined ? `It was stopped${by} before it began.` : `It was stopped${by}${after}.`,
    timeout: `It ran longer than it may, and was ended${after}.`,
    crashed: "The daemon died under it; how it ended is not known.",
    skipped: "It did not run: another run of the task was still going on.",
    log_overflow: `It printed more than its log may hold, and was ended${after}.`,
    queue_full: "It did not run: too many runs of the task were waiting already.",
    dst_skipped: "It did not run: the clocks were changed, and its policy leaves such a time out.",
    daemon_stopped: `It was ended because the daemon was shut down${after}.`,
    missed: `Its time passed while the daemon was down or the host asleep${ending?.missedCount > 1 ? ` (stands for ${count(ending.missedCount, "time")})` : ""}.`,
    start_failed: `It could not be started${told ? `: ${told}` : "."}`,
  };
  const parts = [words[run.endReason]];
  if (ending?.oomKilled) parts.push("The kernel killed it for want of memory.");
  if (ending?.killedLeftovers?.length) parts.push(`${count(ending.killedLeftovers.length, "process", "processes")} that outlived it were killed.`);
  if (ending?.retryAt) parts.push(`It is tried again at ${moment(ending.retryAt)}.`);
  return parts.join(" ");
}

const systemLine = (ending) => ending?.lastLines?.findLast((line) => line.stream === "system")?.text;
