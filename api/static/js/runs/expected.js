// The expected duration of a task's run, and the time left. If the daemon does not know it (expected_duration), it is the
// median of the last successful runs.
import { html } from "../../vendor/preact.js";
import { get, taskPath } from "../api.js";
import { duration, tookMs } from "../format.js";
import { now, unitNamed } from "../state.js";
import { useLoad } from "../parts/basics.js";

const JUDGED = 20;
const LEAST = 3; // fewer runs give no useful median

/** Return how long a task's run usually takes, ms; null if nobody knows, or if it is not `wanted`. */
export function useExpected(name, wanted) {
  const known = unitNamed(name)?.usualMs;
  const { data } = useLoad(
    async (signal) => (wanted && !known ? get(taskPath(name, "runs"), { limit: JUDGED, status: "succeeded" }, signal) : null),
    [name, wanted, known],
  );
  if (known) return wanted ? known : null;
  const took = (data?.items ?? []).map((run) => tookMs(run)).filter((ms) => ms !== undefined);
  return took.length < LEAST ? null : took.sort((a, b) => a - b)[took.length >> 1];
}

/** The progress of a run: the time left of its `expected` duration (ms), or the time by which the run exceeds it. */
export function Left({ run, expected }) {
  if (!expected) return null;
  const took = tookMs(run, now.value) ?? 0;
  const left = expected - took;
  const text = left >= 0 ? `usually takes ${duration(expected)}, about ${duration(left)} left` : `usually takes ${duration(expected)}, ${duration(-left)} longer so far`;
  return html`<span class="left ${left < -expected ? "late" : ""}"><progress max=${expected} value=${Math.min(took, expected)} aria-label="Share of the usual duration"></progress> ${text}</span>`;
}
