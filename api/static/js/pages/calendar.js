// The calendar page: what all schedules do in the coming two weeks, as a week of hours, a day, or a list.
import { html } from "../../vendor/preact.js";
import { get } from "../api.js";
import { count, day as dayName, duration, moment, number, relative } from "../format.js";
import { At, Card, Empty, Head, UnitLink, Unloaded, useLoad, useTitle } from "../parts/basics.js";
import { go, link, route } from "../routes.js";
import { currentMs } from "../server_time.js";
import { now } from "../state.js";
import { NARROW } from "../log/rows.js";
import { Withheld } from "../units/withheld.js";

const DAY_MS = 86_400_000;
const DAYS = 14;
const WEEK = 7;
const LIMIT = 5000;
const REQUESTS = 4;
const SHOWN = 3; // entries in an hour of a week; the others are counted
const LISTED = 500;
const AGAIN_MS = 300_000;
const VIEWS = [["week", "Week"], ["day", "Day"], ["list", "List"]];
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const HEADING = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short" });

const clock = (at) => CLOCK.format(new Date(at));
const beginOf = (one) => one.startsAt ?? one.at;
const keyOf = (date) => [date.getFullYear(), date.getMonth() + 1, date.getDate()].map((part) => String(part).padStart(2, "0")).join("-");

/** Return the coming days as [{key, date}], from today on, by the reader's clock. */
function comingDays() {
  const today = new Date(currentMs());
  return Array.from({ length: DAYS }, (_, ahead) => new Date(today.getFullYear(), today.getMonth(), today.getDate() + ahead)).map((date) => ({ key: keyOf(date), date }));
}

/** Load what schedules do up to `to` (ms since the epoch); `more`: from when on the answer lacks entries. */
async function load(to, signal) {
  let from;
  let found = null;
  for (let request = 0; request < REQUESTS; request += 1) {
    const page = await get("api/upcoming", { from, to: new Date(to).toISOString(), limit: LIMIT }, signal);
    found = found ? { ...found, items: [...found.items, ...page.items], nextFrom: page.nextFrom } : page;
    if (!page.nextFrom) break;
    from = page.nextFrom;
  }
  return found;
}

/** What an entry says beside its time and task. */
function about(one) {
  const parts = [];
  if (one.kind === "runs") parts.push(`${count(one.count, "run")} until ${clock(one.until)}`);
  if (one.kind === "closed" || one.kind === "paused") parts.push(`${one.kind === "paused" ? "paused" : "closed"}${one.cause ? `: ${one.cause}` : ""}${one.until ? `, until ${moment(one.until)}` : ""}`);
  if (one.usualMs !== undefined) parts.push(`usually ${duration(one.usualMs)}`);
  if (one.doneBy) parts.push(`to be done by ${moment(one.doneBy)}`);
  if (one.note === "gap") parts.push("the clocks skip this time");
  if (one.note === "repeated") parts.push("the clocks show this time twice");
  return parts.join(", ");
}

const idle = (one) => one.kind === "closed" || one.kind === "paused";

export function CalendarPage() {
  useTitle("Calendar");
  const { query } = route.value;
  const days = comingDays();
  const view = VIEWS.some(([name]) => name === query.get("view")) ? query.get("view") : NARROW ? "list" : "week";
  const chosen = Math.max(0, days.findIndex(({ key }) => key === query.get("day")));
  const to = days.at(-1).date.getTime() + DAY_MS;
  const turn = Math.floor(now.value / AGAIN_MS);
  const { data, error, reload } = useLoad((signal) => load(to, signal), [days[0].key, turn]);
  const set = (changes) => go(link("calendar", { ...Object.fromEntries(query), ...changes }), { replace: true });
  const tools = html`<span class="row" role="group" aria-label="View">${VIEWS.map(([name, label]) => html`<button key=${name} aria-pressed=${name === view} onClick=${() => set({ view: name })}>${label}</button>`)}</span>`;
  const byDay = new Map(days.map(({ key }) => [key, []]));
  for (const one of data?.items ?? []) byDay.get(keyOf(new Date(beginOf(one))))?.push(one);
  return html`<${Head} title="Calendar" tools=${tools} />
    ${data?.pause && html`<div class="banner warn"><${Withheld} word="All schedules are paused" ...${data.pause} /></div>`}
    ${!data && html`<${Card} label="Calendar"><${Unloaded} error=${error} retry=${reload} rows=${10} /></${Card}>`}
    ${data && view === "week" && html`<${Week} first=${chosen < WEEK ? 0 : WEEK} days=${days} byDay=${byDay} data=${data} set=${set} />`}
    ${data && view === "day" && html`<${Day} chosen=${chosen} days=${days} byDay=${byDay} data=${data} set=${set} />`}
    ${data && view === "list" && html`<${List} items=${data.items} />`}
    ${data?.nextFrom && html`<p class="small soft">Times after ${moment(data.nextFrom)} are not listed: there are too many.</p>`}`;
}

/** What holds for a whole day: many runs of one task, open windows, changes of the clocks, closed and paused times. */
function Whole({ date, items, data }) {
  const within = (from, until) => Date.parse(from) < date.getTime() + DAY_MS && (!until || Date.parse(until) > date.getTime());
  return html`<ul class="whole-day">
    ${items.filter((one) => one.kind === "runs").map((one) => html`<li key=${one.taskName} class="band" title=${about(one)}><${UnitLink} name=${one.taskName} /> <b>× ${number(one.count)}</b></li>`)}
    ${data.windows.filter((one) => within(one.since, one.until)).map((one) => html`<li key=${one.name + one.since} title=${one.note}>window ${one.name} ${clock(one.since)}${one.until && `–${clock(one.until)}`}</li>`)}
    ${data.clockChanges.filter((one) => within(one.at, one.at)).map((one) => html`<li key=${one.at} class="clock-change">clocks change at ${clock(one.at)}, ${one.afterS > one.beforeS ? "+" : "−"}${duration(1000 * Math.abs(one.afterS - one.beforeS))}</li>`)}
  </ul>`;
}

function Chip({ one }) {
  const text = [`${clock(beginOf(one))} ${one.taskName}`, about(one)].filter(Boolean).join(": ");
  return html`<a class=${idle(one) ? "chip idle" : "chip"} href=${link("task", one.taskName)} title=${text} aria-label=${text}><span class="number">${clock(beginOf(one))}</span> ${one.taskName}</a>`;
}

function Week({ first, days, byDay, data, set }) {
  const shown = days.slice(first, first + WEEK);
  const hours = Array.from({ length: 24 }, (_, hour) => hour);
  const single = new Map(shown.map(({ key }) => [key, byDay.get(key).filter((one) => one.kind !== "runs")]));
  const at = (key, hour) => single.get(key).filter((one) => new Date(beginOf(one)).getHours() === hour);
  const tools = html`<button disabled=${first === 0} onClick=${() => set({ day: days[0].key })}>This week</button><button disabled=${first > 0} onClick=${() => set({ day: days[WEEK].key })}>Next week</button>`;
  return html`<${Card} title=${`${HEADING.format(shown[0].date)} to ${HEADING.format(shown.at(-1).date)}`} className="calendar-week" tools=${tools}>
    <div class="scroll-x" tabindex="0" role="region" aria-label="Hours of the week"><table>
      <thead><tr><td></td>${shown.map(({ key, date }) => html`<th key=${key} scope="col"><button class="link" onClick=${() => set({ view: "day", day: key })}>${HEADING.format(date)}</button></th>`)}</tr></thead>
      <tbody>
        <tr><th scope="row">All day</th>${shown.map(({ key, date }) => html`<td key=${key}><${Whole} date=${date} items=${byDay.get(key)} data=${data} /></td>`)}</tr>
        ${hours.map((hour) => html`<tr key=${hour}><th scope="row" class="number">${clock(new Date(2026, 0, 5, hour))}</th>${shown.map(({ key }) => {
          const some = at(key, hour);
          return html`<td key=${key}>${some.slice(0, SHOWN).map((one) => html`<${Chip} key=${one.at + one.taskName} one=${one} />`)}
            ${some.length > SHOWN && html`<button class="link small" onClick=${() => set({ view: "day", day: key })}>${some.length - SHOWN} more</button>`}</td>`;
        })}</tr>`)}
      </tbody>
    </table></div>
  </${Card}>`;
}

function Day({ chosen, days, byDay, data, set }) {
  const { key, date } = days[chosen];
  const to = (by) => set({ day: days[chosen + by].key });
  const tools = html`<button disabled=${chosen === 0} onClick=${() => to(-1)}>Previous day</button><button disabled=${chosen === DAYS - 1} onClick=${() => to(1)}>Next day</button>`;
  const items = byDay.get(key);
  return html`<${Card} title=${dayName(key)} tools=${tools}>
    <div class="body"><${Whole} date=${date} items=${items} data=${data} /></div>
    <${Rows} items=${items} time=${(one) => clock(beginOf(one))} empty="Nothing is scheduled on this day." />
  </${Card}>`;
}

const List = ({ items }) => html`<${Card} title=${count(items.length, "entry", "entries")}><${Rows} items=${items} time=${(one) => html`<${At} at=${beginOf(one)} />, ${relative(beginOf(one), now.value)}`} empty="Nothing is scheduled in the coming two weeks." /></${Card}>`;

function Rows({ items, time, empty }) {
  if (!items.length) return html`<${Empty}>${empty}</${Empty}>`;
  return html`<div class="scroll-x"><table class="calendar-rows"><thead><tr><th>Time</th><th>Task</th><th>About it</th></tr></thead>
    <tbody>${items.slice(0, LISTED).map((one) => html`<tr key=${one.at + one.taskName + one.kind} class=${idle(one) ? "idle" : ""}>
      <td class="time">${time(one)}</td><td><${UnitLink} name=${one.taskName} /></td><td class="soft">${about(one)}</td></tr>`)}</tbody></table></div>
    ${items.length > LISTED && html`<p class="body small soft">The first ${number(LISTED)} of ${number(items.length)}.</p>`}`;
}
