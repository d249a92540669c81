// Components and hooks that all pages share.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { troubles } from "../attention.js";
import { duration, exact, moment, relative, tookMs } from "../format.js";
import { listen } from "../live.js";
import { link } from "../routes.js";
import { now } from "../state.js";
import { ofRun } from "../states.js";
import { ICON, Icon } from "./icon.js";

const LONG = 30; // characters; lists may cut longer names, so their links get a title

export function Badge({ look, title }) {
  return html`<span class="badge ${look.tone}" title=${title}><${Icon} name=${look.icon} />${look.word}</span>`;
}

export const RunBadge = ({ run }) => html`<${Badge} look=${ofRun(run)} />`;

/** A button that calls `run()` and is busy until its promise settles. While busy, it ignores clicks. */
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

/** A time relative to now, such as "3 minutes ago". `at` is an ISO 8601 string. */
export function Ago({ at }) {
  return html`<time datetime=${at} title=${exact(at)}>${relative(at, now.value)}</time>`;
}

/** A time as date and clock time. `at` is an ISO 8601 string. */
export function At({ at }) {
  return html`<time datetime=${at} title=${exact(at)}>${moment(at)}</time>`;
}

/** The duration of a run; it counts up while the run is active. */
export function Took({ run }) {
  const ms = tookMs(run, run.endedAt || !run.startedAt ? 0 : now.value);
  return html`<span class="number">${duration(ms)}</span>`;
}

/** Links to the pages above a page, [[label, address]], and its own name as `children`. */
export function Crumbs({ above, children }) {
  return html`<nav aria-label="Breadcrumb"><ol>
    ${above.map(([label, address]) => html`<li class="clip"><a href=${address} title=${label.length > LONG ? label : undefined}>${label}</a></li>`)}
    <li><span aria-current="page">${children}</span></li>
  </ol></nav>`;
}

/** The head of a page: links to the pages above it, if there are any, its title, and its `tools`. */
export function Head({ title, above = [], tools }) {
  return html`${above.length > 0 && html`<div class="trail"><${Crumbs} above=${above}>${title}</${Crumbs}></div>`}
    <div class="page-head"><h1>${title}</h1><span class="spring"></span>${tools}</div>`;
}

export function Card({ title, tools, children, label, className = "" }) {
  return html`<section class="card ${className}" aria-label=${label ?? title}>
    ${title && html`<header><h2>${title}</h2><span class="spring"></span>${tools}</header>`} ${children}
  </section>`;
}

/** The placeholder of an empty list. `children` say why the list is empty and what the user can do. */
export function Empty({ children }) {
  return html`<div class="empty">${children}</div>`;
}

/** A placeholder for content that is being loaded: `rows` grey bars. */
export function Skeleton({ rows = 4 }) {
  const widths = Array.from({ length: rows }, (_, index) => ({ width: `${90 - ((index * 23) % 45)}%` }));
  return html`<div class="body" role="status" aria-label="Loading">
    ${widths.map((style) => html`<span class="skeleton" style=${style}></span>`)}
  </div>`;
}

/** An error message, with a "Try again" button if `retry` is given. */
export function Problem({ error, retry }) {
  return html`<div class="empty" role="alert">
    <p class="problem">${error.message}</p>
    ${retry && html`<button onClick=${retry}>Try again</button>`}
  </div>`;
}

/** In place of content that is not loaded yet: `rows` grey bars, or why it could not be loaded. */
export function Unloaded({ error, retry, rows }) {
  return error ? html`<${Problem} error=${error} retry=${retry} />` : html`<${Skeleton} rows=${rows} />`;
}

/** A page that the user may not see. `children` say why. */
export function NotPermitted({ title, children }) {
  return html`<h1>${title}</h1><${Card} label="Not permitted"><${Empty}>${children}</${Empty}></${Card}>`;
}

/** A link to the page of a task or service. */
export const UnitLink = ({ name, children }) => html`<a href=${link("task", name)} title=${name.length > LONG ? name : undefined}>${children ?? name}</a>`;

const HUNG_MS = 5000;

/**
 * Call `load(signal)` now and whenever `keys` change. Return {data, error, reload}; `data` is null before the first
 * result. The previous data stays until the new data arrives, so that the page does not flicker. A failed load is
 * repeated when the connection to the daemon is restored. `reload` waits for a load that is under way, because to
 * abort it would delay the first result on a slow link; it aborts a load that has taken longer than HUNG_MS.
 */
export function useLoad(load, keys) {
  const [result, setResult] = useState({ data: null, error: null });
  const [turn, setTurn] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  const key = JSON.stringify(keys);
  const underWay = useRef(null); // {since, again}; again: whether to load again afterwards
  useEffect(() => {
    const abort = new AbortController();
    const mine = { since: Date.now(), again: false };
    underWay.current = mine;
    latest
      .current(abort.signal)
      .then((data) => !abort.signal.aborted && setResult({ data, error: null }))
      .catch((error) => {
        if (!abort.signal.aborted) setResult((before) => ({ data: before.data, error }));
      })
      .finally(() => {
        if (abort.signal.aborted) return;
        underWay.current = null;
        if (mine.again) setTurn((value) => value + 1);
      });
    return () => abort.abort();
  }, [key, turn]);
  const reload = useRef(() => {
    const load = underWay.current;
    if (load && Date.now() - load.since < HUNG_MS) load.again = true;
    else setTurn((value) => value + 1);
  });
  const failed = useRef(false);
  failed.current = result.error !== null;
  useEffect(() => listen((kind) => kind === "resumed" && failed.current && reload.current()), []);
  return { ...result, reload: reload.current };
}

/** Set the title of the window to `text`. The title and the icon show the number of units that need attention. */
export function useTitle(text) {
  const number = troubles.value;
  useEffect(() => {
    document.title = `${number ? `(${number}) ` : ""}${text ? `${text} · ` : ""}Ringward`;
    document.querySelector('link[rel="icon"]').href = number ? ICON.replace("icon.svg", `badges/${number > 9 ? "more" : number}.svg`) : ICON;
  }, [text, number]);
}
