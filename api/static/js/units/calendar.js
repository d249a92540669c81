// A calendar of a task's upcoming runs: this week and the next four, in the browser's time zone.
import { html } from "../../vendor/preact.js";
import { get, taskPath } from "../api.js";
import { count, moment } from "../format.js";
import { Card, Problem, Skeleton, useLoad } from "../parts/basics.js";

const MOST = 100; // upcoming times to request; the API allows no more
const WEEKS = 5;
const SHOWN = 3; // times listed per day
const WEEKDAY = new Intl.DateTimeFormat(undefined, { weekday: "short" });
const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DATE = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const LONG = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });

/** Return the first day of the week in the browser's locale: 1 is Monday, 7 is Sunday. */
function firstWeekday() {
  const locale = new Intl.Locale(navigator.language);
  return (locale.getWeekInfo?.() ?? locale.weekInfo)?.firstDay ?? 1;
}

/**
 * Return the local midnights of WEEKS weeks, from the first day of this week on. The Date constructor adds the days,
 * because a day with a clock change does not have 24 hours.
 */
function daysFrom(today) {
  const back = (today.getDay() - (firstWeekday() % 7) + 7) % 7;
  return Array.from({ length: 7 * WEEKS }, (_, index) => new Date(today.getFullYear(), today.getMonth(), today.getDate() - back + index));
}

function Day({ date, today, times, known }) {
  const past = date < today;
  const label = `${LONG.format(date)}: ${past ? "past" : known ? count(times.length, "run") : "not known"}`;
  const more = times.length - SHOWN;
  return html`<td class=${date.getTime() === today.getTime() ? "today" : past ? "past" : ""} aria-label=${`${label}${times.length ? `, at ${times.slice(0, SHOWN).map((at) => TIME.format(at)).join(", ")}` : ""}`}>
    <span class="date">${date.getDate() === 1 || date.getTime() === today.getTime() ? DATE.format(date) : date.getDate()}</span>
    <span class="times">${times.slice(0, SHOWN).map((at) => html`<span key=${at.getTime()} class="number">${TIME.format(at)}</span>`)}
      ${more > 0 && html`<span class="soft">${more} more</span>`}</span>
    ${times.length > 0 && html`<span class="many badge busy">${times.length}</span>`}
    ${!past && !known && html`<span class="soft">…</span>`}
  </td>`;
}

export function Calendar({ unit }) {
  const { data, error, reload } = useLoad((signal) => get(taskPath(unit.name, "schedule"), { count: MOST }, signal), [unit.name, unit.nextRunAt, unit.paused]);
  if (unit.paused || (data && !data.items.length)) return null;
  const coming = (data?.items ?? []).map((one) => new Date(one.startsAt ?? one.at));
  const last = coming.length < MOST ? null : coming.at(-1); // null: the list is complete; otherwise later runs are unknown
  const now = new Date();
  const today = new Date(now.getFullYear(), now.getMonth(), now.getDate());
  const days = daysFrom(today);
  const byDay = Map.groupBy ? Map.groupBy(coming, (at) => at.toDateString()) : new Map();
  if (!Map.groupBy) for (const at of coming) byDay.set(at.toDateString(), [...(byDay.get(at.toDateString()) ?? []), at]);
  const weeks = Array.from({ length: WEEKS }, (_, week) => days.slice(7 * week, 7 * week + 7));
  const note = last && last < days.at(-1) && html`<span class="small soft">The next ${MOST} runs, up to ${moment(last)}</span>`;
  return html`<${Card} title="Coming runs" className="calendar-card" tools=${note}>
    ${error && html`<${Problem} error=${error} retry=${reload} />`}
    ${!data && !error && html`<${Skeleton} rows=${8} />`}
    ${data && html`<table class="calendar">
      <thead><tr>${days.slice(0, 7).map((date) => html`<th scope="col">${WEEKDAY.format(date)}</th>`)}</tr></thead>
      <tbody>${weeks.map((week) => html`<tr>${week.map(
        (date) => html`<${Day} key=${date.getTime()} date=${date} today=${today} times=${byDay.get(date.toDateString()) ?? []} known=${!last || date <= last} />`,
      )}</tr>`)}</tbody>
    </table>`}
  </${Card}>`;
}
