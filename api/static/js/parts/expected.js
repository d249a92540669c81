// How long a run of a task usually takes, and how much of that is left: the median of its last successful runs.
import { html } from "../../vendor/preact.js";
import { get, taskPath } from "../api.js";
import { duration, tookMs } from "../format.js";
import { now } from "../state.js";
import { useLoad } from "./basics.js";

const JUDGED = 20;
const LEAST = 3; // fewer tell nothing

/** The median duration of the last successful runs of a task, ms; null when there are too few. */
export function useExpected(name, wanted) {
  const { data } = useLoad(
    async (signal) => (wanted ? get(taskPath(name, "runs"), { limit: JUDGED, status: "succeeded" }, signal) : null),
    [name, wanted],
  );
  const took = (data?.items ?? []).map((run) => tookMs(run)).filter((ms) => ms !== undefined);
  return took.length < LEAST ? null : took.sort((a, b) => a - b)[took.length >> 1];
}

/** A running task: what is left of its usual duration, or by how much it has exceeded that. */
export function Left({ run, expected }) {
  if (!expected) return null;
  const took = tookMs(run, now.value) ?? 0;
  const left = expected - took;
  const text = left >= 0 ? `usually takes ${duration(expected)}, about ${duration(left)} left` : `usually takes ${duration(expected)}, ${duration(-left)} longer so far`;
  return html`<span class="left ${left < -expected ? "late" : ""}"><progress max=${expected} value=${Math.min(took, expected)} aria-label="Share of the usual duration"></progress> ${text}</span>`;
}
