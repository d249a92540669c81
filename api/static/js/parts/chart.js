// Line charts over time, drawn by uPlot, which is loaded with the first chart.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";

let library = null;
const loadLibrary = () => {
  library ??= import("../../vendor/uplot.js").then((module) => module.default);
  return library;
};

/** Resolve a custom property of the stylesheet, such as "accent", to a colour for the canvas: "rgb(…)". */
export function colour(token) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${token})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

const FONT = "12px system-ui, sans-serif";
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const SECONDS = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DATE = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

/** Format the ticks of the time axis (seconds since the epoch); their precision depends on `step` (seconds). */
function hours(_plot, ticks, _axis, _space, step) {
  const format = step >= 86_400 ? DATE : step >= 60 ? CLOCK : SECONDS;
  return ticks.map((at) => format.format(at * 1000));
}

/** Distances of ticks that are round in bytes (powers of two), in milliseconds (as clocks divide them), in percent. */
export const BYTES = Array.from({ length: 50 }, (_, power) => 2 ** power);
export const TIMES = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1.8e6, 3.6e6, 7.2e6, 14.4e6, 21.6e6, 43.2e6, 86.4e6, 172.8e6, 432e6, 864e6];
export const PERCENTS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1000, 2000, 5000];

const LABELS_PX = 72; // fits "1023 KB/s"

const faded = (value, alpha) => value.replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`);

/**
 * A line chart.
 *
 * times: seconds since the epoch, ascending.
 * series: [{label, values, token, format, points}]. steps: possible distances of ticks. A null in `values` is a gap; `points` draws dots without a line.
 * max: upper end of the scale; undefined fits it to the values. height: pixels. text: description for screen readers.
 * onPick(index): called with the index of the clicked sample.
 */
export function Chart({ times, series, max, steps, height = 110, text, onPick }) {
  const box = useRef(null);
  const [tip, setTip] = useState(null);
  const latest = useRef({});
  latest.current = { series, times, onPick };
  useEffect(() => {
    let plot = null;
    let gone = false;
    let observer = null;
    const build = (uPlot) => {
      if (gone || !box.current) return;
      const format = series[0].format;
      const axis = { stroke: colour("ink-faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false } };
      plot = new uPlot(
        {
          width: box.current.clientWidth,
          height,
          cursor: { y: false, points: { show: false } },
          legend: { show: false },
          scales: { y: { range: (_plot, low, high) => [Math.min(0, low ?? 0), max ?? Math.max(high ?? 0, 1e-9) * 1.08] } },
          axes: [
            { ...axis, size: 24, space: 70, font: FONT, grid: { show: false }, values: hours },
            { ...axis, size: LABELS_PX, space: 22, incrs: steps, font: FONT, values: (_plot, ticks) => ticks.map((value) => format(value)) },
          ],
          series: [
            {},
            ...series.map((one) => ({
              label: one.label,
              stroke: colour(one.token),
              fill: one.points ? undefined : faded(colour(one.token), 0.12),
              width: one.points ? 0 : 1.4,
              paths: one.points ? () => null : undefined,
              points: one.points
                ? { show: true, size: 6, width: 0, fill: colour(one.token), stroke: colour(one.token) }
                : { show: false },
              spanGaps: false,
            })),
          ],
          hooks: {
            setCursor: [
              (self) => {
                const index = self.cursor.idx;
                if (index === null || index === undefined || self.cursor.left < 0) setTip(null);
                else setTip({ index, left: self.cursor.left + LABELS_PX + 4, flip: self.cursor.left > self.width / 2 });
              },
            ],
          },
        },
        [latest.current.times, ...latest.current.series.map((one) => one.values)],
        box.current,
      );
      plot.over.addEventListener("click", () => {
        if (plot.cursor.idx !== null) latest.current.onPick?.(plot.cursor.idx);
      });
      const place = box.current;
      observer = new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height }));
      observer.observe(place);
      place.plot = plot;
    };
    loadLibrary().then(build);
    return () => {
      gone = true;
      observer?.disconnect();
      plot?.destroy();
    };
  }, [series.map((one) => one.label).join(), height, max]);
  useEffect(() => {
    box.current?.plot?.setData([times, ...series.map((one) => one.values)]);
  }, [times, series]);
  const told = (one) => {
    const value = one.values[tip.index];
    return value === null || value === undefined ? null : html`<div>${one.label}: <b>${one.format(value)}</b></div>`;
  };
  const place = tip && (tip.flip ? { right: `calc(100% - ${tip.left - 12}px)` } : { left: `${tip.left + 12}px` });
  return html`<div class="chart" role="img" aria-label=${text}>
    <div ref=${box}></div>
    ${tip &&
    times[tip.index] !== undefined &&
    html`<div class="chart-tip" style=${{ ...place, top: "4px" }}>
      <div class="faint">${new Date(times[tip.index] * 1000).toLocaleString()}</div>
      ${series.map(told)}
    </div>`}
  </div>`;
}
