// A log with its tools: search, jumps, filters, marked lines and the position bar.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { taskPath } from "../api.js";
import { HOURS_24, count, moment, number } from "../format.js";
import { isOpen } from "../parts/dialog.js";
import { Icon } from "../parts/icon.js";
import { toast } from "../parts/toasts.js";
import { link } from "../routes.js";
import { remember, remembered } from "../taste.js";
import { PositionBar } from "./bar.js";
import { showFrames } from "./frames.js";
import { NARROW } from "./rows.js";
import { Hits, SearchField, finder, parametersOf, useSearch } from "./search.js";
import { LogView } from "./view.js";

export const MODES = [
  ["clock", "Time of day"],
  ["start", "Since start"],
  ["delta", "Since previous line"],
  ["none", "No times"],
];

const SIZES = [
  ["small", "Small text"],
  ["medium", "Medium text"],
  ["large", "Large text"],
];
export const LEAST = [
  ["", "All levels"],
  ["error", "Errors"],
  ["warn", "Warnings, errors"],
  ["info", "Info and worse"],
];
const TYPED_MS = 250;
const WIDE_PX = 800;

/** Parse the line numbers of an address, "12" or "12-20", counted from 1. Return [first, last] from 0, or null. */
export function rangeOf(text) {
  const found = /^(\d+)(?:-(\d+))?$/.exec(text ?? "");
  if (!found) return null;
  const first = Math.max(0, Number(found[1]) - 1);
  return [first, Math.max(first, Number(found[2] ?? found[1]) - 1)];
}

/** Return the line numbers for an address from [first, last]: the inverse of `rangeOf`. */
export const rangeText = ([first, last]) => (first === last ? String(first + 1) : `${first + 1}-${last + 1}`);

/**
 * source: the lines of the log; see source.js.
 * at: the state in the address, {range, stream, level, filter}. range: the lines to begin at, or null for the end.
 * moved(changes): update the address. changes: some of {line, stream, level, filter}.
 * address(n): the permanent address of a line, or null.
 * taskName, runId: the logs to search. Without a task name there is no search field.
 * everywhere: {path, scope} of a search in several units, instead of those two; its hits lead to their runs.
 * asked: the initial query; see `queryOf` in search.js. ask(query): called when the query changes; null clears it.
 * elsewhere(hit, query): go to a hit in another run of the task.
 * startMs: the start of the run, in milliseconds since the epoch.
 * fileName: the name of the downloaded file. oneStream: the log does not distinguish stdout, stderr and system.
 * loaded(): called once the first lines have loaded or failed to load.
 */
export function LogPanel({ source, at = {}, moved, address = () => null, taskName, runId, everywhere, asked = null, ask, elsewhere, startMs = 0, title = "Log", fileName, oneStream = false, loaded }) {
  const scroll = useRef(null);
  const rows = useRef(null);
  const region = useRef(null);
  const view = useRef(null);
  const typed = useRef(0);
  const [, redraw] = useState(0);
  const [mode, setMode] = useState(remembered("log-times", "clock"));
  const [size, setSize] = useState(remembered("log-size", "medium"));
  const [wrap, setWrap] = useState(remembered("log-wrap", NARROW ? "yes" : "no") === "yes");
  const [whole, setWhole] = useState(false);
  const [tools, setTools] = useState(innerWidth > WIDE_PX);
  const [wanted, setWanted] = useState({ stream: at.stream ?? "", level: at.level ?? "", text: at.filter ?? "" });
  const [query, setQuery] = useState(asked);
  const all = query?.all ?? false;
  const { path, scope } = everywhere ?? { path: taskPath(taskName, "log/search"), scope: { runId: all ? undefined : runId } };
  const found = useSearch(path, scope, query, JSON.stringify(scope));
  const range = at.range ?? null;
  const search = (next) => {
    setQuery(next);
    ask?.(next);
  };
  const choose = (changes) => {
    const next = { ...wanted, ...changes };
    setWanted(next);
    clearTimeout(typed.current);
    typed.current = setTimeout(
      () => {
        view.current.only(next);
        moved?.({ stream: next.stream, level: next.level, filter: next.text });
      },
      changes.text === undefined ? 0 : TYPED_MS,
    );
  };
  const open = (made) => made.open(range);

  useEffect(() => {
    const look = { mode, startMs, found: null, address, open: new Set(), unfold: (n) => made.unfold(n), frames: (one) => showFrames(source, one) };
    const changed = () => redraw((turn) => turn + 1);
    const made = new LogView({ source, scroll: scroll.current, rows: rows.current, region: region.current, look, changed });
    view.current = made;
    scroll.current.view = made;
    made.want(wanted);
    open(made);
    return () => {
      clearTimeout(typed.current);
      made.close();
    };
  }, [source]);
  useEffect(() => {
    if (!range || !view.current.loaded) return;
    const [first, last] = view.current.target ?? [];
    if (first === range[0] && last === range[1]) return;
    if (first !== undefined && first <= range[1] && range[0] <= last) view.current.mark(range);
    else view.current.jump(range[0], { last: range[1] });
  }, [range?.[0], range?.[1]]);
  useEffect(() => {
    view.current.look.startMs = startMs;
    if (mode !== "none") {
      view.current.look.mode = mode;
      view.current.retime();
    }
  }, [mode, startMs]);
  useEffect(() => {
    view.current.look.found = query && finder(query);
    view.current.redraw();
  }, [query]);
  useEffect(() => {
    if (!whole) return undefined;
    const leave = (event) => event.key === "Escape" && !isOpen() && setWhole(false);
    document.documentElement.classList.add("whole-log");
    document.addEventListener("keydown", leave);
    return () => {
      document.documentElement.classList.remove("whole-log");
      document.removeEventListener("keydown", leave);
    };
  }, [whole]);

  const log = view.current;
  const ready = Boolean(log?.loaded || log?.error);
  useEffect(() => {
    if (ready) loaded?.();
  }, [ready]);
  const top = log?.topLine() ?? 0;
  const below = log && !log.following ? Math.max(log.unseen, log.total - log.end) : 0;
  const toFirst = () => log.jump(log.first, { marked: false });
  const shownHit = range ? found.hits.findIndex((hit) => hit.runId === runId && hit.n === range[0]) : -1;
  const hitAt = shownHit < 0 ? null : shownHit;
  const toHit = (hit) => {
    if (hit.runId !== runId) elsewhere(hit, query);
    else if (moved) moved({ line: rangeText([hit.n, hit.n]) });
    else log.jump(hit.n);
  };
  const fromEnd = useRef(false);
  const step = (by) => {
    const { hits, hasMore, more } = found;
    if (!hits.length) return;
    if (hitAt === null && by < 0 && hasMore) {
      fromEnd.current = true;
      more(Infinity);
      return;
    }
    if (hitAt === hits.length - 1 && by > 0 && hasMore) more();
    // If no hit is shown, step forward to the next one after the first visible line, or back to the last one.
    const here = hits.findIndex((hit) => hit.runId === runId && hit.n >= top);
    const next = hitAt === null ? (by > 0 ? Math.max(0, here) : hits.length - 1) : hitAt + by;
    toHit(hits[(next + hits.length) % hits.length]);
  };
  useEffect(() => {
    if (!fromEnd.current || !found.done) return;
    fromEnd.current = false;
    if (found.hits.length) toHit(found.hits.at(-1));
  }, [found.done]);
  const keys = (event) => {
    if (event.target.matches("input, select, button") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Home") toFirst();
    else if (event.key === "End" || event.key === "f") log.toEnd();
    else if (event.key === "F") setWhole(!whole);
    else if (event.key === "n" && query && !everywhere) step(1);
    else if (event.key === "N" && query && !everywhere) step(-1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const press = (event) => {
    const n = Number(event.target.closest("a.n")?.parentElement.dataset.n ?? Number.NaN);
    if (Number.isNaN(n) || !moved || everywhere || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const first = event.shiftKey && range ? range[0] : n;
    const pressed = [Math.min(first, n), Math.max(first, n)];
    // Mark the lines before the address changes. Otherwise the new address would scroll to them, and the pressed
    // line would move away from the pointer.
    view.current.mark(pressed);
    moved({ line: rangeText(pressed) });
    getSelection().removeAllRanges();
  };
  const goTo = async (text) => {
    const value = text.trim();
    if (/^\d+$/.test(value)) {
      const n = Math.max(0, Number(value) - 1);
      await log.jump(log.loaded ? Math.min(n, log.total - 1) : n);
      return;
    }
    const time = timeOf(value, startMs);
    if (time && source.pageAt) await log.jumpToTime(time);
    else toast(`Enter a line number, or a time such as ${HOURS_24 ? "14:05" : "2:05 PM"} or 2026-11-21 14:05:30`, { bad: true });
  };
  const filtered = wanted.stream || wanted.level || wanted.text;

  return html`<section class="card log-card ${whole ? "whole" : ""}" aria-label=${title}>
    <div class="log-tools">
      <h2>${title}</h2>
      ${(taskName || everywhere) && html`<${SearchField} search=${(next) => search(next && { ...next, all })} label=${everywhere ? "Search these logs" : "Search this log"} initial=${asked} />`}
      <form class="row" onSubmit=${(event) => {
        event.preventDefault();
        goTo(event.target.elements.to.value).catch((error) => toast(error.message, { bad: true }));
      }}>
        <input name="to" class="line-number" aria-label="Go to line or time" placeholder="Line or time" autocomplete="off" />
      </form>
      <span class="spring"></span>
      <button aria-expanded=${tools} class=${filtered ? "on" : ""} title="Filter and appearance" aria-label="Filter and appearance" onClick=${() => setTools(!tools)}><${Icon} name="filter" /></button>
      <button aria-pressed=${whole} title="Full screen (Shift F)" aria-label="Full screen" onClick=${() => setWhole(!whole)}><${Icon} name="whole" /></button>
      <button aria-pressed=${Boolean(log?.following)} title="Follow the end (f)" onClick=${() => log.toEnd()}><${Icon} name="down" />${log?.finished ? "End" : "Follow"}</button>
      ${source.raw && html`<a class="button" href=${source.raw} download=${fileName} title="Download the whole log"><${Icon} name="save" /><span class="hidden-text">Download</span></a>`}
    </div>
    ${tools && html`<div class="log-tools">
      <input type="search" class="filter" aria-label="Filter lines" placeholder="Filter lines" value=${wanted.text} onInput=${(event) => choose({ text: event.target.value })} />
      <select aria-label="Level" value=${wanted.level} onChange=${(event) => choose({ level: event.target.value })}>
        ${LEAST.map(([value, label]) => html`<option value=${value}>${label}</option>`)}
      </select>
      ${!oneStream && html`<select aria-label="Lines of" value=${wanted.stream} onChange=${(event) => choose({ stream: event.target.value })}>
        <option value="">All output</option><option>stdout</option><option>stderr</option><option>system</option>
      </select>`}
      <span class="spring"></span>
      <select aria-label="Times" value=${mode} onChange=${(event) => {
        setMode(event.target.value);
        remember("log-times", event.target.value);
      }}>
        ${MODES.map(([value, label]) => html`<option value=${value}>${label}</option>`)}
      </select>
      <select aria-label="Text size" value=${size} onChange=${(event) => {
        setSize(event.target.value);
        remember("log-size", event.target.value);
      }}>
        ${SIZES.map(([value, label]) => html`<option value=${value}>${label}</option>`)}
      </select>
      <button aria-pressed=${wrap} title="Wrap long lines" aria-label="Wrap long lines" onClick=${() => {
        setWrap(!wrap);
        remember("log-wrap", wrap ? "no" : "yes");
      }}><${Icon} name="wrap" /></button>
    </div>`}
    ${query &&
    html`<${Hits}
      found=${found}
      pattern=${finder(query)}
      label=${(hit) => (everywhere ? `${hit.taskName} ${moment(hit.ts)}` : all ? moment(hit.ts) : number(hit.n + 1))}
      address=${(hit) => link("run", hit.runId, { line: hit.n + 1, ...parametersOf(query) })}
      choose=${everywhere ? undefined : toHit}
      at=${hitAt}
      step=${everywhere ? undefined : step}
      tools=${taskName && html`<button class="link" onClick=${() => search({ ...query, all: !all })}>${all ? "Search this run only" : `Search all runs of ${taskName}`}</button>`}
    />`}
    ${log?.loaded && filtered && html`<${Looked} log=${log} />`}
    <div class="log size-${size} ${wrap ? "wrap" : ""} ${mode === "none" ? "no-times" : ""} ${oneStream ? "one-stream" : ""}">
      <div id="log-scroll" class="log-scroll" ref=${scroll} tabindex="0" role="log" aria-live="off" aria-label=${`${title}: lines`} onKeyDown=${keys}>
        <div class="log-rows" ref=${rows} onClick=${press}></div>
        <div class="log-region" ref=${region} hidden></div>
        ${log?.loaded && log.total === 0 && html`<p class="empty">${log.finished ? "No output." : "No output yet. New lines appear here."}</p>`}
        ${log?.loaded && log.total > 0 && filtered && !log.lines.length && !log.loading && html`<p class="empty">${log.isWhole ? "No line matches the filter." : "No line matches the filter so far."}</p>`}
        ${log?.error && html`<div class="empty" role="alert"><p class="problem">${log.error.message}</p><button onClick=${() => open(log)}>Try again</button></div>`}
      </div>
      <${PositionBar} first=${log?.first ?? 0} total=${log?.total ?? 0} top=${top} shown=${30} to=${(n) => log.jump(n, { marked: false })} />
      ${below > 0 && html`<button class="primary log-more" onClick=${() => log.toEnd()}><${Icon} name="down" />${number(below)} more ${below === 1 ? "line" : "lines"}</button>`}
    </div>
    <p class="log-foot ${ready ? "" : "coming"}">
      <span class="number">${log?.total ? `Line ${number(top + 1)} of ${number(log.total)}` : "No lines"}</span>
      ${log?.first > 0 && html`<span>Lines before ${number(log.first + 1)} are ${source.partial ? "not loaded" : "no longer kept"}</span>`}
      <span>${stateOf(log)}</span>
      ${range && moved && html`<${Marked} log=${log} range=${range} />`}
    </p>
  </section>`;
}

/** The progress of the filter: the lines it has read, and buttons to read the others. */
function Looked({ log }) {
  if (log.loading) {
    return html`<p class="log-foot" role="status">Filtering: ${count(log.looked, "line")} read …
      <button class="link" onClick=${() => log.stop()}>Stop</button></p>`;
  }
  const { first, lookedFrom, end, total } = log;
  if (log.isWhole) return html`<p class="log-foot" role="status">Filtered all ${count(total - first, log.source.partial ? "loaded line" : "line")}.</p>`;
  return html`<p class="log-foot" role="status">Filtered lines ${number(Math.max(lookedFrom, first) + 1)} to ${number(end)} of ${number(total)}.
    ${lookedFrom > first && html`<button class="link" onClick=${() => log.lookFurther(true)}>Filter ${count(lookedFrom - first, "earlier line")}</button>`}
    ${end < total && html`<button class="link" onClick=${() => log.lookFurther(false)}>Filter ${count(total - end, "later line")}</button>`}</p>`;
}

/** The marked lines, with buttons to copy them or a link to them. */
function Marked({ log, range }) {
  const copy = async (text, told) => {
    try {
      await navigator.clipboard.writeText(await text());
      toast(told);
    } catch (error) {
      toast(`Could not copy: ${error.message}`, { bad: true });
    }
  };
  const [first, last] = range;
  const lines = first === last ? `line ${number(first + 1)}` : `lines ${number(first + 1)} to ${number(last + 1)}`;
  return html`<span class="row marked"><span>Marked: ${lines}</span>
    <button class="link" onClick=${() => copy(async () => location.href, `Copied a link to ${lines}`)}>Copy link</button>
    <button class="link" onClick=${() => copy(() => log.textBetween(first, last), `Copied ${lines}`)}>Copy lines</button>
  </span>`;
}

function stateOf(log) {
  if (log?.finished) return "Complete";
  if (!log?.live) return "Connecting …";
  if (log.following) return "Following";
  return log.unseen > 0 ? `Paused · ${count(log.unseen, "new line")}` : "Paused";
}

/**
 * Parse a time that the reader typed; return ISO 8601, or null. Examples: "2026-11-21 14:05", "14:05", "2:05 pm",
 * "14:05:30.5". A time without a date is the first one after the start of the run, or today.
 */
function timeOf(text, startMs) {
  const clock = /^(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?\s*([ap])?\.?(?:m\.?)?$/i.exec(text);
  let date = new Date(text.replace(" ", "T"));
  if (clock) {
    const [, hours, minutes, seconds = "0", half] = clock;
    const hour = half ? (Number(hours) % 12) + (half.toLowerCase() === "p" ? 12 : 0) : Number(hours);
    date = new Date(startMs || Date.now());
    date.setHours(hour, Number(minutes), Math.floor(seconds), (Number(seconds) % 1) * 1000);
    if (startMs && date.getTime() < startMs - 60_000) date.setDate(date.getDate() + 1);
  }
  return Number.isNaN(date.getTime()) ? null : date.toISOString();
}
