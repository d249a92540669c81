// The board: a table of all tasks and services. The page's address holds its filters and sort order; groups fold.
import { html, useEffect, useState } from "../../vendor/preact.js";
import { reasonOf, standsAs } from "../attention.js";
import { count, exact, number, relative } from "../format.js";
import { go, link, route } from "../routes.js";
import { words } from "../schedule.js";
import { now } from "../state.js";
import { FLAPPING, ofUnit } from "../states.js";
import { remember, remembered } from "../taste.js";
import { Ago, Badge, Card, Empty, Took, UnitLink } from "../parts/basics.js";
import { Icon } from "../parts/icon.js";
import { Select } from "../parts/select.js";
import { History } from "./strip.js";
import { UnitActions, keysOf } from "./unit_actions.js";
import { Views } from "./views.js";

const ROWS = 200;
const TABS = [["failing", "Failing"], ["flapping", "Flapping"], ["late", "Late"], ["running", "Running"], ["paused", "Paused"], ["", "All"]];
const TONES = ["bad", "warn", "busy", "mute", "good"]; // from worst to best
const LAST = "\uffff"; // sorts after every name and time

const byName = (a, b) => a.name.localeCompare(b.name);
const lastOf = (unit) => unit.lastRun?.startedAt ?? unit.lastRun?.createdAt ?? "";
const toneOf = (unit) => TONES.indexOf(unit.flapping ? "bad" : ofUnit(unit).tone);
const SORTS = {
  group: ["by group", (a, b) => (a.group ?? LAST).localeCompare(b.group ?? LAST) || byName(a, b)],
  name: ["by name", byName],
  state: ["by state", (a, b) => toneOf(a) - toneOf(b) || byName(a, b)],
  last: ["last run first", (a, b) => lastOf(b).localeCompare(lastOf(a)) || byName(a, b)],
  next: ["next run first", (a, b) => (a.nextRunAt ?? LAST).localeCompare(b.nextRunAt ?? LAST) || byName(a, b)],
};

/** Return [folded, toggle]: the set of folded groups, which the browser stores, and toggle(name). */
function useFolds() {
  const [folded, setFolded] = useState(() => new Set(remembered("folded", "").split("\n").filter(Boolean)));
  const toggle = (name) => {
    const next = new Set(folded);
    if (!next.delete(name)) next.add(name);
    setFolded(next);
    remember("folded", [...next].join("\n"));
  };
  return [folded, toggle];
}

function grouped(found, groupOf) {
  const groups = new Map();
  for (const unit of found) {
    const name = groupOf(unit);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(unit);
  }
  return groups;
}

const WIDE = matchMedia("(min-width: 601px)");

/** Return whether the window is wide enough for the last runs. On narrower windows they are not loaded either. */
export function useWide() {
  const [wide, setWide] = useState(WIDE.matches);
  useEffect(() => {
    const changed = () => setWide(WIDE.matches);
    WIDE.addEventListener("change", changed);
    return () => WIDE.removeEventListener("change", changed);
  }, []);
  return wide;
}

/** The row of a unit. `steps`: of a flow, which fold below it; `toggle` opens and closes them. */
function Row({ unit, wide, steps, open, toggle }) {
  const last = unit.lastRun;
  return html`<tr class=${unit.flow ? "step" : ""} onKeyDown=${keysOf(unit)}>
    <td class="name"><div>${steps?.length > 0 && html`<button class="fold" aria-expanded=${open} aria-label="Steps of ${unit.name}" onClick=${toggle}><${Icon} name=${open ? "open" : "closed"} /></button>`}<${UnitLink} name=${unit.name} />${unit.description && html`<span class="small soft clip" title=${unit.description}>${unit.description}</span>`}</div></td>
    <td class="state"><${Badge} look=${ofUnit(unit)} title=${reasonOf(unit, unit.instances?.find((one) => !one.ready && one.detail))} />${unit.flapping && html` <${Badge} look=${FLAPPING} />`}${unit.paused && html` <${Badge} look=${{ tone: "warn", word: "paused", icon: "pause" }} />`}</td>
    ${wide && html`<td class="runs-of"><${History} name=${unit.name} trend=${unit.kind === "task"} /></td>`}
    <td class="wide small soft last">${last && html`<a href=${link("run", last.id)}><${Ago} at=${last.startedAt ?? last.createdAt} /></a>${unit.kind === "task" && last.startedAt && html`, <${Took} run=${last} />`}`}</td>
    <td class="wide small soft when"><div class="clip" title=${words(unit)}>${unit.nextRunAt ? html`<span title=${exact(unit.nextRunAt)}>${relative(unit.nextRunAt, now.value)}</span><span class="words"> · ${words(unit)}</span>` : words(unit)}</div></td>
    <td class="actions"><${UnitActions} unit=${unit} /></td>
  </tr>`;
}

export function Board({ all }) {
  const { query } = route.value;
  const read = (key) => query.get(key) ?? "";
  const [most, setMost] = useState(ROWS);
  const [folded, toggle] = useFolds();
  const wide = useWide();
  const set = (changes) => go(link({ ...Object.fromEntries(query), ...changes }), { replace: true });
  const wanted = read("q").toLowerCase().split(/\s+/).filter(Boolean);
  const stands = new Map(all.map((unit) => [unit.name, standsAs(unit, now.value)]));
  const fits = (unit) => {
    if ((read("kind") && unit.kind !== read("kind")) || (read("group") && unit.group !== read("group")) || (read("tag") && !unit.tags.includes(read("tag")))) return false;
    const where = [unit.name, unit.description, unit.group, ...unit.tags, ofUnit(unit).word, ...stands.get(unit.name)].join(" ").toLowerCase();
    return wanted.every((word) => where.includes(word));
  };
  const state = read("state");
  // Steps are below their flow; only a search for text finds them.
  const filtered = all.filter((unit) => (!unit.flow || wanted.length > 0) && fits(unit));
  const stepsOf = grouped(all.filter((unit) => unit.flow), (unit) => unit.flow);
  const sort = SORTS[read("sort")] ? read("sort") : "group";
  const found = filtered.filter((unit) => !state || stands.get(unit.name).includes(state)).sort(SORTS[sort][1]);
  const groups = grouped(found, sort === "group" ? (unit) => unit.group ?? "" : () => "");
  const searching = wanted.length > 0 || state !== "";
  const tabs = html`<div class="tabs" role="group" aria-label="State">${TABS.map(([key, label]) => {
    const size = key ? filtered.filter((unit) => stands.get(unit.name).includes(key)).length : filtered.length;
    return html`<button key=${key} class=${size && (key === "failing" || key === "flapping") ? "bad" : ""} aria-pressed=${key === state} onClick=${() => set({ state: key })}>${label} <span class="number">${number(size)}</span></button>`;
  })}</div>`;
  let left = most;
  return html`<${Card} label="Tasks and services" className="board">
    <header><h2>Tasks and services</h2>${tabs}<span class="spring"></span>
      <div class="tools">
        <input type="search" aria-label="Filter tasks and services" placeholder="Filter" value=${read("q")} onInput=${(event) => set({ q: event.target.value })} />
        <select aria-label="Kind" value=${read("kind")} onChange=${(event) => set({ kind: event.target.value })}>
          <option value="">Tasks and services</option><option value="task">Tasks</option><option value="service">Services</option>
        </select>
        <${Select} label="Group" all="All groups" value=${read("group")} values=${all.flatMap((unit) => unit.group ?? [])} set=${(group) => set({ group })} />
        <${Select} label="Tag" all="All tags" value=${read("tag")} values=${all.flatMap((unit) => unit.tags)} set=${(tag) => set({ tag })} />
        <select aria-label="Sort" value=${sort} onChange=${(event) => set({ sort: event.target.value })}>${Object.entries(SORTS).map(([key, [label]]) => html`<option key=${key} value=${key}>${label}</option>`)}</select>
        <a class="button" href=${link("logs", { group: read("group"), tag: read("tag"), task: wanted.length || state || read("kind") ? found.map((unit) => unit.name).join() : undefined })} title="The logs of these tasks and services together">Logs</a>
        <${Views} />
      </div>
    </header>
    ${!found.length && html`<${Empty}><p>No task or service matches the filter.</p></${Empty}>`}
    ${found.length > 0 &&
    html`<div class="scroll-x"><table class="units">
      <thead><tr><th>Name</th><th>State</th>${wide && html`<th>Last runs</th>`}<th class="wide last">Last</th><th class="wide when">Next</th><th><span class="hidden-text">Actions</span></th></tr></thead>
      ${[...groups].map(([name, members]) => {
        const open = searching || !folded.has(name);
        const shown = open ? members.slice(0, left) : [];
        left -= shown.length;
        return html`<tbody key=${name}>
          ${(groups.size > 1 || name) && html`<${GroupRow} name=${name} members=${members} stands=${stands} open=${open} toggle=${searching ? null : () => toggle(name)} />`}
          ${shown.map((unit) => {
            const steps = wanted.length ? [] : (stepsOf.get(unit.name) ?? []);
            const opened = folded.has(`${unit.name}:`);
            return html`<${Row} key=${unit.name} unit=${unit} wide=${wide} steps=${steps} open=${opened} toggle=${() => toggle(`${unit.name}:`)} />
              ${opened && steps.map((step) => html`<${Row} key=${step.name} unit=${step} wide=${wide} />`)}`;
          })}
        </tbody>`;
      })}
    </table></div>`}
    ${left <= 0 && found.length > most && html`<p class="body"><button onClick=${() => setMost(most + ROWS)}>Show more of ${count(found.length, "unit")}</button></p>`}
  </${Card}>`;
}

function GroupRow({ name, members, stands, open, toggle }) {
  const failing = members.filter((unit) => stands.get(unit.name).includes("failing")).length;
  const label = html`${name || "No group"} <span class="faint">${members.length}</span>${failing > 0 && html` <span class="badge bad">${failing} failing</span>`}`;
  return html`<tr class="group"><th colspan="6" scope="rowgroup">${toggle ? html`<button class="fold" aria-expanded=${open} onClick=${toggle}><${Icon} name=${open ? "open" : "closed"} />${label}</button>` : label}</th></tr>`;
}
