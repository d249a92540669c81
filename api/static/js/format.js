// Formats times, durations, sizes and counts for display. Times are in the browser's time zone; titles add UTC.
import { currentMs } from "./server_time.js";

const UNITS = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1000],
];

/** A duration in milliseconds, in at most two units: "1h 4m", "3.2s", "85ms". */
export function duration(ms) {
  if (ms === undefined || ms === null || Number.isNaN(ms)) return "–";
  if (ms < 1000) return `${Math.max(0, Math.round(ms))}ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)}s`;
  const first = UNITS.findIndex(([, size]) => ms >= size);
  const [unit, size] = UNITS[first];
  const next = UNITS[first + 1];
  const whole = Math.floor(ms / size);
  const rest = next ? Math.floor((ms % size) / next[1]) : 0;
  return rest ? `${whole}${unit} ${rest}${next[0]}` : `${whole}${unit}`;
}

/** The distance of `at` (a Date, text or milliseconds since the epoch) from `now`: "3m ago", "in 2h". */
export function relative(at, now = currentMs()) {
  const by = new Date(at).getTime() - now;
  if (Math.abs(by) < 1000) return "now";
  const far = Math.abs(by);
  const unit = UNITS.find(([, size]) => far >= size);
  const text = `${Math.floor(far / unit[1])}${unit[0]}`;
  return by < 0 ? `${text} ago` : `in ${text}`;
}

const SAME_DAY = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const SAME_YEAR = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short" });
const MINUTE = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });

/** Whether the reader's locale uses the 24-hour clock. */
export const HOURS_24 = ["h23", "h24"].includes(SAME_DAY.resolvedOptions().hourCycle);

const unbroken = (text) => text.replaceAll(" ", "\u00a0");

/** A time, without the parts that equal those of `now`; a line breaks only between the day and the time of day. */
export function moment(at, now = new Date(currentMs())) {
  const date = new Date(at);
  if (date.toDateString() === now.toDateString()) return SAME_DAY.format(date);
  if (date.getFullYear() !== now.getFullYear()) return FULL.format(date);
  return `${unbroken(SAME_YEAR.format(date))}, ${unbroken(MINUTE.format(date))}`;
}

/** A time in full, for titles: local, and in UTC as ISO 8601. */
export const exact = (at) => `${FULL.format(new Date(at))} (${new Date(at).toISOString()})`;

const ISO = /\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g;

/** A sentence of the daemon with its times, ISO 8601 in UTC, as `moment` shows them. */
export const local = (text) => text.replace(ISO, (at) => moment(at));

/** The body of a notification without the id of its run, which has a link of its own, and with local times. */
export function sentencesOf({ body, runId }) {
  const text = local(body.startsWith(`Run ${runId}: `) ? body.slice(`Run ${runId}: `.length) : body);
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** A local time to the minute, as datetime-local fields expect it: "2026-11-21T14:05"; "" for an invalid time. */
export function localMinute(at) {
  const date = new Date(at || Number.NaN);
  if (Number.isNaN(date.getTime())) return "";
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** The value of a datetime-local field as ISO 8601 in UTC, for the API; "" for an empty field. */
export const toApi = (text) => (text ? new Date(text).toISOString() : "");

/** A calendar day with its weekday, from text such as "2026-11-21". */
export const day = (text) => DAY.format(new Date(`${text}T12:00:00`));

const SIZES = ["B", "KB", "MB", "GB", "TB", "PB"];

/** A number of bytes as text: "1.4 MB". The units are powers of 1024. */
export function size(bytes) {
  if (bytes === undefined || bytes === null) return "–";
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < SIZES.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 && unit ? value.toFixed(1) : Math.round(value)} ${SIZES[unit]}`;
}

/** A share in percent: "0 %", "4.2 %", "37 %". */
export const percent = (value) => `${value >= 0.05 && value < 10 ? value.toFixed(1) : Math.round(value)} %`;

/** A number with the thousands separators of the reader's locale. */
export const number = (value) => value.toLocaleString();

/** A number with its noun: "1 run", "2 runs". */
export const count = (value, noun, plural = `${noun}s`) => `${number(value)} ${value === 1 ? noun : plural}`;

/** The duration of a run, until now if it is running, in milliseconds; undefined if it never started. */
export function tookMs(run, now = currentMs()) {
  if (!run.startedAt) return undefined;
  const end = run.endedAt ? new Date(run.endedAt).getTime() : now;
  return Math.max(0, end - new Date(run.startedAt).getTime());
}

const ID_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const ID_TIME = 10; // digits of an id that hold its time

/** The time at which the id of a run (a ULID) was made, in milliseconds since the epoch. */
export const createdMs = (id) => [...id.slice(0, ID_TIME)].reduce((ms, digit) => 32 * ms + ID_DIGITS.indexOf(digit), 0);
