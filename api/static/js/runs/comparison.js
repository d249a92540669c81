// A card that compares a run with another one: the run in the address (`compare`), or a failed run with the task's last
// successful run before it. It compares result, times, parameters, definition, resources, and on request the logs.
import { html, useState } from "../../vendor/preact.js";
import { get, runPath, taskPath } from "../api.js";
import { changedKeys } from "../definition.js";
import { count, duration, size, tookMs } from "../format.js";
import { link } from "../routes.js";
import { FAILURES } from "../states.js";
import { At, Card, Problem, RunBadge, Skeleton, UnitLink, useLoad } from "../parts/basics.js";
import { LogDiff } from "./log_diff.js";

const definitionOf = async (run, signal) => (await get(runPath(run.id, "definition"), {}, signal)).definition;

/**
 * Compare the definitions of the runs `other` and `run`. `then` and `now` are their hashes; runs of earlier versions
 * have none. Return {changes}, or {missing: "the other run" or "this run"} if a hash is missing.
 */
async function definitions(other, then, run, now, signal) {
  if (!then || !now) return { missing: now ? "the other run" : "this run" };
  if (then === now) return { changes: [] };
  const [before, after] = await Promise.all([definitionOf(other, signal), definitionOf(run, signal)]);
  return { changes: changedKeys(before, after) };
}

/** Return the run to compare with, {other, hash}; null if there is none. */
async function otherOf(run, id, signal) {
  if (id) {
    const [other, details] = await Promise.all([get(runPath(id), { naming: "camel" }, signal), get(runPath(id, "details"), {}, signal)]);
    return { other, hash: details.definitionHash };
  }
  const query = { status: "succeeded", createdBefore: run.createdAt, limit: 1, extended: true };
  const { items: [other], details } = await get(taskPath(run.taskName, "runs"), query, signal);
  return other ? { other, hash: details[other.id].definitionHash } : null;
}

const FIGURES = [
  ["CPU", (used) => (used.cpuUserMs === undefined ? undefined : used.cpuUserMs + used.cpuSystemMs), duration],
  ["Peak memory", (used) => used.maxRssBytes, size],
  ["Read from disk", (used) => used.readBytes, size],
  ["Written to disk", (used) => used.writeBytes, size],
];

/** details: the response of /api/runs/{runId}/details. id: the run to compare with; without it, the last good run. */
export function Comparison({ run, details, id, leave }) {
  const load = async (signal) => {
    const found = await otherOf(run, id, signal);
    if (!found) return null;
    const [changes, ...used] = await Promise.all([
      definitions(found.other, found.hash, run, details.definitionHash, signal),
      ...[run, found.other].map((one) => get(runPath(one.id, "resources"), {}, signal)),
    ]);
    return { other: found.other, ...changes, used };
  };
  const { data, error, reload } = useLoad(load, [run.id, run.status, id]);
  const [logs, setLogs] = useState(Boolean(id));
  const title = id ? "Comparison" : "Last good run";
  if (!data && !id) return null;
  if (!data) return html`<${Card} title=${title}>${error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Skeleton} />`}</${Card}>`;
  const { other } = data;
  const theirs = id ? "Other run" : "Last good run";
  const names = [...new Set([...Object.keys(run.params ?? {}), ...Object.keys(other.params ?? {})])];
  const row = (label, mine, yours, differs = mine !== yours) => html`<tr key=${label} class=${differs ? "differs" : ""}><th scope="row">${label}</th><td>${mine ?? "–"}</td><td>${yours ?? "–"}</td></tr>`;
  const tools = html`<a class="button" href=${link("run", other.id)}>Show run</a>
    ${!logs && html`<button onClick=${() => setLogs(true)}>Compare logs</button>`}
    ${leave && html`<button onClick=${leave}>Close</button>`}`;
  return html`<${Card} title=${title} className="comparison" tools=${tools}><div class="body">
    <table class="changes">
      <thead><tr><td></td><th scope="col">This run</th><th scope="col">${theirs}</th></tr></thead>
      <tbody>
        ${other.taskName !== run.taskName && row("Task", run.taskName, html`<${UnitLink} name=${other.taskName} />`, true)}
        ${row("Started", html`<${At} at=${run.startedAt ?? run.createdAt} />`, html`<${At} at=${other.startedAt ?? other.createdAt} />`, false)}
        ${row("Result", html`<${RunBadge} run=${run} />`, html`<${RunBadge} run=${other} />`, run.endReason !== other.endReason)}
        ${row("Exit code", run.exitCode >= 0 ? run.exitCode : undefined, other.exitCode >= 0 ? other.exitCode : undefined)}
        ${row("Duration", duration(tookMs(run)), duration(tookMs(other)), false)}
        ${FIGURES.map(([label, of, text]) => {
          const [mine, yours] = data.used.map(of);
          return (mine ?? yours) !== undefined && row(label, text(mine), text(yours), false);
        })}
        ${names.map((name) => row(name, run.params?.[name], other.params?.[name]))}
      </tbody>
    </table>
    <${DefinitionChanges} missing=${data.missing} changes=${data.changes} theirs=${theirs} />
    ${logs && html`<h3>Logs</h3><${LogDiff} key=${other.id} left=${run} right=${other} names=${["This run", theirs]} />`}
  </div></${Card}>`;
}

/** Whether a run has a comparison without being asked for one. */
export const isCompared = (run) => FAILURES.includes(run.endReason);

function DefinitionChanges({ missing, changes, theirs }) {
  if (missing) return html`<p>Definition: not recorded for ${missing}</p>`;
  if (!changes.length) return html`<p>Definition: unchanged <span class="small soft">(values of secrets are not compared)</span></p>`;
  return html`<table class="changes">
    <caption>Definition: ${count(changes.length, "change")}</caption>
    <thead><tr><th scope="col">Key</th><th scope="col">${theirs}</th><th scope="col">This run</th></tr></thead>
    <tbody>${changes.map(({ name, before, after }) => html`<tr key=${name}><th scope="row">${name}</th><td>${before}</td><td>${after}</td></tr>`)}</tbody>
  </table>`;
}
