// The last runs of a unit as a row of bars: the height shows the duration, the colour the result.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { Refused, get } from "../api.js";
import { duration, moment, tookMs } from "../format.js";
import { listen } from "../live.js";
import { link } from "../routes.js";
import { throttle } from "../state.js";
import { ofRun } from "../states.js";
import { told } from "../parts/tip.js";

const SHOWN = 20;
const AGAIN_MS = 2000;
const AT_ONCE = 100; // unit names in one request
const known = new Map();
const waiting = new Map();
let busy = false;

/** Request the newest runs of `name` and pass them to take(runs). Requests made in the meantime are combined. */
function ask(name, take) {
  waiting.set(name, take);
  if (!busy) loadAsked();
}

async function loadAsked() {
  busy = true;
  await new Promise((resolve) => setTimeout(resolve)); // first let all rows of the table add their names
  while (waiting.size) {
    const asked = [...waiting].slice(0, AT_ONCE);
    for (const [name] of asked) waiting.delete(name);
    try {
      const { items } = await get("api/runs/newest", { tasks: asked.map(([name]) => name).join(","), limit: SHOWN });
      for (const { taskName, runs } of items) known.set(taskName, runs);
      for (const [name, take] of asked) take(known.get(name) ?? []);
    } catch (error) {
      if (!(error instanceof Refused)) throw error; // the next event repeats the request; the connection state shows the fault
    }
  }
  busy = false;
}

/** Return the newest runs of `name`, newest first; null before they are loaded. They update while `ref` is in view. */
function useLastRuns(name, ref) {
  const [runs, setRuns] = useState(known.get(name) ?? null);
  useEffect(() => {
    let seen = false;
    const load = () => seen && ask(name, setRuns);
    const again = throttle(load, AGAIN_MS);
    const observer = new IntersectionObserver((entries) => {
      const before = seen;
      seen = entries.at(-1).isIntersecting;
      if (seen && !before) load();
      else if (!seen) waiting.delete(name); // scrolled out of view before its request
    });
    observer.observe(ref.current);
    const stop = listen((kind, body) => {
      if (body.taskName === name || kind === "resumed" || (kind.startsWith("run.") && body.affected)) again();
    });
    return () => {
      seen = false;
      waiting.delete(name);
      observer.disconnect();
      stop();
    };
  }, [name]);
  return runs;
}

/** The bars, oldest first. Only one is in the Tab order; the arrow keys move the focus to the others. */
function Strip({ name, runs }) {
  const [chosen, setChosen] = useState(null);
  if (!runs?.length) return html`<span class="strip"></span>`;
  const shown = [...runs].reverse();
  const found = shown.findIndex((run) => run.id === chosen);
  const here = found < 0 ? shown.length - 1 : found;
  const longest = Math.max(1, ...runs.map((run) => tookMs(run) ?? 0));
  const bar = (run, index) => {
    const took = tookMs(run);
    const title = `${ofRun(run).word}, ${moment(run.createdAt)}${took === undefined ? "" : `, ${duration(took)}`}`;
    const style = { height: `${Math.round(3 + 21 * Math.sqrt((took ?? 0) / longest))}px` };
    return html`<a key=${run.id} class=${ofRun(run).tone} style=${style} href=${link("run", run.id)} title=${title} aria-label=${title} tabindex=${index === here ? 0 : -1} ...${told(title)}></a>`;
  };
  const keys = (event) => {
    const to = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: shown.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = Math.min(shown.length - 1, Math.max(0, to));
    setChosen(shown[next].id);
    event.currentTarget.children[next].focus();
  };
  return html`<span class="strip" role="group" aria-label=${`Last runs of ${name}`} onKeyDown=${keys}>${shown.map(bar)}</span>`;
}

/** A line of the durations of ended runs, with their median; renders nothing for fewer than three. */
function Spark({ runs }) {
  const took = (runs ?? []).map((run) => (run.endedAt ? tookMs(run) : undefined)).filter((ms) => ms !== undefined);
  if (took.length < 3) return null;
  const most = Math.max(...took, 1);
  const points = took
    .reverse()
    .map((ms, index) => `${((index / (took.length - 1)) * 78 + 1).toFixed(1)},${(23 - (ms / most) * 21).toFixed(1)}`);
  const middle = [...took].sort((a, b) => a - b)[took.length >> 1];
  return html`<span class="row" title="Durations, oldest first; the median is ${duration(middle)}">
    <svg class="spark" viewBox="0 0 80 24" aria-hidden="true"><polyline points=${points.join(" ")} /></svg>
    <span class="small soft number">${duration(middle)}</span>
  </span>`;
}

/** The strip of a unit's last runs, followed by their durations if `trend`. */
export function History({ name, trend = true }) {
  const ref = useRef(null);
  const runs = useLastRuns(name, ref);
  return html`<span class="row history" ref=${ref}><${Strip} name=${name} runs=${runs} />${trend && html`<span class="trend"><${Spark} runs=${runs} /></span>`}</span>`;
}
