// Describes in words when a task runs.
import cronstrue from "../vendor/cronstrue.js";
import { HOURS_24, duration, moment } from "./format.js";

function expression(text) {
  try {
    return cronstrue.toString(text, { use24HourTimeFormat: HOURS_24, verbose: false });
  } catch {
    return text; // cronstrue cannot parse the expression, so show it unchanged
  }
}

/** Formatters by time zone, undefined being the reader's; they are cached since they are slow to create. */
const clocks = new Map();

/** Return the time of day in a time zone; null for a zone that the browser does not know, such as a POSIX rule. */
function clockOf(timeZone, at) {
  if (!clocks.has(timeZone)) {
    try {
      clocks.set(timeZone, new Intl.DateTimeFormat("en-GB", { timeZone, timeStyle: "short" }));
    } catch {
      clocks.set(timeZone, null);
    }
  }
  return clocks.get(timeZone)?.format(at) ?? null;
}

/** Return the time zone of a schedule, " (Europe/Berlin)", if its clock differs from the reader's; otherwise "". */
function zoneNote({ timezone, nextRunAt }) {
  const at = new Date(nextRunAt ?? Date.now());
  return timezone && clockOf(timezone, at) !== clockOf(undefined, at) ? ` (${timezone.replace(/^Etc\//, "")})` : "";
}

/** Describe when a task or service runs: "At 03:30, only on Sunday", "Every 90s", "When files change", "Always on". */
export function words(unit) {
  if (unit.kind === "service") {
    const instances = unit.instances?.length ?? 1;
    return instances === 1 ? "Always on" : `Always on, ${instances} instances`;
  }
  if (unit.cron.length) return `${unit.cron.map(expression).join("; ")}${zoneNote(unit)}`;
  const { everyMs, at, atMs, onChange, runOnStart } = unit.definition;
  if (everyMs !== undefined) return `Every ${duration(everyMs)}`;
  if (at ?? atMs) return `Once, ${moment(at ?? atMs)}`;
  if (onChange?.length) return "When files change";
  return runOnStart ? "When the daemon starts" : "On demand";
}
