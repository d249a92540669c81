// The logs of two to four units side by side. They scroll together in time: the column that the reader scrolls leads.
import { html, useEffect, useMemo, useRef, useState } from "../../vendor/preact.js";
import { moment } from "../format.js";
import { Badge, UnitLink } from "../parts/basics.js";
import { Icon } from "../parts/icon.js";
import { link } from "../routes.js";
import { unitNamed } from "../state.js";
import { ofUnit } from "../states.js";
import { remember, remembered } from "../taste.js";
import { showFrames } from "./frames.js";
import { LEAST, MODES } from "./panel.js";
import { Hits, SearchField, finder, parametersOf, useSearch } from "./search.js";
import { UnitLogs } from "./source.js";
import { LogView } from "./view.js";

const TYPED_MS = 250;

/**
 * names: the units, one a column. of: how many units are chosen. at, asked: see LogPanel. moved(changes): change the
 * parameters of the address.
 */
export function LogColumns({ names, of, at, asked, moved }) {
  const logs = useMemo(() => new UnitLogs(names), []);
  const views = useRef(new Map());
  const leader = useRef(names[0]);
  const typed = useRef(0);
  const [, redraw] = useState(0);
  const [wanted, setWanted] = useState({ stream: at.stream ?? "", level: at.level ?? "", text: at.filter ?? "" });
  const [query, setQuery] = useState(asked);
  const [mode, setMode] = useState(remembered("log-times", "clock"));
  const [wrap, setWrap] = useState(remembered("log-wrap", "yes") === "yes");
  const scope = { task: names.join() };
  const found = useSearch("api/logs/search", scope, query, scope.task);
  const all = [...views.current.values()];
  const choose = (changes) => {
    const next = { ...wanted, ...changes };
    setWanted(next);
    clearTimeout(typed.current);
    typed.current = setTimeout(() => {
      for (const view of all) view.only(next);
      moved({ stream: next.stream, level: next.level, filter: next.text });
    }, changes.text === undefined ? 0 : TYPED_MS);
  };
  const search = (next) => {
    setQuery(next);
    moved({ q: "", regex: "", case: "", ...parametersOf(next) });
  };
  const follow = () => {
    for (const view of all) {
      view.held = false;
      view.toEnd();
    }
  };
  const pause = () => {
    for (const view of all) view.hold();
  };
  /** Move the other columns to the time that is at the top of the one that leads. */
  const align = (name) => {
    if (name !== leader.current) return;
    const lead = views.current.get(name);
    const top = lead.lines.find((line) => line.n === lead.topLine());
    lead.held = false;
    for (const view of all) {
      if (view === lead) continue;
      if (!lead.following && top) view.showTime(top.ts);
      else if (lead.following && !view.following) {
        view.held = false;
        view.toEnd();
      }
    }
  };
  useEffect(() => {
    for (const view of all) {
      view.look.found = query && finder(query);
      view.redraw();
    }
  }, [query]);
  useEffect(() => {
    for (const view of all) {
      view.look.mode = mode;
      view.retime();
    }
  }, [mode]);
  useEffect(() => () => clearTimeout(typed.current), []);
  const following = all.length > 0 && all.every((view) => view.following);
  return html`<section class="card log-card" aria-label="Logs side by side">
    <div class="log-tools">
      <${SearchField} search=${search} label="Search these logs" initial=${asked} />
      <span class="spring"></span>
      ${of > names.length && html`<span class="small soft">The first ${names.length} of ${of}</span>`}
      <button aria-pressed=${!following} onClick=${pause}><${Icon} name="pause" />Pause</button>
      <button aria-pressed=${following} onClick=${follow}><${Icon} name="down" />Follow</button>
    </div>
    <div class="log-tools">
      <input type="search" class="filter" aria-label="Filter lines" placeholder="Filter lines" value=${wanted.text} onInput=${(event) => choose({ text: event.target.value })} />
      <select aria-label="Level" value=${wanted.level} onChange=${(event) => choose({ level: event.target.value })}>${LEAST.map(([value, label]) => html`<option value=${value}>${label}</option>`)}</select>
      <select aria-label="Lines of" value=${wanted.stream} onChange=${(event) => choose({ stream: event.target.value })}><option value="">All output</option><option>stdout</option><option>stderr</option><option>system</option></select>
      <span class="spring"></span>
      <select aria-label="Times" value=${mode} onChange=${(event) => {
        setMode(event.target.value);
        remember("log-times", event.target.value);
      }}>${MODES.filter(([value]) => value !== "start").map(([value, label]) => html`<option value=${value}>${label}</option>`)}</select>
      <button aria-pressed=${wrap} title="Wrap long lines" aria-label="Wrap long lines" onClick=${() => {
        setWrap(!wrap);
        remember("log-wrap", wrap ? "no" : "yes");
      }}><${Icon} name="wrap" /></button>
    </div>
    ${query && html`<${Hits} found=${found} pattern=${finder(query)} label=${(hit) => `${hit.taskName} ${moment(hit.ts)}`} address=${(hit) => link("run", hit.runId, { line: hit.n + 1, ...parametersOf(query) })} />`}
    <div class="log-columns" style=${{ "--columns": names.length }}>
      ${names.map((name) => html`<${Column} key=${name} name=${name} source=${logs.parts.get(name)} wanted=${wanted} mode=${mode} wrap=${wrap} found=${query && finder(query)}
        keep=${(view) => (view ? views.current.set(name, view) : views.current.delete(name))} lead=${() => { leader.current = name; }} scrolled=${() => align(name)} changed=${() => redraw((turn) => turn + 1)} />`)}
    </div>
  </section>`;
}

function Column({ name, source, wanted, mode, wrap, found, keep, lead, scrolled, changed }) {
  const [scroll, rows, region] = [useRef(null), useRef(null), useRef(null)];
  const latest = useRef(null);
  latest.current = scrolled;
  const [, redraw] = useState(0);
  useEffect(() => {
    const address = (n) => {
      const line = source.lineAt(n);
      return line?.runId ? link("run", line.runId, { line: line.runLine + 1 }) : null;
    };
    const look = { mode, startMs: 0, found, address, open: new Set(), unfold: (n) => made.unfold(n), frames: (one) => showFrames(source, one) };
    const told = () => {
      redraw((turn) => turn + 1);
      changed();
    };
    const made = new LogView({ source, scroll: scroll.current, rows: rows.current, region: region.current, look, changed: told });
    keep(made);
    made.want(wanted);
    made.open();
    const moved = () => latest.current();
    scroll.current.addEventListener("scroll", moved, { passive: true });
    return () => {
      keep(null);
      made.close();
    };
  }, []);
  const unit = unitNamed(name);
  return html`<section class="log-column" aria-label=${`Log of ${name}`} onPointerEnter=${lead} onPointerDown=${lead} onFocusIn=${lead} onWheel=${lead} onTouchStart=${lead}>
    <header><h2 class="clip"><${UnitLink} name=${name} /></h2>${unit && html`<${Badge} look=${ofUnit(unit)} />`}</header>
    <div class="log ${wrap ? "wrap" : ""} ${mode === "none" ? "no-times" : ""}">
      <div class="log-scroll" ref=${scroll} tabindex="0" role="log" aria-live="off" aria-label=${`Lines of ${name}`}>
        <div class="log-rows" ref=${rows}></div><div class="log-region" ref=${region} hidden></div>
      </div>
    </div>
  </section>`;
}
