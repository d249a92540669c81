// Small things that every page needs.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { troubles } from "../attention.js";
import { duration, exact, moment, relative, tookMs } from "../format.js";
import { listen } from "../live.js";
import { link } from "../routes.js";
import { now } from "../state.js";
import { ofRun } from "../states.js";
import { ICON, Icon } from "./icon.js";

export function Badge({ look, title }) {
  return html`<span class="badge ${look.tone}" title=${title}><${Icon} name=${look.icon} />${look.word}</span>`;
}

export const RunBadge = ({ run }) => html`<${Badge} look=${ofRun(run)} />`;

/** A button that is pending from the press until `run()` has ended; meanwhile further presses do nothing. */
export function Act({ run, children, ...properties }) {
  const [busy, setBusy] = useState(false);
  const press = async () => {
    if (busy) return;
    setBusy(true);
    try {
      await run();
    } finally {
      setBusy(false);
    }
  };
  return html`<button ...${properties} aria-busy=${busy} onClick=${press}>${children}</button>`;
}

/** A time that is told as how far away it is. */
export function Ago({ at }) {
  return html`<time datetime=${at} title=${exact(at)}>${relative(at, now.value)}</time>`;
}

/** A time on the clock. */
export function At({ at }) {
  return html`<time datetime=${at} title=${exact(at)}>${moment(at)}</time>`;
}

/** How long a run took; counts while it runs. */
export function Took({ run }) {
  const ms = tookMs(run, run.endedAt || !run.startedAt ? 0 : now.value);
  return html`<span class="number">${duration(ms)}</span>`;
}

export function Card({ title, tools, children, label, className = "" }) {
  return html`<section class="card ${className}" aria-label=${label ?? title}>
    ${title && html`<header><h2>${title}</h2><span class="spring"></span>${tools}</header>`} ${children}
  </section>`;
}

/** What stands where nothing is yet: its words, and what to do about it. */
export function Empty({ children }) {
  return html`<div class="empty">${children}</div>`;
}

/** Grey bars where something is being loaded. */
export function Skeleton({ rows = 4 }) {
  const widths = Array.from({ length: rows }, (_, index) => ({ width: `${90 - ((index * 23) % 45)}%` }));
  return html`<div class="body" role="status" aria-label="Loading">
    ${widths.map((style) => html`<span class="skeleton" style=${style}></span>`)}
  </div>`;
}

/** A failure, with what can be done. */
export function Problem({ error, retry }) {
  return html`<div class="empty" role="alert">
    <p class="problem">${error.message}</p>
    ${retry && html`<button onClick=${retry}>Try again</button>`}
  </div>`;
}

const LONG = 30; // names that lists may have to cut

/** Link to the page of a task or service. */
export const UnitLink = ({ name, children }) => html`<a href=${link("task", name)} title=${name.length > LONG ? name : undefined}>${children ?? name}</a>`;

/**
 * What `load(signal)` gives, again whenever `keys` change: {data, error, reload}.
 * The data before stays while new data is loaded, so that nothing flickers; what has failed is tried again when the
 * daemon is back.
 */
export function useLoad(load, keys) {
  const [result, setResult] = useState({ data: null, error: null });
  const [turn, setTurn] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  const key = JSON.stringify(keys);
  useEffect(() => {
    const abort = new AbortController();
    latest
      .current(abort.signal)
      .then((data) => !abort.signal.aborted && setResult({ data, error: null }))
      .catch((error) => {
        if (!abort.signal.aborted) setResult((before) => ({ data: before.data, error }));
      });
    return () => abort.abort();
  }, [key, turn]);
  const reload = useRef(() => setTurn((value) => value + 1));
  const failed = useRef(false);
  failed.current = result.error !== null;
  useEffect(() => listen((kind) => kind === "resumed" && failed.current && reload.current()), []);
  return { ...result, reload: reload.current };
}

/** The title of the window; with its icon it tells how many units need attention. */
export function useTitle(text) {
  const number = troubles.value;
  useEffect(() => {
    document.title = `${number ? `(${number}) ` : ""}${text ? `${text} · ` : ""}Ringward`;
    document.querySelector('link[rel="icon"]').href = number ? ICON.replace("icon.svg", `badges/${number > 9 ? "more" : number}.svg`) : ICON;
  }, [text, number]);
}
