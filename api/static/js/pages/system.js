// The system page: charts of the host's metrics, its hardware, Ringward's own processes, disks and networks.
import { html } from "../../vendor/preact.js";
import { get } from "../api.js";
import { duration, percent, size } from "../format.js";
import { Card, NotPermitted, Problem, Skeleton, useLoad, useTitle } from "../parts/basics.js";
import { HostCharts } from "../parts/host.js";
import { isLimited, now } from "../state.js";

const LIVE_MS = 5000;
const RESOURCES = { cpu: "CPU", memory: "memory", io: "disk" };

export function System() {
  useTitle("System");
  const turn = Math.floor(now.value / LIVE_MS);
  const { data, error, reload } = useLoad(async (signal) => (isLimited.value ? null : get("api/system", {}, signal)), [turn]);
  if (isLimited.value) return html`<${NotPermitted} title="System">Your token is limited to some tasks and cannot see the host.</${NotPermitted}>`;
  return html`<h1>System</h1><${HostCharts} />
    ${error && !data && html`<${Card} label="Problem"><${Problem} error=${error} retry=${reload} /></${Card}>`}
    ${!data && !error && html`<${Card} label="Loading"><${Skeleton} rows=${8} /></${Card}>`}
    ${data && html`<div class="cards"><${Host} host=${data} /><${Processes} host=${data} /></div><${Disks} host=${data} />`}`;
}

function Host({ host }) {
  const load = host.cpu.load.map((value) => value.toFixed(2)).join(", ");
  const pressure = Object.entries(host.pressure).map(([name, one]) => `${RESOURCES[name] ?? name} ${percent(one.some[0])}`);
  return html`<${Card} title=${host.hostname}><div class="body"><dl class="facts">
    <div><dt>System</dt><dd>${host.os}</dd></div>
    <div><dt>Kernel</dt><dd>${host.kernel}, ${host.arch}</dd></div>
    <div><dt>Up for</dt><dd>${duration(now.value - Date.parse(host.bootedAt))}</dd></div>
    <div><dt>CPU</dt><dd>${percent(host.cpu.percent)} of ${host.cpu.cores} cores</dd></div>
    <div><dt>Each core</dt><dd>${host.cpu.perCore.map((value) => percent(value)).join(", ")}</dd></div>
    <div><dt>Load (1, 5, 15 min)</dt><dd>${load}</dd></div>
    <div><dt>Memory</dt><dd>${size(host.memory.usedBytes)} of ${size(host.memory.totalBytes)}</dd></div>
    <div><dt>Swap</dt><dd>${host.swap.totalBytes ? `${size(host.swap.usedBytes)} of ${size(host.swap.totalBytes)}` : "none"}</dd></div>
    ${pressure.length > 0 && html`<div><dt>Pressure, last 10 s</dt><dd>${pressure.join(", ")}</dd></div>`}
    ${host.temperatures.map((one) => html`<div><dt>${one.sensor}</dt><dd>${one.celsius.toFixed(0)} °C</dd></div>`)}
  </dl></div></${Card}>`;
}

function Processes({ host }) {
  return html`<${Card} title="Ringward's own processes"><div class="scroll-x"><table>
    <thead><tr><th>Process</th><th class="number">Pid</th><th class="number">CPU</th><th class="number">Memory</th></tr></thead>
    <tbody>${host.processes.map((one) => html`<tr key=${one.pid}><td>${one.name}</td><td class="number">${one.pid}</td><td class="number">${percent(one.cpuPercent)}</td><td class="number">${size(one.pssBytes ?? one.rssBytes)}</td></tr>`)}</tbody>
  </table></div></${Card}>`;
}

function Disks({ host }) {
  return html`<div class="cards">
    <${Card} title="File systems"><div class="scroll-x"><table>
      <thead><tr><th>Mounted at</th><th>Kind</th><th class="number">Used</th><th class="number">Free</th><th class="number">Size</th></tr></thead>
      <tbody>${host.disks.map((one) => html`<tr key=${one.mountPoint}><td class="mono">${one.mountPoint}</td><td>${one.fileSystem}</td>
        <td class="number">${one.totalBytes ? `${Math.round((100 * one.usedBytes) / one.totalBytes)} %` : "–"}</td><td class="number">${size(one.freeBytes)}</td><td class="number">${size(one.totalBytes)}</td></tr>`)}</tbody>
    </table></div></${Card}>
    <${Card} title="Networks"><div class="scroll-x"><table>
      <thead><tr><th>Name</th><th>State</th><th class="number">Received</th><th class="number">Sent</th></tr></thead>
      <tbody>${host.network.map((one) => html`<tr key=${one.name}><td class="mono">${one.name}</td><td>${one.up ? "up" : "down"}</td><td class="number">${size(one.receivedBytes)}</td><td class="number">${size(one.sentBytes)}</td></tr>`)}</tbody>
    </table></div></${Card}>
  </div>`;
}
