// A log with everything around it: search, jumps, filters, and the position.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { taskPath } from "../api.js";
import { HOURS_24, count, moment, number } from "../format.js";
import { Icon } from "../parts/icon.js";
import { toast } from "../parts/toasts.js";
import { remember, remembered } from "../taste.js";
import { PositionBar } from "./bar.js";
import { showFrames } from "./frames.js";
import { Hits, SearchField, finder, useSearch } from "./search.js";
import { LogView } from "./view.js";

const MODES = [
  ["clock", "Time of day"],
  ["start", "Since start"],
  ["delta", "Since previous line"],
  ["none", "No times"],
];

/**
 * source: see source.js. line: number of the line to begin at, or null for the end. address(n): permanent address of a
 * line, or null. taskName, runId: for the search; without them there is none. asked: what is searched for at first, see
 * search.js; ask(query): it is searched for from now on. elsewhere(hit, query): go to a hit in another run of the task.
 * startMs: when the run started.
 */
export function LogPanel({ source, line = null, address = () => null, taskName, runId, asked = null, ask, elsewhere, startMs = 0, title = "Log", fileName, oneStream = false }) {
  const scroll = useRef(null);
  const rows = useRef(null);
  const region = useRef(null);
  const view = useRef(null);
  const [, redraw] = useState(0);
  const [mode, setMode] = useState(remembered("log-times", "clock"));
  const [wrap, setWrap] = useState(remembered("log-wrap", "no") === "yes");
  const [stream, setStream] = useState("");
  const [query, setQuery] = useState(asked);
  const all = query?.all ?? false;
  const found = useSearch(taskPath(taskName, "log/search"), { runId: all ? undefined : runId }, query, `${runId} ${all}`);
  const search = (wanted) => {
    setQuery(wanted);
    ask?.(wanted);
  };

  useEffect(() => {
    const look = { mode, startMs, found: null, address, frames: (one) => showFrames(source, one) };
    const changed = () => redraw((turn) => turn + 1);
    const made = new LogView({ source, scroll: scroll.current, rows: rows.current, region: region.current, look, changed });
    view.current = made;
    scroll.current.view = made;
    made.open(line);
    return () => made.close();
  }, [source]);
  useEffect(() => {
    if (line !== null && view.current.loaded && view.current.target !== line) view.current.jump(line);
  }, [line]);
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

  const log = view.current;
  const top = log?.topLine() ?? 0;
  const unseen = log && !log.following ? log.total - log.end : 0;
  const toFirst = () => log.jump(log.first, { marked: false });
  const keys = (event) => {
    if (event.target.matches("input, select, button")) return;
    if (event.key === "Home") toFirst();
    else if (event.key === "End" || event.key === "f") log.toEnd();
    else return;
    event.preventDefault();
  };
  const goTo = async (text) => {
    const value = text.trim();
    if (/^\d+$/.test(value)) {
      const n = Math.max(0, Number(value) - 1);
      await log.jump(log.loaded ? Math.min(n, log.total - 1) : n);
      return;
    }
    const at = timeOf(value, startMs);
    if (at && source.pageAt) await log.jumpToTime(at);
    else toast(`Enter a line number, or a time such as ${HOURS_24 ? "14:05" : "2:05 PM"} or 2026-11-21 14:05:30`, { bad: true });
  };

  return html`<section class="card log-card" aria-label=${title}>
    <div class="log-tools">
      <h2>${title}</h2>
      ${taskName && html`<${SearchField} search=${(wanted) => search(wanted && { ...wanted, all })} label="Search this log" initial=${asked} />`}
      <form class="row" onSubmit=${(event) => {
        event.preventDefault();
        goTo(event.target.elements.to.value).catch((error) => toast(error.message, { bad: true }));
      }}>
        <input name="to" class="line-number" aria-label="Go to line or time" placeholder="Line or time" autocomplete="off" />
      </form>
      <span class="spring"></span>
      ${!oneStream && html`<select aria-label="Lines of" value=${stream} onChange=${(event) => {
        setStream(event.target.value);
        log.only(event.target.value);
      }}>
        <option value="">All output</option><option>stdout</option><option>stderr</option><option>system</option>
      </select>`}
      <select aria-label="Times" value=${mode} onChange=${(event) => {
        setMode(event.target.value);
        remember("log-times", event.target.value);
      }}>
        ${MODES.map(([value, label]) => html`<option value=${value}>${label}</option>`)}
      </select>
      <button aria-pressed=${wrap} title="Wrap long lines" aria-label="Wrap long lines" onClick=${() => {
        setWrap(!wrap);
        remember("log-wrap", wrap ? "no" : "yes");
      }}><${Icon} name="wrap" /></button>
      <button aria-pressed=${Boolean(log?.following)} title="Follow the end (f)" onClick=${() => log.toEnd()}><${Icon} name="down" />${log?.finished ? "End" : "Follow"}</button>
      ${source.raw && html`<a class="button" href=${source.raw} download=${fileName} title="Download the whole log"><${Icon} name="save" /><span class="hidden-text">Download</span></a>`}
    </div>
    ${query &&
    html`<${Hits}
      found=${found}
      pattern=${finder(query)}
      label=${(hit) => (all ? moment(hit.ts) : number(hit.n + 1))}
      choose=${(hit) => (hit.runId === runId ? log.jump(hit.n) : elsewhere(hit, query))}
      tools=${html`<button class="link" onClick=${() => search({ ...query, all: !all })}>${all ? "Search this run only" : `Search all runs of ${taskName}`}</button>`}
    />`}
    <div class="log ${wrap ? "wrap" : ""} ${mode === "none" ? "no-times" : ""} ${oneStream ? "one-stream" : ""}">
      <div id="log-scroll" class="log-scroll" ref=${scroll} tabindex="0" role="log" aria-live="off" aria-label=${`${title}: lines`} onKeyDown=${keys}>
        <div class="log-rows" ref=${rows}></div>
        <div class="log-region" ref=${region} hidden></div>
        ${log?.loaded && log.total === 0 && html`<p class="empty">${log.finished ? "No output." : "No output yet. New lines appear here."}</p>`}
        ${log?.error && html`<div class="empty" role="alert"><p class="problem">${log.error.message}</p><button onClick=${() => log.open(line)}>Try again</button></div>`}
      </div>
      <${PositionBar} first=${log?.first ?? 0} total=${log?.total ?? 0} top=${top} shown=${30} to=${(n) => log.jump(n, { marked: false })} />
      ${unseen > 0 && html`<button class="primary log-more" onClick=${() => log.toEnd()}><${Icon} name="down" />${number(unseen)} more ${unseen === 1 ? "line" : "lines"}</button>`}
    </div>
    <p class="log-foot">
      <span class="number">${log?.total ? `Line ${number(top + 1)} of ${number(log.total)}` : "No lines"}</span>
      ${log?.first > 0 && html`<span>Lines before ${number(log.first + 1)} are no longer kept</span>`}
      <span>${stateOf(log)}</span>
    </p>
  </section>`;
}

function stateOf(log) {
  if (log?.finished) return "Complete";
  if (!log?.live) return "Connecting …";
  if (log.following) return "Following";
  const unseen = log.total - log.end;
  return unseen > 0 ? `Paused · ${count(unseen, "new line")}` : "Paused";
}

/** A time that somebody typed, as ISO: "14:05", "2:05 pm", "14:05:30.5" (the day the run started), "2026-11-21 14:05". */
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
