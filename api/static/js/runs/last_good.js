// A card that compares a failed run with the task's last successful run before it: start, duration, parameters,
// definition, and on request the first difference of their logs.
import { html, useState } from "../../vendor/preact.js";
import { attempt } from "../actions.js";
import { get, runPath, taskPath } from "../api.js";
import { changedKeys } from "../definition.js";
import { count, duration, number, tookMs } from "../format.js";
import { plain } from "../log/escapes.js";
import { link } from "../routes.js";
import { Act, At, Card, useLoad } from "../parts/basics.js";

const COMPARED = 1000; // lines compared of each log
const BEFORE = 2;
const AFTER = 8;

/** Return the text of a line for comparison. It replaces numbers and ids, which differ between any two runs. */
const shape = (line) => line.text.replace(/[0-9a-f]{8,}|[0-9]+/gi, "0");

/**
 * Find the first difference of two logs, given as lists of lines. Return null if there is none, otherwise
 * {first, same, here, there}: its index, the equal lines before it, and the lines of both logs from there on.
 */
export function difference(here, there) {
  const most = Math.max(here.length, there.length);
  let first = 0;
  while (first < most && here[first] && there[first] && shape(here[first]) === shape(there[first])) first += 1;
  if (first === most) return null;
  const around = (lines) => lines.slice(first, first + AFTER);
  return { first, same: here.slice(Math.max(0, first - BEFORE), first), here: around(here), there: around(there) };
}

async function logOf(run) {
  const page = await get(runPath(run.id, "log"), { from: 0, limit: COMPARED });
  return page.lines.filter((line) => line.stream !== "system").map((line) => ({ ...line, text: plain(line.text) }));
}

const definitionOf = async (run, signal) => (await get(runPath(run.id, "definition"), {}, signal)).definition;

/**
 * Compare the definitions of the runs `good` and `run`. `then` and `now` are their hashes; runs of earlier versions
 * have none. Return {changes}, or {missing: "the last good run" or "this run"} if a hash is missing.
 */
async function definitions(good, then, run, now, signal) {
  if (!then || !now) return { missing: now ? "the last good run" : "this run" };
  if (then === now) return { changes: [] };
  const [before, after] = await Promise.all([definitionOf(good, signal), definitionOf(run, signal)]);
  return { changes: changedKeys(before, after) };
}

/** details: the response of /api/runs/{runId}/details. */
export function LastGood({ run, details }) {
  const load = async (signal) => {
    const query = { status: "succeeded", createdBefore: run.createdAt, limit: 1, extended: true };
    const found = await get(taskPath(run.taskName, "runs"), query, signal);
    const [good] = found.items;
    if (!good) return null;
    return { good, ...(await definitions(good, found.details[good.id].definitionHash, run, details.definitionHash, signal)) };
  };
  const { data } = useLoad(load, [run.id]);
  const [compared, setCompared] = useState(null);
  if (!data) return null;
  const { good } = data;
  const compare = async () => {
    const logs = await attempt(() => Promise.all([logOf(run), logOf(good)]));
    if (logs) setCompared({ found: difference(...logs) });
  };
  const names = [...new Set([...Object.keys(run.params ?? {}), ...Object.keys(good.params ?? {})])];
  const changed = names.filter((name) => run.params?.[name] !== good.params?.[name]);
  return html`<${Card} title="Last good run" tools=${html`<a class="button" href=${link("run", good.id)}>Show run</a><${Act} run=${compare}>Compare logs</${Act}>`}>
    <div class="body"><dl class="facts">
      <div><dt>Started</dt><dd><${At} at=${good.startedAt ?? good.createdAt} /></dd></div>
      <div class="wide"><dt>Duration</dt><dd>${duration(tookMs(good))}, this run ${duration(tookMs(run))}</dd></div>
      ${names.length > 0 && html`<div><dt>Parameters</dt><dd>${changed.length ? count(changed.length, "difference") : "the same"}</dd></div>`}
      ${changed.map((name) => html`<div key=${name}><dt>${name}</dt><dd class="mono">${good.params?.[name] ?? "–"} → ${run.params?.[name] ?? "–"}</dd></div>`)}
    </dl>
    <${DefinitionChanges} missing=${data.missing} changes=${data.changes} />
    ${compared && html`<${Compared} run=${run} good=${good} found=${compared.found} />`}</div>
  </${Card}>`;
}

function DefinitionChanges({ missing, changes }) {
  if (missing) return html`<p>Definition: not recorded for ${missing}</p>`;
  if (!changes.length) return html`<p>Definition: unchanged <span class="small soft">(values of secrets are not compared)</span></p>`;
  return html`<table class="changes">
    <caption>Definition: ${count(changes.length, "change")}</caption>
    <thead><tr><th scope="col">Key</th><th scope="col">Last good run</th><th scope="col">This run</th></tr></thead>
    <tbody>${changes.map(({ name, before, after }) => html`<tr key=${name}><th scope="row">${name}</th><td>${before}</td><td>${after}</td></tr>`)}</tbody>
  </table>`;
}

function Compared({ run, good, found }) {
  if (!found) return html`<p role="status">The first ${number(COMPARED)} lines of both logs are the same, apart from numbers.</p>`;
  const side = (title, label, which, lines) => html`<figure><figcaption><h3><a href=${link("run", which.id, { line: lines[0] ? lines[0].n + 1 : undefined })}>${title}</a></h3></figcaption>
    <pre class="mono compared" tabindex="0" role="region" aria-label=${label}>${found.same.map((line) => html`<span class="faint">${line.text}${"\n"}</span>`)}${lines.map((line) => html`<mark>${line.text}${"\n"}</mark>`)}${!lines.length && html`<span class="soft">end of the log</span>`}</pre></figure>`;
  return html`<p class="small soft" role="status">The logs differ from line ${number(found.first + 1)} on; numbers are not compared.</p>
    <div class="cards">${side("This run", "Lines of this run", run, found.here)}${side("Last good run", "Lines of the last good run", good, found.there)}</div>`;
}
