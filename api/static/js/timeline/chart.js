// The chart of the timeline: a row for each unit, a bar for each run. Only one bar is in the Tab order. The arrow keys
// move the focus between bars; with Shift they move the window.
import { html, useLayoutEffect, useRef, useState } from "../../vendor/preact.js";
import { UnitLink } from "../parts/basics.js";
import { told } from "../parts/tip.js";
import { count, duration, moment } from "../format.js";
import { link } from "../routes.js";
import { currentMs } from "../server_time.js";
import { ofRun } from "../states.js";
import { useGestures } from "./gestures.js";
import { endOf } from "./runs.js";
import { moved, ticksOf, zoomed } from "./window.js";

export const LATE_MS = 60_000; // shorter delays do not count as late
const KEY_SHARE = 0.25; // share of the window that an arrow key moves it by
const KEY_ZOOM = 2;
const BEYOND = 3; // percent of the width by which bars may extend past the edge
const LANE_PX = 20;
const TEXT_PX = 76; // width of a label on the time axis

/** Return how long a run waited until it started or was rejected, or has waited so far, ms. */
export const waitedMs = (run, nowMs) => (run.startedAt ? Date.parse(run.startedAt) : endOf(run, nowMs)) - Date.parse(run.createdAt);

/** Return whether a run waited longer than LATE_MS or missed its time. */
export const isLate = (run, nowMs) => run.endReason === "missed" || waitedMs(run, nowMs) > LATE_MS;

export function atTheSameTime(overlap) {
  if (!overlap) return "";
  return `${overlap.names.join(", ")}${overlap.more ? ` and ${overlap.more} more` : ""}`;
}

function words(run, overlap, nowMs) {
  const waited = waitedMs(run, nowMs);
  const parts = [`${run.taskName}: ${ofRun(run).word}`, moment(run.createdAt)];
  if (waited >= 1000) parts.push(`waited ${duration(waited)}`);
  if (run.startedAt) parts.push(`${run.endedAt ? "took" : "running for"} ${duration(endOf(run, nowMs) - Date.parse(run.startedAt))}`);
  if (overlap) parts.push(`at the same time: ${atTheSameTime(overlap)}`);
  return parts.join(", ");
}

/** Return a function from ms to a percentage of the axis. Times outside the window end BEYOND percent past the edge. */
const placer = ({ from, to }) => (at) => Math.min(100 + BEYOND, Math.max(-BEYOND, (100 * (at - from)) / (to - from)));
const share = (part) => `${part.toFixed(3)}%`;

function Bar({ run, overlap, place, nowMs, chosen }) {
  const begin = place(Date.parse(run.createdAt));
  const end = place(endOf(run, nowMs));
  const start = run.startedAt ? place(Date.parse(run.startedAt)) : end;
  const { tone } = ofRun(run);
  const point = !run.startedAt && run.status === "ended" ? "point" : "";
  const text = words(run, overlap, nowMs);
  return html`<a class="run ${tone} ${run.status} ${point} ${isLate(run, nowMs) ? "late" : ""}" href=${link("run", run.id)} data-run=${run.id} draggable="false"
    style=${{ left: share(begin), width: share(end - begin) }} title=${text} aria-label=${text} tabindex=${chosen ? 0 : -1} ...${told(text)}>
    ${start > begin && html`<i class="wait" style=${{ width: share((100 * (start - begin)) / (end - begin)) }}></i>`}
  </a>`;
}

/** Return the runs of all lanes of a row by creation time, oldest first: the order of the arrow keys. */
const inOrder = (row) => row.lanes.flat().sort((a, b) => a.createdAt.localeCompare(b.createdAt));

/**
 * Return the run that `key` moves the focus to from the run `id`. Left, Right, Home and End stay in the row; Up and
 * Down pick the run of the adjacent row that was created nearest in time.
 */
function next(rows, id, key) {
  const at = rows.findIndex((row) => row.lanes.some((lane) => lane.some((run) => run.id === id)));
  if (at < 0) return undefined;
  const runs = inOrder(rows[at]);
  const index = runs.findIndex((run) => run.id === id);
  const along = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: runs.length - 1 }[key];
  if (along !== undefined) return runs[Math.min(runs.length - 1, Math.max(0, along))];
  const other = rows[at + { ArrowUp: -1, ArrowDown: 1 }[key]];
  if (!other) return runs[index];
  const far = (run) => Math.abs(Date.parse(run.createdAt) - Date.parse(runs[index].createdAt));
  return inOrder(other).reduce((best, run) => (far(run) < far(best) ? run : best));
}

/** A row for a slot. A bar's height is the share of the slot's size in use, or of the peak if the size is unknown. */
function Slot({ slot, place }) {
  const full = Math.max(slot.most, slot.size ?? 0);
  return html`<div class="gantt-row slot">
    <div class="label small soft">slot ${slot.name}, <span class="number">at most ${slot.most}${slot.size !== undefined && ` of ${slot.size}`}</span></div>
    <div class="plot">${slot.parts.map(({ from, to, held }) => {
      const left = place(from);
      const width = place(to) - left;
      return width > 0 && html`<i key=${from} style=${{ left: share(left), width: share(width), height: `${Math.round((100 * held) / full)}%` }} title=${`${slot.name}: ${slot.size === undefined ? count(held, "place") : `${held} of ${count(slot.size, "place")}`} held`}></i>`;
    })}</div>
  </div>`;
}

/**
 * rows, slots, overlaps: see runs.js; each slot may also have a `size`. view: the window, {from, to, live}.
 * since: runs before this time (ms) may be missing; null if all are loaded.
 * behind(name): the due time of an overdue unit, ms, or null. tagsOf(name): labels of a unit, a list of strings.
 * change(window): called with {from, to} after a move or a zoom.
 */
export function Chart({ rows, slots, overlaps, view, since, behind, nowMs, change, tagsOf }) {
  const box = useRef(null);
  const axis = useRef(null);
  const focused = useRef(false);
  const [width, setWidth] = useState(800);
  const [chosen, setChosen] = useState(null);
  const plot = () => axis.current.getBoundingClientRect();
  const [shown, touch] = useGestures({ view, plot, box, change, now: currentMs });
  useLayoutEffect(() => {
    // Before the first paint: labels placed for another width would extend beyond the screen of a phone.
    setWidth(axis.current.clientWidth);
    const observer = new ResizeObserver((entries) => setWidth(entries.at(-1).contentRect.width));
    observer.observe(axis.current);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    // The focus is lost when the focused bar leaves the window; move it to the chart.
    if (focused.current && document.activeElement === document.body) box.current.focus();
  });
  const place = placer(shown);
  const ids = new Set(rows.flatMap((row) => row.lanes.flat().map((run) => run.id)));
  const here = ids.has(chosen) ? chosen : rows[0]?.lanes[0]?.[0]?.id;
  const keys = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const by = { ArrowLeft: -KEY_SHARE, ArrowRight: KEY_SHARE, PageUp: -1, PageDown: 1 }[event.key];
    const factor = { "+": 1 / KEY_ZOOM, "=": 1 / KEY_ZOOM, "-": KEY_ZOOM }[event.key];
    const onBar = event.target.dataset.run;
    if (factor) change(zoomed(shown, factor, view.live ? 1 : 0.5, currentMs()));
    else if (by && (event.shiftKey || !onBar || event.key.startsWith("Page"))) change(moved(shown, by, currentMs()));
    else if (onBar && ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) {
      const run = next(rows, onBar, event.key);
      setChosen(run.id);
      const bar = box.current.querySelector(`[data-run="${run.id}"]`);
      bar.focus();
      bar.scrollIntoView({ block: "nearest" });
    } else return;
    event.preventDefault();
  };
  const ticks = ticksOf(shown, width);
  return html`<div class="gantt" ref=${box} role="group" tabindex="0" aria-label=${`Runs from ${moment(shown.from)} to ${moment(shown.to)}`} aria-describedby="gantt-keys"
    onKeyDown=${keys} onFocusIn=${() => (focused.current = true)} onFocusOut=${(event) => event.relatedTarget && (focused.current = false)} ...${touch}>
    <div class="gantt-axis" aria-hidden="true"><div class="plot" ref=${axis}>${ticks.filter(({ at }) => (1 - place(at) / 100) * width > TEXT_PX).map(({ at, text }) => html`<span key=${at} class="number" style=${{ left: share(place(at)) }}>${text}</span>`)}</div></div>
    <div class="gantt-rows">
      <div class="gantt-grid" aria-hidden="true"><div class="plot">
        ${since > shown.from && html`<b style=${{ width: share(Math.max(0, place(since))) }}></b>`}
        ${ticks.map(({ at }) => html`<i key=${at} style=${{ left: share(place(at)) }}></i>`)}
        ${nowMs >= shown.from && nowMs <= shown.to && html`<i class="now" style=${{ left: share(place(nowMs)) }}></i>`}
      </div></div>
      ${rows.map((row) => {
        const due = behind(row.name);
        return html`<div class="gantt-row" key=${row.name} role="group" aria-label=${`${row.name}: ${count(row.lanes.reduce((sum, lane) => sum + lane.length, 0), "run")}`}>
          <div class="label"><${UnitLink} name=${row.name} />${tagsOf(row.name).map((tag) => html`<span class="tag">${tag}</span>`)}</div>
          <div class="plot" style=${{ height: `${row.lanes.length * LANE_PX + 4}px` }}>
            ${due && html`<i class="due" style=${{ left: share(place(due)), width: share(place(nowMs) - place(due)) }} title=${`${row.name}: due since ${moment(due)}, not started`}></i>`}
            ${row.lanes.map((lane, index) => html`<div class="lane" key=${index}>${lane.map((run) => html`<${Bar} key=${run.id} run=${run} overlap=${overlaps.get(run.id)} place=${place} nowMs=${nowMs} chosen=${run.id === here} />`)}</div>`)}
          </div>
        </div>`;
      })}
      ${slots.map((slot) => html`<${Slot} key=${slot.name} slot=${slot} place=${place} />`)}
    </div>
    <p id="gantt-keys" class="hidden-text">Arrow keys go from run to run. Shift and an arrow key move the window. Plus and minus zoom.</p>
  </div>`;
}
