// The head line of a run's page: links to the overview, the task, and the task's previous and next runs.
import { html, useEffect, useRef } from "../../vendor/preact.js";
import { get, taskPath } from "../api.js";
import { listen } from "../live.js";
import { link } from "../routes.js";
import { throttle } from "../state.js";
import { At, Crumbs, useLoad } from "../parts/basics.js";
import { Icon } from "../parts/icon.js";

const TOGETHER = 10; // runs per request; the lists also contain this run and others created in the same millisecond
const AGAIN_MS = 1000;

let stepped = null; // rel of the link that led to this run ("prev" or "next"), which gets the focus again

/** Return the run that follows `run` in `list`, which is sorted by creation; null if there is none. */
function after(run, list) {
  return list[list.findIndex((one) => one.id === run.id) + 1] ?? null;
}

/**
 * Load the neighbours of a run once `ready`. Return {id, previous, next}, or null before that. The two requests run one
 * after the other, to use only one connection.
 */
function useNeighbours(run, ready) {
  const ask = async (filter, signal) => after(run, (await get(taskPath(run.taskName, "runs"), { ...filter, limit: TOGETHER }, signal)).items);
  const { data, reload } = useLoad(
    async (signal) => {
      if (!ready) return null;
      const previous = await ask({ createdBefore: run.createdAt }, signal);
      return { id: run.id, previous, next: await ask({ createdAfter: run.createdAt, sortDirection: "asc" }, signal) };
    },
    [run.id, ready],
  );
  const known = data?.id === run.id ? data : null;
  const newest = known !== null && known.next === null;
  useEffect(() => {
    if (!newest) return undefined;
    const again = throttle(reload, AGAIN_MS);
    return listen((kind, body) => (kind === "resumed" || (kind === "run.created" && body.taskName === run.taskName)) && again());
  }, [run.id, newest]);
  return known;
}

/** ready: whether the log is loaded; only then are the neighbours requested. */
export function Trail({ run, ready }) {
  const found = useNeighbours(run, ready);
  const nav = useRef(null);
  useEffect(() => {
    if (found === null || stepped === null) return;
    const links = [...nav.current.querySelectorAll("a[href]")];
    if (document.activeElement === document.body) (links.find((one) => one.rel === stepped) ?? links[0])?.focus();
    stepped = null;
  }, [found === null]);
  const leave = (event) => {
    stepped = event.target.closest("a[href]")?.rel ?? null;
  };
  const step = (label, rel, icon, to) =>
    html`<a class="button" role="link" rel=${rel} href=${to ? link("run", to.id) : undefined} aria-disabled=${to ? undefined : "true"} aria-label=${`${label} run`}>${icon === "back" && html`<${Icon} name="back" />`}${label}${icon === "closed" && html`<${Icon} name="closed" />`}</a>`;
  return html`<div class="page-head trail">
    <${Crumbs} above=${[["Overview", link()], [run.taskName, link("task", run.taskName)]]}>Run of <${At} at=${run.createdAt} /></${Crumbs}>
    <span class="spring"></span>
    <nav class="row" aria-label="Neighbouring runs" ref=${nav} onClick=${leave}>${step("Previous", "prev", "back", found?.previous)}${step("Next", "next", "closed", found?.next)}</nav>
  </div>`;
}
