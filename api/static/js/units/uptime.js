// The uptime of a service: a bar for each of the last 90 days, and a list of its instances.
import { html, useEffect, useState } from "../../vendor/preact.js";
import { get, taskPath } from "../api.js";
import { count, day, duration } from "../format.js";
import { listen } from "../live.js";
import { link } from "../routes.js";
import { currentMs } from "../server_time.js";
import { now, throttle } from "../state.js";
import { ofService } from "../states.js";
import { Badge, Card, Problem, Skeleton, useLoad } from "../parts/basics.js";
import { told } from "../parts/tip.js";

const DAY_MS = 86_400_000;
const DAYS = 90;
const AGAIN_MS = 5000;
const WELL = 0.9995;
const POOR = 0.95;
const START_MS = 1000; // a start takes this long at most; it is no outage
/** Return the share of time up, 0 to 1; null for a day on which the service was stopped or not observed. */
const share = ({ upMs, downMs }) => (upMs + downMs ? upMs / (upMs + downMs) : null);

/** Format a share (0 to 1) in percent, rounded down: only a time without any outage shows 100 %. */
export const percent = (part) => (part === null ? "–" : `${(Math.floor(part * 10_000) / 100).toLocaleString()} %`);

function tone(one) {
  const part = one ? share(one) : null;
  if (part === null) return "none";
  return part >= WELL || one.downMs < START_MS ? "good" : part >= POOR ? "warn" : "bad";
}

const total = (items) =>
  items.reduce((sum, one) => ({ upMs: sum.upMs + one.upMs, downMs: sum.downMs + one.downMs }), { upMs: 0, downMs: 0 });

function words(key, one) {
  if (!one) return `${day(key)}: no data`;
  const part = share(one);
  if (part === null) return `${day(key)}: stopped`;
  return `${day(key)}: ${percent(part)} up${one.downMs ? `, down for ${duration(one.downMs)}` : ""}`;
}

/** Load the uptime of a service, and again when its state changes. Return {data, error, reload}. */
export function useUptime(name) {
  const found = useLoad((signal) => get(taskPath(name, "uptime"), { days: DAYS }, signal), [name]);
  useEffect(() => {
    const again = throttle(found.reload, AGAIN_MS);
    return listen((kind, body) => (kind === "resumed" || (kind === "service.state" && body.taskName === name)) && again());
  }, [name]);
  return found;
}

/** A bar for each day. Only one is in the Tab order; the arrow keys move the focus to the others. */
function Bars({ name, items }) {
  const [chosen, setChosen] = useState(DAYS - 1);
  const byDay = new Map(items.map((one) => [one.day, one]));
  const today = Math.floor(currentMs() / DAY_MS) * DAY_MS;
  const bars = Array.from({ length: DAYS }, (_, index) => {
    const at = today - (DAYS - 1 - index) * DAY_MS;
    const key = new Date(at).toISOString().slice(0, 10);
    const text = words(key, byDay.get(key));
    const address = link("runs", {
      task_name: name,
      created_after: new Date(at).toISOString(),
      created_before: new Date(at + DAY_MS - 1).toISOString(),
    });
    const one = byDay.get(key);
    return html`<a key=${key} href=${address} class=${tone(one)} title=${text} aria-label=${text} tabindex=${index === chosen ? 0 : -1} ...${told(text)}></a>`;
  });
  const keys = (event) => {
    const to = { ArrowLeft: chosen - 1, ArrowRight: chosen + 1, Home: 0, End: DAYS - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = Math.min(DAYS - 1, Math.max(0, to));
    setChosen(next);
    event.currentTarget.children[next].focus();
  };
  return html`<div class="uptime" role="group" aria-label=${`Uptime of ${name}, the last ${DAYS} days`} onKeyDown=${keys}>${bars}</div>
    <p class="uptime-ends small soft"><span>${DAYS} days ago</span><span>today</span></p>`;
}

const Key = () => html`<p class="key">
  <span><i class="good"></i>up</span><span><i class="warn"></i>short outage</span><span><i class="bad"></i>long outage</span><span><i></i>stopped or no data</span>
</p>`;

export function Uptime({ name, uptime: { data, error, reload } }) {
  const all = data && share(total(data.items));
  const week = data && share(total(data.items.filter((one) => Date.parse(one.day) > currentMs() - 7 * DAY_MS)));
  return html`<${Card} title="Uptime" className="uptime-card" tools=${html`<${Key} />`}>
    ${error && html`<${Problem} error=${error} retry=${reload} />`}
    ${!data && !error && html`<${Skeleton} rows=${3} />`}
    ${data && html`<div class="body">
      <${Bars} name=${name} items=${data.items} />
      <dl class="facts">
        <div><dt>90 days</dt><dd class="figure">${percent(all)}</dd></div>
        <div><dt>7 days</dt><dd class="figure">${percent(week)}</dd></div>
        <div><dt>Restarts in 24 h</dt><dd class="figure">${data.restarts24h.toLocaleString()}</dd></div>
      </dl>
    </div>`}
  </${Card}>`;
}

/** The instances of a service: the state of each and its duration, consecutive failures, and latest state changes. */
export function Instances({ unit, uptime }) {
  const known = new Map((uptime.data?.instances ?? []).map((one) => [one.index, one]));
  const rolling = unit.rolling && html`<${Badge} look=${{ tone: "busy", icon: "redo", word: `rolling restart: ${unit.rolling.done} of ${unit.rolling.total}` }} />`;
  return html`<${Card} title="Instances" tools=${rolling}>
    <ul class="lines instances">${(unit.instances ?? []).map((one) => html`<${InstanceRow} key=${one.index} one=${one} uptime=${known.get(one.index)} />`)}</ul>
  </${Card}>`;
}

function InstanceRow({ one, uptime }) {
  const [open, setOpen] = useState(false);
  const since = one.since ? duration(Math.max(0, now.value - Date.parse(one.since))) : null;
  const detail = one.detail ?? (one.state === "running" && !one.ready ? "not ready" : "");
  const failures = one.failures ? `${count(one.failures, "failure")} in a row` : "";
  return html`<li>
      <button class="link mono" aria-expanded=${open} aria-label=${`Instance ${one.index}: changes of its state`} onClick=${() => setOpen(!open)}>${open ? "▾" : "▸"} ${one.index}</button>
      <${Badge} look=${ofService(one.state)} />
      <span class="small number">${since && (one.state === "running" ? `up ${since}` : `for ${since}`)}</span>
      <span class="small soft clip">${[detail, failures].filter(Boolean).join(" · ")}</span>
      <span class="spring"></span>
      ${uptime && html`<span class="small soft number" title="Uptime of this instance in 90 days">${percent(share(uptime))}</span>`}
      ${one.runId && html`<a class="button" href=${link("run", one.runId)}>Log</a>`}
    </li>
    ${open && html`<li class="changes"><ol>${(uptime?.changes ?? []).map(
      (change, index, all) => html`<li key=${change.at + change.state}>
        <time class="small number" datetime=${change.at}>${new Date(change.at).toLocaleString()}</time>
        <${Badge} look=${ofService(change.state)} />
        <span class="small soft">${index ? `for ${duration(Date.parse(all[index - 1].at) - Date.parse(change.at))}` : "now"}</span>
        <span class="spring"></span>
        ${change.runId && html`<a class="small" href=${link("run", change.runId)}>run</a>`}
      </li>`,
    )}</ol></li>`}`;
}
