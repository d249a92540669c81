// Who started, stopped, paused, acknowledged or edited a unit, and why.
import { html, useEffect } from "../../vendor/preact.js";
import { get, taskPath } from "../api.js";
import { local } from "../format.js";
import { listen } from "../live.js";
import { operationName } from "../operations.js";
import { throttle } from "../state.js";
import { Ago, At, Card, Empty, Unloaded, useLoad } from "../parts/basics.js";
import { person } from "../verdict.js";

const AGAIN_MS = 3000;
const STOPS = ["stopService", "stopUnits"];
const STARTS = ["startService", "startUnits", "restartService", "restartUnits"];

/** Load the changes of the unit `name`, and again when its state changes. unit: its record; undefined if there is none. */
export function useChanges(name, unit) {
  const known = Boolean(unit);
  const found = useLoad(async (signal) => (known ? get(taskPath(name, "changes"), {}, signal) : null), [name, known, unit?.paused, unit?.acknowledged?.at, unit?.withheld?.at]);
  useEffect(() => {
    const again = throttle(found.reload, AGAIN_MS);
    return listen((kind, body) => (kind === "resumed" || kind === "config.reloaded" || (kind === "service.state" && body.taskName === name)) && again());
  }, [name]);
  return found;
}

const words = (change) => (change.operation === "edited" ? "Definition changed" : operationName(change.operation).replace("several", "together with others"));

/** Who stopped a stopped service, unless a line says so already. changes: the result of useChanges. */
export function StoppedBy({ unit, changes }) {
  if (unit.state !== "stopped" || unit.withheld) return null;
  const last = (changes.data?.items ?? []).find((one) => STOPS.includes(one.operation) || STARTS.includes(one.operation));
  if (!last || !STOPS.includes(last.operation)) return null;
  return html`<div class="banner busy"><span>Stopped by ${person(last.by ?? "unknown")} <${Ago} at=${last.at} /></span></div>`;
}

export function UnitHistory({ changes: { data, error, reload } }) {
  return html`<${Card} title="Changes" className="changes-of">
    ${!data && html`<${Unloaded} error=${error} retry=${reload} rows=${3} />`}
    ${data && !data.items.length && html`<${Empty}>Nobody has started, stopped, paused or edited it.</${Empty}>`}
    <ul class="lines">${(data?.items ?? []).map((one) => html`<li key=${one.at + one.operation}>
      <span class="small number"><${At} at=${one.at} /></span><span>${words(one)}</span>
      <span class="soft clip">${one.by && person(one.by)}${one.note && html`: <q>${local(one.note)}</q>`}</span>
    </li>`)}</ul>
  </${Card}>`;
}
