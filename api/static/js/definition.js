// Formats the definition of a task or service: keys as in the configuration file, values as text.
import { duration } from "./format.js";

/** Return the name of an API key in the configuration file: "flapWindowMs" is "flap_window". */
export const keyName = (key) => key.replace(/Ms$/, "").replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** Return a value as text; numbers of keys that end in Ms are durations. */
export function valueText(key, value) {
  if (key.endsWith("Ms") && typeof value === "number") return duration(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

const isTable = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const OURS = ["ready", "live"]; // tables with predefined keys; in other tables, the user chooses the keys

/**
 * Return the keys that differ between two definitions, [{name, before, after}], all as text.
 * nameOf(key): the name of a key. absent: the text for a key that one definition does not have.
 */
export function changedKeys(before, after, nameOf = keyName, absent = "default") {
  return [...new Set([...Object.keys(before), ...Object.keys(after)])].sort().flatMap((key) => {
    const [old, now] = [before[key], after[key]];
    if (JSON.stringify(old) === JSON.stringify(now)) return [];
    if (isTable(old ?? now) && isTable(now ?? old)) {
      const inside = changedKeys(old ?? {}, now ?? {}, OURS.includes(key) ? keyName : (name) => name, "not set");
      return inside.map((one) => ({ ...one, name: `${nameOf(key)}.${one.name}` }));
    }
    const text = (value) => (value === undefined ? absent : valueText(key, value));
    return [{ name: nameOf(key), before: text(old), after: text(now) }];
  });
}
