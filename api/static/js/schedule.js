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

/** By time zone, undefined: the reader's; making one takes long. */
const clocks = new Map();

/** What clocks of a time zone show; null if it is a rule, or a zone that browsers do not know. */
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

/** The time zone of a schedule where its clocks show another time than the reader's: " (Europe/Berlin)". */
function zoneNote({ timezone, nextRunAt }) {
  const at = new Date(nextRunAt ?? Date.now());
  return timezone && clockOf(timezone, at) !== clockOf(undefined, at) ? ` (${timezone.replace(/^Etc\//, "")})` : "";
}

/** "At 03:30, only on Sunday", "At 03:30 (UTC)", "Every 90s", "When files change", "When the daemon starts", "On demand". */
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
