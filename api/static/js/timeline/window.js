// The window of time that the timeline shows: reads it from the query, moves and zooms it, and computes the axis ticks.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
export const SPANS = [["hour", "Hour", HOUR], ["day", "Day", DAY], ["week", "Week", 7 * DAY]];
const LEAST = MINUTE;
const MOST = 28 * DAY;
const AHEAD = 0.02; // share of the window after the current time
const STEPS = [1, 5, 15, 30].map((n) => n * SECOND).concat([1, 5, 10, 15, 30].map((n) => n * MINUTE), [1, 2, 3, 6, 12].map((n) => n * HOUR));
const TICK_PX = 86;

/**
 * Return the window {from, to, live} that a page's query (URLSearchParams) describes; times are ms since the epoch. A
 * live window has no fixed end: it follows the current time.
 */
export function windowOf(query, nowMs) {
  const wanted = query.get("span") ?? "day";
  const seconds = Number(wanted);
  const span = SPANS.find(([name]) => name === wanted)?.[2] ?? (seconds > 0 ? Math.min(MOST, Math.max(LEAST, seconds * SECOND)) : DAY);
  const end = Date.parse(query.get("to") ?? "");
  if (!Number.isNaN(end)) return { from: end - span, to: end, live: false };
  const step = Math.max(SECOND, span / 1000); // a live window advances by about a pixel at a time
  const to = Math.ceil(nowMs / step) * step + AHEAD * span;
  return { from: to - span, to, live: true };
}

/** Return the query parameters {span, to} of a window; `to` is undefined for a live window. */
export function queryOf({ from, to }, nowMs) {
  const span = Math.round((to - from) / SECOND);
  const name = SPANS.find((one) => one[2] === span * SECOND)?.[0];
  return { span: name ?? span, to: to >= nowMs ? undefined : new Date(Math.round(to / SECOND) * SECOND).toISOString() };
}

/** Return the window moved by `share` of its span, but not into the future. */
export function moved({ from, to }, share, nowMs) {
  const span = to - from;
  const end = Math.min(nowMs + AHEAD * span, to + share * span);
  return { from: end - span, to: end };
}

/** Return the window with its span multiplied by `factor`; the time at `at` (0: left edge, 1: right edge) stays put. */
export function zoomed({ from, to }, factor, at, nowMs) {
  const before = to - from;
  const span = Math.min(MOST, Math.max(LEAST, before * factor));
  const end = Math.min(nowMs + AHEAD * span, from + at * before + (1 - at) * span);
  return { from: end - span, to: end };
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const SECONDS = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DATE = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short" });

/** Return the ticks [{at, text}] that fit on an axis `width` pixels wide, in the browser's time zone. `at` is in ms. */
export function ticksOf({ from, to }, width) {
  const room = Math.max(1, Math.floor(width / TICK_PX));
  const step = STEPS.find((one) => (to - from) / one <= room);
  const ticks = [];
  const day = new Date(from);
  day.setHours(0, 0, 0, 0);
  if (!step) {
    const days = Math.max(1, Math.ceil((to - from) / DAY / room));
    for (; day < to; day.setDate(day.getDate() + days)) if (day >= from) ticks.push({ at: day.getTime(), text: DATE.format(day) });
    return ticks;
  }
  // Start again at each midnight, so that ticks return to full hours after a clock change.
  for (; day < to; day.setDate(day.getDate() + 1)) {
    const next = new Date(day);
    next.setDate(day.getDate() + 1);
    const first = Math.max(0, Math.ceil((from - day) / step));
    for (let at = day.getTime() + first * step; at < Math.min(to, next); at += step) {
      const midnight = at === day.getTime();
      ticks.push({ at, text: midnight ? DATE.format(at) : step < MINUTE ? SECONDS.format(at) : CLOCK.format(at) });
    }
  }
  return ticks;
}
