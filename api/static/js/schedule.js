// When a task runs, in words.
import cronstrue from "../vendor/cronstrue.js";
import { HOURS_24, duration, moment } from "./format.js";

function expression(text) {
  try {
    return cronstrue.toString(text, { use24HourTimeFormat: HOURS_24, verbose: false });
  } catch {
    return text; // expressions that the describer does not know are shown unchanged
  }
}

/** "At 03:30, only on Sunday", "Every 90s", "When the daemon starts", "On demand". */
export function words(unit) {
  if (unit.kind === "service") {
    const instances = unit.instances?.length ?? 1;
    return instances === 1 ? "Always on" : `Always on, ${instances} instances`;
  }
  if (unit.cron.length) return unit.cron.map(expression).join("; ");
  const { everyMs, at, atMs } = unit.definition;
  if (everyMs !== undefined) return `Every ${duration(everyMs)}`;
  if (at ?? atMs) return `Once, ${moment(at ?? atMs)}`;
  return unit.definition.runOnStart ? "When the daemon starts" : "On demand";
}
