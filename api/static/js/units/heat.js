// The runs of a year: a column for each week, a square for each day, coloured by the results of its runs. Days with
// runs are links. Only one link is in the Tab order; the arrow keys move the focus to the others.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { count, day, duration } from "../format.js";
import { currentMs } from "../server_time.js";
import { FAILURES, ofReason } from "../states.js";
import { told as spoken } from "../parts/tip.js";

const DAY_MS = 86_400_000;
const CELL = 12;
const MONTH_ROOM = 3 * CELL; // a month with less space gets no label
const MONTHS = new Intl.DateTimeFormat(undefined, { month: "short", timeZone: "UTC" });
const WEEKDAYS = new Intl.DateTimeFormat(undefined, { weekday: "short", timeZone: "UTC" });
const SHOWN_WEEKDAYS = [0, 2, 4];
const MONDAY_MS = 4 * DAY_MS; // 1970-01-05
const STEPS = { ArrowUp: -DAY_MS, ArrowDown: DAY_MS, ArrowLeft: -7 * DAY_MS, ArrowRight: 7 * DAY_MS };

const failures = (one) => FAILURES.reduce((sum, reason) => sum + (one.counts[reason] ?? 0), 0);

function tone(one, most) {
  const failed = failures(one);
  if (failed) return failed * 2 >= one.total ? "bad2" : "bad1";
  if (one.counts.missed) return "warn";
  return one.total * 3 > most * 2 ? "good3" : one.total * 3 > most ? "good2" : "good1";
}

function told(one) {
  const parts = [count(one.total, "run")];
  for (const [reason, times] of Object.entries(one.counts)) parts.push(`${times} ${ofReason(reason).word}`);
  if (one.meanMs !== undefined) parts.push(`mean ${duration(one.meanMs)}`);
  return `${day(one.day)}: ${parts.join(", ")}`;
}

/** A mark for readers who cannot distinguish the colours: a stroke for failures, a dot for missed runs. */
function markOf(one, x, y) {
  if (failures(one)) return html`<path class="mark" d=${`M${x + 2} ${y + 8}l6 -6`} />`;
  return one.counts.missed ? html`<path class="mark" d=${`M${x + 4} ${y + 5}h2`} />` : null;
}

const keyOf = (at) => new Date(at).toISOString().slice(0, 10);

/** days: the items of /api/tasks/{taskName}/days. address(day): the link to the runs of a day, such as "2026-03-01". */
export function Heat({ days, address }) {
  const [chosen, setChosen] = useState(null);
  const box = useRef(null);
  useEffect(() => {
    box.current.scrollLeft = box.current.scrollWidth; // if the year is wider than the page, show its end
  }, []);
  const byDay = new Map(days.map((one) => [one.day, one]));
  const today = Math.floor(currentMs() / DAY_MS) * DAY_MS;
  const weekday = Math.floor((today - MONDAY_MS) / DAY_MS) % 7;
  const first = today - weekday * DAY_MS - 52 * 7 * DAY_MS;
  const most = Math.max(1, ...days.map((one) => one.total));
  const inTab = byDay.has(chosen) ? chosen : days.at(-1)?.day;
  /** Return the nearest day with runs, from the day `from` in the direction of the key `name`. */
  const after = (from, name) => {
    if (name === "Home") return days.find((one) => Date.parse(one.day) >= first)?.day;
    if (name === "End") return days.at(-1)?.day;
    const step = STEPS[name];
    if (!step) return undefined;
    let at = Date.parse(from) + step;
    while (at >= first && at <= today && !byDay.has(keyOf(at))) at += step;
    return at >= first && at <= today ? keyOf(at) : from;
  };
  const keys = (event) => {
    const next = after(event.target.dataset.day, event.key);
    if (!next) return;
    event.preventDefault();
    setChosen(next);
    event.currentTarget.querySelector(`[data-day="${next}"]`)?.focus();
  };
  const cells = [];
  const months = [];
  let month = -1;
  for (let at = first, index = 0; at <= today; at += DAY_MS, index += 1) {
    const date = new Date(at);
    const key = keyOf(at);
    const x = 30 + Math.floor(index / 7) * CELL;
    if (index % 7 === 0 && date.getUTCMonth() !== month) {
      month = date.getUTCMonth();
      months.push({ x, name: MONTHS.format(date) });
    }
    const one = byDay.get(key);
    const text = one ? told(one) : `${day(key)}: no runs`;
    const square = html`<rect key=${key} x=${x} y=${14 + (index % 7) * CELL} width="10" height="10" rx="2" class=${one ? tone(one, most) : ""}><title>${text}</title></rect>${one && markOf(one, x, 14 + (index % 7) * CELL)}`;
    cells.push(one ? html`<a key=${key} href=${address(key)} data-day=${key} aria-label=${text} tabindex=${key === inTab ? 0 : -1} ...${spoken(text)}>${square}</a>` : square);
  }
  const weekdays = SHOWN_WEEKDAYS.map(
    (index) => html`<text x="0" y=${23 + index * CELL}>${WEEKDAYS.format(new Date(MONDAY_MS + index * DAY_MS))}</text>`,
  );
  const failed = days.reduce((sum, one) => sum + failures(one), 0);
  const total = days.reduce((sum, one) => sum + one.total, 0);
  const text = `The last year: ${count(total, "run")}, ${count(failed, "failure")}`;
  return html`<div class="scroll-x" ref=${box}>
    <svg class="heat" viewBox="0 0 ${30 + 53 * CELL} ${16 + 7 * CELL}" role="group" aria-label=${text} onKeyDown=${keys}>
      ${months.filter(({ x }, at) => (months[at + 1]?.x ?? Infinity) - x >= MONTH_ROOM).map(({ x, name }) => html`<text x=${x} y="9">${name}</text>`)}${weekdays}${cells}
    </svg>
  </div>`;
}

export const HeatKey = () => html`<p class="key">
  <span><i class="good"></i>all succeeded</span><span><i class="bad"></i>failures</span><span><i class="warn"></i>missed</span><span><i></i>no runs</span>
</p>`;
