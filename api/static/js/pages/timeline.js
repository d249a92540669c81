// The timeline page: shows the runs of a period, with overlaps, waits and late starts, as a chart or a table.
import { html, useEffect, useMemo, useState } from "../../vendor/preact.js";
import { count, duration, moment, tookMs } from "../format.js";
import { listen } from "../live.js";
import { At, Card, Empty, Head, Problem, RunBadge, Skeleton, UnitLink, useLoad, useTitle } from "../parts/basics.js";
import { Icon } from "../parts/icon.js";
import { useSlots } from "../units/slots.js";
import { go, link, route } from "../routes.js";
import { now, throttle, trouble, unitNamed, units } from "../state.js";
import { Chart, LATE_MS, atTheSameTime, isLate, waitedMs } from "../timeline/chart.js";
import { loadRuns, overlapsOf, rowsOf, runsIn, slotsOf } from "../timeline/runs.js";
import { SPANS, moved, queryOf, windowOf, zoomed } from "../timeline/window.js";

const AGAIN_MS = 3000;
const SHOWN = 200;
const STEP = 0.5; // share of the window that Earlier and Later move it by
const ZOOM = 2;

const usesOf = (name) => unitNamed(name)?.definition.uses ?? {};

/** Return when an overdue task should have started, ms since the epoch; null if it is on time or paused. */
function dueSince(name) {
  const unit = unitNamed(name);
  const due = unit?.nextRunAt && !unit.paused ? Date.parse(unit.nextRunAt) : null;
  return due && now.value - due > LATE_MS ? due : null;
}

function useRuns(view, services) {
  const span = view.to - view.from;
  const key = view.live ? [span, services] : [view.from, view.to, services];
  const load = async (signal) => ({ ...(await loadRuns({ from: view.from, to: view.live ? null : view.to, services }, signal)), view, key: String(key) });
  const found = useLoad(load, key);
  useEffect(() => {
    const again = throttle(found.reload, AGAIN_MS);
    return listen((kind) => (kind === "resumed" || kind.startsWith("run.")) && again());
  }, []);
  return { ...found, late: found.data?.key !== String(key) };
}

export function Timeline() {
  useTitle("Timeline");
  const { query } = route.value;
  const read = (key) => query.get(key) ?? "";
  const view = windowOf(query, now.value);
  const services = read("services") === "1";
  const slot = read("slot");
  const holding = (units.value ?? []).some((unit) => unit.kind === "service" && Object.keys(usesOf(unit.name)).length);
  const { data: loaded, error, reload, late } = useRuns(view, services || holding);
  const data = units.value || trouble.value ? loaded : null; // the units show which runs belong to services
  const set = (changes) => go(link("timeline", { ...Object.fromEntries(query), ...changes }), { replace: true });
  const change = (next) => set(queryOf(next, now.value));
  const wanted = read("q").toLowerCase();
  const isService = (run) => run.triggeredBy === "service" || unitNamed(run.taskName)?.kind === "service";
  const fits = ({ taskName: name }) => (!wanted || name.toLowerCase().includes(wanted)) && (!slot || slot in usesOf(name));
  const all = useMemo(() => (data?.runs ?? []).filter((run) => services || !isService(run)), [data, services, units.value]);
  const overlaps = useMemo(() => overlapsOf(all, now.value), [all]);
  const chosen = all.filter(fits);
  // Keep the previous runs in their rows until the runs of this window are loaded.
  const runs = runsIn(chosen, late && data ? data.view : view, now.value);
  const sizes = new Map((useSlots().slots?.items ?? []).map((one) => [one.name, one.size]));
  const slots = slotsOf((data?.runs ?? []).filter(fits), usesOf, now.value)
    .filter((one) => !slot || one.name === slot)
    .map((one) => ({ ...one, size: sizes.get(one.name) }));
  const known = [...new Set((units.value ?? []).flatMap((unit) => Object.keys(unit.definition.uses ?? {})))].sort();
  const table = read("view") === "table";
  const span = view.to - view.from;
  const nowMs = now.value;
  return html`<${Head} title="Timeline" />
    <section class="card timeline" aria-label="Timeline" aria-busy=${late}>
      <header>
        <div class="row" role="group" aria-label="Span">${SPANS.map(([name, label, ms]) => html`<button key=${name} aria-pressed=${Math.abs(ms - span) < 1000} onClick=${() => change(zoomed(view, ms / span, view.live ? 1 : 0.5, nowMs))}>${label}</button>`)}</div>
        <div class="row" role="group" aria-label="Window">
          <button title="Earlier (Shift ←)" aria-label="Earlier" onClick=${() => change(moved(view, -STEP, nowMs))}><${Icon} name="back" /></button>
          <button title="Later (Shift →)" aria-label="Later" disabled=${view.live} onClick=${() => change(moved(view, STEP, nowMs))}><${Icon} name="closed" /></button>
          <button title="Zoom in (+)" aria-label="Zoom in" onClick=${() => change(zoomed(view, 1 / ZOOM, view.live ? 1 : 0.5, nowMs))}><${Icon} name="plus" /></button>
          <button title="Zoom out (−)" aria-label="Zoom out" onClick=${() => change(zoomed(view, ZOOM, view.live ? 1 : 0.5, nowMs))}><${Icon} name="minus" /></button>
          <button aria-pressed=${view.live} onClick=${() => set({ to: undefined })}>Now</button>
        </div>
        <span class="spring"></span>
        <div class="row">
        <input type="search" aria-label="Filter tasks" placeholder="Filter" value=${read("q")} onInput=${(event) => set({ q: event.target.value })} />
        ${known.length > 0 && html`<select aria-label="Slot" value=${slot} onChange=${(event) => set({ slot: event.target.value })}><option value="">All slots</option>${known.map((one) => html`<option key=${one} value=${one}>slot ${one}</option>`)}</select>`}
        <button aria-pressed=${services} onClick=${() => set({ services: services ? undefined : "1" })}>Services</button>
        <button aria-pressed=${table} onClick=${() => set({ view: table ? undefined : "table" })}><${Icon} name="list" />Table</button>
        </div>
      </header>
      <div class="about small soft">
        <span role="status">${moment(view.from)} to ${view.live ? "now" : moment(view.to)}${data ? `: ${count(runs.length, "run")}` : ""}</span>
        ${data && partOf(data)}
        <span class="spring"></span>
        ${!table && html`<${Key} />`}
      </div>
      ${error && html`<${Problem} error=${error} retry=${reload} />`}
      ${!data && !error && html`<${Skeleton} rows=${10} />`}
      ${data && table && html`<${Table} runs=${runs} overlaps=${overlaps} slots=${slots} nowMs=${nowMs} />`}
      ${data && !table && html`<${Chart} rows=${rowsOf(runs, nowMs)} slots=${slots} overlaps=${overlaps} view=${view} since=${data.since} behind=${dueSince} nowMs=${nowMs} change=${change} tagsOf=${(name) => Object.entries(usesOf(name)).map(([one, places]) => (places > 1 ? `${one} ${places}` : one))} />`}
      ${data && !table && !late && !runs.length && html`<${Empty}><p>${wanted || slot ? "No run matches the filter." : "No runs in this time."}</p></${Empty}>`}
    </section>`;
}

/** A note about runs that are not shown; false if none are missing. Parameters: see loadRuns. */
function partOf({ missing, since, some }) {
  if (missing) return html`<b class="part">${count(missing, "older run")} not shown: complete since ${moment(since)}. Zoom in to see all.</b>`;
  return some && html`<b class="part">Some runs that began earlier are not shown.</b>`;
}

const Key = () => html`<p class="key">
  <span><i class="good"></i>succeeded</span><span><i class="bad"></i>failed</span><span><i class="busy"></i>running</span><span><i class="wait"></i>waited</span><span><i class="late"></i>late</span>
</p>`;

function Table({ runs, overlaps, slots, nowMs }) {
  const [most, setMost] = useState(SHOWN);
  if (!runs.length) return html`<${Empty}><p>No runs in this time.</p></${Empty}>`;
  const newest = runs.toReversed();
  return html`<div class="scroll-x"><table>
      <caption class="hidden-text">Runs, newest first</caption>
      <thead><tr><th>Task</th><th>State</th><th>Created</th><th class="number">Waited</th><th class="number">Took</th><th>At the same time</th></tr></thead>
      <tbody>${newest.slice(0, most).map((run) => html`<tr key=${run.id}>
        <td><${UnitLink} name=${run.taskName} /></td>
        <td><${RunBadge} run=${run} /></td>
        <td><a href=${link("run", run.id)} aria-label=${`Run of ${run.taskName}, ${moment(run.createdAt)}`}><${At} at=${run.createdAt} /></a></td>
        <td class="number">${waitedMs(run, nowMs) >= 1000 ? duration(waitedMs(run, nowMs)) : "–"}${isLate(run, nowMs) && html` <span class="tag">late</span>`}</td>
        <td class="number">${duration(tookMs(run, nowMs))}</td>
        <td class="small soft">${atTheSameTime(overlaps.get(run.id))}</td>
      </tr>`)}</tbody>
    </table></div>
    ${newest.length > most && html`<p class="body"><button onClick=${() => setMost(most + SHOWN)}>Show more of ${count(newest.length, "run")}</button></p>`}
    ${slots.length > 0 && html`<ul class="body small">${slots.map((slot) => html`<li key=${slot.name}>Slot ${slot.name}: at most ${slot.size === undefined ? count(slot.most, "place") : `${slot.most} of ${count(slot.size, "place")}`} held at the same time</li>`)}</ul>`}`;
}
