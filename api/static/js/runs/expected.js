// The expected duration of a task's run, which is the median of its last successful runs, and the time left.
import { html } from "../../vendor/preact.js";
import { get, taskPath } from "../api.js";
import { duration, tookMs } from "../format.js";
import { now } from "../state.js";
import { useLoad } from "../parts/basics.js";

const JUDGED = 20;
const LEAST = 3; // fewer runs give no useful median

/** Return the median duration of a task's last successful runs, ms; null if too few, or if it is not `wanted`. */
export function useExpected(name, wanted) {
  const { data } = useLoad(
    async (signal) => (wanted ? get(taskPath(name, "runs"), { limit: JUDGED, status: "succeeded" }, signal) : null),
    [name, wanted],
  );
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
