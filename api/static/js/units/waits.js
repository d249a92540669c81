// Why the oldest waiting run of each task and service waits. `ringward ps` shows the same reasons.
import { effect, signal } from "../../vendor/preact.js";
import { Refused, get } from "../api.js";
import { throttle, units } from "../state.js";

const AGAIN_MS = 5000;
const MOST = 1000;

/** The reasons by name of the unit, as /api/runs/{runId}/details lists them. */
export const waits = signal(new Map());

const load = throttle(async () => {
  try {
    const query = { status: "pending", extended: true, naming: "camel", limit: MOST, sort_field: "createdAt", sort_direction: "asc" };
    const { runs, details } = await get("api/runs", query);
    waits.value = new Map(runs.toReversed().map((run) => [run.taskName, details[run.id]?.waitingFor ?? []]));
  } catch (error) {
    if (!(error instanceof Refused)) throw error; // the next change of a unit repeats the request
  }
}, AGAIN_MS);

effect(() => {
  if ((units.value ?? []).some((unit) => unit.active.pending)) load();
  else if (waits.peek().size) waits.value = new Map();
});
