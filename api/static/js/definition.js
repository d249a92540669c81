// Formats the definition of a task or service: keys as in the configuration file, values as text.
import { duration, size } from "./format.js";

/** Return the name of an API key in the configuration file: "flapWindowMs" is "flap_window". */
export const keyName = (key) => key.replace(/_?(Ms|ms|Bytes|bytes)$/, "").replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** Return a value as text; numbers of keys that end in Ms or Bytes are durations and sizes. */
export function valueText(key, value) {
  if (typeof value === "string") return value;
  return inline(key, value, OURS.includes(key) ? keyName : (name) => name);
}

/** Return a value as in the configuration file, in one line. nameOf(key): the name of a key of a table. */
function inline(key, value, nameOf) {
  if (/(Ms|_ms)$/.test(key) && typeof value === "number") return duration(value);
  if (/(Bytes|_bytes)$/.test(key) && typeof value === "number") return size(value);
  if (Array.isArray(value)) return `[${value.map((one) => inline("", one, keyName)).join(", ")}]`;
  if (!isTable(value)) return JSON.stringify(value);
  const pairs = Object.entries(value).filter(([, inner]) => inner !== null);
  return `{ ${pairs.map(([name, inner]) => `${nameOf(name)} = ${inline(nameOf === keyName ? name : "", inner, keyName)}`).join(", ")} }`;
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
