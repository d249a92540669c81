// Words and numbers for people. Times are in the zone of the browser; titles carry the exact one.

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

/** How far `at` (Date, text or ms) is from `now`: "3m ago", "in 2h". */
export function relative(at, now = Date.now()) {
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

/** Whether clocks of the reader's locale count to 24. */
export const HOURS_24 = ["h23", "h24"].includes(SAME_DAY.resolvedOptions().hourCycle);

const unbroken = (text) => text.replaceAll(" ", "\u00a0");

/** A time, as short as it can be told; where room is short it breaks between the day and the clock. */
export function moment(at, now = new Date()) {
  const date = new Date(at);
  if (date.toDateString() === now.toDateString()) return SAME_DAY.format(date);
  if (date.getFullYear() !== now.getFullYear()) return FULL.format(date);
  return `${unbroken(SAME_YEAR.format(date))}, ${unbroken(MINUTE.format(date))}`;
}

/** A time in full, for titles. */
export const exact = (at) => `${FULL.format(new Date(at))} (${new Date(at).toISOString()})`;

/** A time on the clocks of the browser, to the minute, as date-time fields have it: "2026-11-21T14:05"; "" for none. */
export function localMinute(at) {
  const date = new Date(at || Number.NaN);
  if (Number.isNaN(date.getTime())) return "";
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** A day of the calendar, in UTC: "2026-11-21". */
export const day = (text) => DAY.format(new Date(`${text}T12:00:00`));

const SIZES = ["B", "KB", "MB", "GB", "TB", "PB"];

/** A size in bytes: "1.4 MB". Powers of 1024. */
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

/** A number with separators. */
export const number = (value) => value.toLocaleString();

/** "1 run", "2 runs". */
export const count = (value, noun, plural = `${noun}s`) => `${number(value)} ${value === 1 ? noun : plural}`;

/** How long a run took, or takes so far, ms; undefined when it never started. */
export function tookMs(run, now = Date.now()) {
  if (!run.startedAt) return undefined;
  const end = run.endedAt ? new Date(run.endedAt).getTime() : now;
  return Math.max(0, end - new Date(run.startedAt).getTime());
}
