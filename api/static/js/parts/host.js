// Charts of the host's CPU, memory, disk, network and pressure. Events add new samples.
import { html, useEffect, useState } from "../../vendor/preact.js";
import { get } from "../api.js";
import { percent, size } from "../format.js";
import { listen } from "../live.js";
import { currentMs } from "../server_time.js";
import { isLimited, sample } from "../state.js";
import { remember, remembered } from "../taste.js";
import { Card, Empty, Problem, Skeleton, useLoad } from "./basics.js";
import { BYTES, Chart, PERCENTS } from "./chart.js";

const SPANS = [
  ["1 h", 3600],
  ["24 h", 86_400],
  ["14 d", 14 * 86_400],
];
const rate = (value) => `${size(value)}/s`;
const CHARTS = [
  { title: "CPU", max: 100, format: percent, lines: [["used", "cpuPercent", "accent"]] },
  { title: "Memory", format: size, lines: [["used", "memoryUsedBytes", "accent"], ["swap", "swapUsedBytes", "warn-mark"]] },
  { title: "Disk", format: rate, lines: [["read", "diskReadBytesPerSecond", "accent"], ["written", "diskWrittenBytesPerSecond", "warn-mark"]] },
  { title: "Network", format: rate, lines: [["received", "receivedBytesPerSecond", "accent"], ["sent", "sentBytesPerSecond", "warn-mark"]] },
  { title: "Pressure", format: percent, lines: [["CPU", "cpuPressurePercent", "accent"], ["memory", "memoryPressurePercent", "bad-mark"], ["disk", "ioPressurePercent", "warn-mark"]] },
];

/**
 * Load the metrics of the last `seconds` and append each new sample. Return {items, step, error, reload}; `step` is the
 * interval between samples, in seconds.
 */
function useMetrics(seconds) {
  const { data, error, reload } = useLoad(
    async (signal) =>
      isLimited.value ? null : get("api/system/metrics", { from: new Date(currentMs() - seconds * 1000).toISOString() }, signal),
    [seconds],
  );
  // While the page was disconnected, the daemon went on sampling.
  useEffect(() => listen((kind) => kind === "resumed" && reload()), []);
  const [items, setItems] = useState(null);
  useEffect(() => setItems(data?.items ?? null), [data]);
  const live = sample.value;
  useEffect(() => {
    if (!live || !data) return;
    const at = Date.parse(live.t);
    setItems((before) => {
      const last = before?.at(-1);
      if (!before || (last && at - Date.parse(last.t) < data.step * 900)) return before; // 10 % tolerance: samples may be early
      const first = before.findIndex((one) => at - Date.parse(one.t) <= seconds * 1000);
      return [...before.slice(Math.max(0, first)), live];
    });
  }, [live]);
  return { items, step: data?.step, error, reload };
}

/**
 * Return {times, values}: seconds since the epoch, and a list of values for each of `keys`. A null in the values marks
 * a gap where the daemon was not running.
 */
function columns(items, keys, step) {
  const times = [];
  const values = keys.map(() => []);
  let before = null;
  for (const item of items) {
    const at = Date.parse(item.t) / 1000;
    if (before !== null && at - before > 3 * step) {
      times.push(before + step);
      for (const column of values) column.push(null);
    }
    times.push(at);
    keys.forEach((key, index) => values[index].push(item[key] ?? null));
    before = at;
  }
  return { times, values };
}

/** The host's current figures in one line that expands to charts. The browser remembers whether it is expanded. */
export function HostLine() {
  const [open, setOpen] = useState(remembered("host", "") === "open");
  if (isLimited.value) return null;
  const fold = (value) => {
    setOpen(value);
    remember("host", value ? "open" : "");
  };
  const toggle = html`<button class="plain" aria-expanded=${open} onClick=${() => fold(!open)}>${open ? "Hide charts" : "Show charts"}</button>`;
  if (open) return html`<${HostCharts} low more=${toggle} />`;
  const live = sample.value;
  const used = (label, value) => value !== undefined && html`<span class="number"><span class="soft">${label}</span> ${value}</span>`;
  const pressure = live && Math.max(live.cpuPressurePercent ?? 0, live.memoryPressurePercent ?? 0, live.ioPressurePercent ?? 0);
  return html`<section class="card host-line" aria-label="Host"><h2>Host</h2>
    ${!live && html`<span class="soft">Sampled every five seconds …</span>`}
    ${live && html`${used("CPU", percent(live.cpuPercent))}
    ${used("Memory", size(live.memoryUsedBytes))}
    ${used("Disk", rate((live.diskReadBytesPerSecond ?? 0) + (live.diskWrittenBytesPerSecond ?? 0)))}
    ${used("Network", rate((live.receivedBytesPerSecond ?? 0) + (live.sentBytesPerSecond ?? 0)))}
    ${used("Pressure", percent(pressure))}`}
    <span class="spring"></span>${toggle}
  </section>`;
}

/** low: render small charts in one row. more: an element to add after the choice of the time span. */
export function HostCharts({ low = false, more }) {
  const [seconds, setSeconds] = useState(SPANS[0][1]);
  const { items, step, error, reload } = useMetrics(seconds);
  if (isLimited.value) return null;
  const choice = html`<span class="row" role="group" aria-label="Time span">
    ${SPANS.map(([label, value]) => html`<button class="plain" aria-pressed=${value === seconds} onClick=${() => setSeconds(value)}>${label}</button>`)}
  </span>`;
  let body;
  if (error && !items) body = html`<${Problem} error=${error} retry=${reload} />`;
  else if (!items) body = html`<${Skeleton} />`;
  else if (items.length < 2) body = html`<${Empty}>No samples yet. The host is sampled every five seconds.</${Empty}>`;
  const charts = body ? [] : CHARTS.map((chart) => html`<${HostChart} key=${chart.title} chart=${chart} items=${items} step=${step} height=${low ? 72 : 110} />`);
  return html`<${Card} title="Host" tools=${html`${choice}${more}`}>${body}<div class="body ${low ? "band" : "cards"}">${charts}</div></${Card}>`;
}

function HostChart({ chart, items, step, height }) {
  const lines = chart.lines.filter(([, key]) => items.some((item) => item[key] !== undefined));
  if (!lines.length) return null;
  const { times, values } = columns(items, lines.map(([, key]) => key), step);
  const series = lines.map(([label, , token], index) => ({ label, token, values: values[index], format: chart.format }));
  const last = series.map((one) => `${one.label} ${one.values.at(-1) === null ? "–" : chart.format(one.values.at(-1))}`).join(", ");
  return html`<figure><figcaption><h3>${chart.title}</h3><span class="small soft number clip" title=${last}>${last}</span></figcaption>
    <${Chart} times=${times} series=${series} max=${chart.max} steps=${chart.format === percent ? PERCENTS : BYTES} height=${height} text=${`${chart.title}: ${last}`} />
  </figure>`;
}
