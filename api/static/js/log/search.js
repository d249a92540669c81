// Search in the logs of all tasks and services, of one of them, or of one run. Hits load page by page and appear as
// they arrive.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { get } from "../api.js";
import { count, size } from "../format.js";
import { Icon } from "../parts/icon.js";
import { fill } from "./text.js";

const HITS = 200;
const ALL_HITS = 5000; // total at which loading all hits pauses

/** Return the query in the parameters of an address, {q, regex, cased, all}, or null. all: search every run. */
export function queryOf(parameters) {
  const has = (name) => parameters.get(name) === "true";
  const q = parameters.get("q");
  return q ? { q, regex: has("regex"), cased: has("case"), all: has("all") } : null;
}

/** Return a query as parameters of an address; null clears them. The inverse of `queryOf`. */
export function parametersOf(query) {
  const { q, regex, cased, all } = query ?? {};
  return { q, regex: regex || undefined, case: cased || undefined, all: all || undefined };
}

/** Return a RegExp that highlights the matches of a query, or null if the browser cannot compile it. */
export function finder({ q, regex, cased }) {
  if (!q) return null;
  try {
    return new RegExp(regex ? q : q.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), cased ? "g" : "gi");
  } catch {
    return null; // the server still finds matches: RE2 has syntax that browsers lack
  }
}

/**
 * Search at `address`, a path of the API; return {hits, done, error, scanned, hasMore, more(most)}.
 * query: {q, regex, cased}, or null for no search. scanned: searched bytes. more(most): load up to `most` further hits.
 * scope: further parameters of the request; all pages share the result of one call of its `since()`.
 * about: a value that changes with the scope and so restarts the search.
 */
export function useSearch(address, scope, query, about) {
  const [found, setFound] = useState({ hits: [], done: true, error: null, scanned: 0 });
  const next = useRef(null);
  const since = useRef(undefined);
  const turn = useRef(0);
  const key = JSON.stringify(query);
  const run = async (cursor, before, most = HITS) => {
    const mine = ++turn.current;
    const hits = [...before.hits];
    let scanned = before.scanned;
    const enough = Math.min(hits.length + most, Math.max(hits.length + HITS, ALL_HITS));
    setFound({ hits, done: false, error: null, scanned });
    try {
      for (let at = cursor; hits.length < enough; ) {
        const { q, regex, cased } = query;
        const parameters = { ...scope, since: since.current, q, regex: regex || undefined, case: cased || undefined, limit: HITS, cursor: at };
        const page = await get(address, parameters);
        if (mine !== turn.current) return;
        hits.push(...page.items);
        scanned += page.scannedBytes;
        at = page.nextCursor;
        next.current = at ?? null;
        setFound({ hits: [...hits], done: !at, error: null, scanned });
        if (!at) return;
      }
      setFound({ hits, done: true, error: null, scanned });
    } catch (error) {
      if (mine === turn.current) setFound({ hits, done: true, error, scanned });
    }
  };
  useEffect(() => {
    next.current = null;
    turn.current += 1;
    since.current = scope.since?.();
    if (query) run(undefined, { hits: [], scanned: 0 });
    else setFound({ hits: [], done: true, error: null, scanned: 0 });
    return () => {
      turn.current += 1; // ignore responses that are still under way
    };
  }, [address, about, key]);
  return { ...found, hasMore: next.current !== null, more: (most) => run(next.current, found, most) };
}

/**
 * A list of hits. found: the result of `useSearch`. pattern: a RegExp to highlight, or null.
 * address(hit): the address of its line. choose(hit): called in its place when a hit is clicked, if given.
 * label(hit): the text before the hit. tools: further buttons.
 * at: the index of the current hit, or null. step(by): move by 1 or -1; with it, the list shows only HITS at a time.
 */
export function Hits({ found, pattern, address, choose, label, tools, at = null, step }) {
  const { hits, done, error, scanned, hasMore, more } = found;
  const told = error ? error.message : `${count(hits.length, "hit")}${hasMore ? " so far" : ""}, ${size(scanned)} searched${done ? "" : " …"}`;
  const begin = Math.max(0, Math.min((at ?? 0) - HITS / 2, hits.length - HITS));
  const press = (event, hit) => {
    if (!choose || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    choose(hit);
  };
  const shown = step ? hits.slice(begin, begin + HITS) : hits;
  return html`<div>
    <p class="log-foot ${error ? "problem" : ""}" role="status">${told}
      ${step && hits.length > 0 && html`<span class="row hit-steps">
        <button class="plain" title="Previous hit (N)" aria-label="Previous hit" onClick=${() => step(-1)}><${Icon} name="up" /></button>
        <span class="number">${at === null ? "–" : (at + 1).toLocaleString()} of ${hits.length.toLocaleString()}</span>
        <button class="plain" title="Next hit (n)" aria-label="Next hit" onClick=${() => step(1)}><${Icon} name="down" /></button>
      </span>`}
      ${done && hasMore && html`<button class="link" onClick=${() => more()}>Find more</button>`}
      ${tools}
    </p>
    ${shown.length > 0 &&
    html`<ul class="hits" aria-label="Hits">
      ${shown.map((hit) => html`<li key=${hit.runId + hit.n}><a href=${address(hit)} aria-current=${hits[at] === hit ? "true" : undefined} onClick=${(event) => press(event, hit)}><span class="n">${label(hit)}</span><${Text} text=${hit.text} pattern=${pattern} /></a></li>`)}
    </ul>`}
  </div>`;
}

function Text({ text, pattern }) {
  const box = useRef(null);
  useEffect(() => {
    box.current.replaceChildren();
    fill(box.current, text, pattern, undefined, false);
  }, [text, String(pattern)]);
  return html`<span class="clip" ref=${box}></span>`;
}

/** A search field. search(query): called with {q, regex, cased}, or null for empty text. initial: the first query. */
export function SearchField({ search, label, initial = null }) {
  const [q, setQ] = useState(initial?.q ?? "");
  const [regex, setRegex] = useState(initial?.regex ?? false);
  const [cased, setCased] = useState(initial?.cased ?? false);
  const submit = (event, changes = {}) => {
    event?.preventDefault();
    const query = { q, regex, cased, ...changes };
    search(query.q ? query : null);
  };
  const flip = (name, value, set) => {
    set(!value);
    if (q) submit(null, { [name]: !value });
  };
  return html`<form class="row" role="search" onSubmit=${submit}>
    <input
      type="search"
      aria-label=${label}
      placeholder=${label}
      value=${q}
      onInput=${(event) => {
        setQ(event.target.value);
        if (!event.target.value) search(null);
      }}
    />
    <button type="button" class="plain mono" aria-pressed=${regex} title="Regular expression (RE2)" aria-label="Regular expression" onClick=${() => flip("regex", regex, setRegex)}>.*</button>
    <button type="button" class="plain mono" aria-pressed=${cased} title="Match case" aria-label="Match case" onClick=${() => flip("cased", cased, setCased)}>Aa</button>
    <button>Search</button>
  </form>`;
}
