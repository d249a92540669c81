// The daemon page: shows the daemon's version, configuration, problems and log.
import { html, useMemo } from "../../vendor/preact.js";
import { pauseAll } from "../actions.js";
import { duration } from "../format.js";
import { Ago, Badge, Card, Empty, NotPermitted, Skeleton, useTitle } from "../parts/basics.js";
import { Icon } from "../parts/icon.js";
import { Plan } from "../parts/plan.js";
import { LogPanel } from "../log/panel.js";
import { DaemonLog } from "../log/source.js";
import { route } from "../routes.js";
import { bundled, daemon, isAdmin, isLimited, mayOperate, now } from "../state.js";

/** The daemon's problems, each with its subject. `ringward status` prints the same list. */
function Problems({ daemon: one }) {
  const found = [
    ...(one.databaseProblem ? [["Database", one.databaseProblem]] : []),
    ...one.configWarnings.map((text) => ["Configuration", text]),
    ...one.inotifyProblems.map((text) => ["File changes", text]),
    ...(one.logProblems ?? []).map((text) => ["Logs", text]),
    ...one.exports.filter((each) => each.error).map((each) => [`Export ${each.name}`, each.error]),
  ];
  if (!found.length) return null;
  return html`<${Card} title="Problems"><dl class="problems">${found.map(([subject, text]) => html`<div><dt>${subject}</dt><dd>${text}</dd></div>`)}</dl></${Card}>`;
}

export function Daemon() {
  useTitle("Daemon");
  const source = useMemo(() => new DaemonLog(), [daemon.value?.startedAt]); // a restarted daemon starts a new log
  const planned = route.value.query.get("plan") === "1";
  if (isLimited.value) return html`<${NotPermitted} title="Daemon">Your token is limited to some tasks and cannot see the daemon.</${NotPermitted}>`;
  const one = daemon.value;
  return html`<div class="page-head"><h1>Daemon</h1><span class="spring"></span>
      ${one && !one.pause && mayOperate.value && html`<button onClick=${pauseAll}><${Icon} name="pause" />Pause all schedules</button>`}</div>
    ${isAdmin.value && html`<${Plan} open=${planned} />`}
    <${Card} title="This daemon" tools=${one && (one.schedulerActive ? html`<${Badge} look=${{ tone: "good", word: "scheduler running", icon: "check" }} />` : html`<${Badge} look=${{ tone: "warn", word: one.starting ? "starting" : "scheduler restarting", icon: "redo" }} />`)}>
      ${!one && html`<${Skeleton} />`}
      ${one &&
      html`<div class="body"><dl class="facts">
        <div><dt>Host</dt><dd>${one.hostname}</dd></div>
        <div><dt>Version</dt><dd>${one.version}</dd></div>
        <div><dt>Up for</dt><dd>${duration(now.value - Date.parse(one.startedAt))}</dd></div>
        <div><dt>Tasks, services</dt><dd>${one.tasks}, ${one.services}</dd></div>
        ${one.timezone && html`<div><dt>Time zone</dt><dd>${one.timezone}</dd></div>`}
        <div><dt>Database</dt><dd>${{ sqlite: "SQLite", postgresql: "PostgreSQL" }[one.store]}</dd></div>
        <div class="wide"><dt>Configuration</dt><dd class="mono">${one.configPath}</dd></div>
        ${!bundled && html`<div class="wide"><dt>Dashboard</dt><dd>Not bundled, so pages load slowly over a network: run <code>make bundle</code>, then restart the daemon</dd></div>`}
        ${one.configLoadedAt && html`<div><dt>Loaded</dt><dd><${Ago} at=${one.configLoadedAt} /></dd></div>`}
      </dl></div>`}
    </${Card}>
    ${one && html`<${Problems} daemon=${one} />`}
    ${isAdmin.value ? html`<${LogPanel} source=${source} title="The daemon's log" oneStream />` : html`<${Card} title="The daemon's log"><${Empty}>Only admins can read it.</${Empty}></${Card}>`}`;
}
