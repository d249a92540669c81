// The entry point of the dashboard: the login, the current page and the frame around it.
import { html, render, useErrorBoundary, useEffect, useState } from "../vendor/preact.js";
import { Refused, get, loggedIn, whenLoggedOut } from "./api.js";
import { connect, disconnect } from "./live.js";
import { Accounts } from "./pages/accounts.js";
import { Audit } from "./pages/audit.js";
import { CalendarPage } from "./pages/calendar.js";
import { Daemon } from "./pages/daemon.js";
import { Deleted } from "./pages/deleted.js";
import { Login } from "./pages/login.js";
import { Logs } from "./pages/logs.js";
import { Notifications } from "./pages/notifications.js";
import { Notifiers } from "./pages/notifiers.js";
import { Overview } from "./pages/overview.js";
import { RunPage } from "./pages/run.js";
import { Runs } from "./pages/runs.js";
import { Search } from "./pages/search.js";
import { System } from "./pages/system.js";
import { Timeline } from "./pages/timeline.js";
import { Tokens } from "./pages/tokens.js";
import { UnitPage } from "./pages/unit.js";
import { Usage } from "./pages/usage.js";
import { Card, Empty, Skeleton, useTitle } from "./parts/basics.js";
import { Frame } from "./parts/frame.js";
import { listenToKeys } from "./parts/shortcuts.js";
import { comeTo } from "./position.js";
import { link, route } from "./routes.js";
import { me } from "./state.js";

const AGAIN_MS = 2000;

function page([name, key]) {
  if (name === undefined) return html`<${Overview} />`;
  if (name === "task" && key) return html`<${UnitPage} key=${key} name=${key} />`;
  if (name === "run" && key) return html`<${RunPage} key=${key} id=${key} />`;
  const plain = { runs: Runs, timeline: Timeline, logs: Logs, calendar: CalendarPage, usage: Usage, search: Search, notifications: Notifications, system: System, daemon: Daemon, deleted: Deleted, notifiers: Notifiers, audit: Audit, accounts: Accounts, tokens: Tokens }[name];
  if (plain) return html`<${plain} />`;
  return html`<${Nowhere} />`;
}

function Nowhere() {
  useTitle("No such page");
  return html`<h1>No such page</h1><${Card} label="No such page"><${Empty}><p>This page does not exist.</p><a class="button" href=${link()}>Overview</a></${Empty}></${Card}>`;
}

function Page() {
  const { path } = route.value;
  const key = path.join("/");
  const [error, reset] = useErrorBoundary((failure) => console.error(failure));
  useEffect(() => {
    reset();
    return comeTo();
  }, [key]);
  if (error) {
    return html`<h1>This page failed to load</h1><${Card} label="Failure"><${Empty}><p class="problem">${error.message}</p>
      <button onClick=${() => location.reload()}>Reload page</button></${Empty}></${Card}>`;
  }
  return page(path);
}

function App() {
  const [problem, setProblem] = useState(null);
  const enter = async () => {
    try {
      me.value = await get("api/auth/status");
      setProblem(null);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      setProblem(error.message);
      setTimeout(enter, AGAIN_MS);
      return;
    }
    if (!me.value.authenticated) return;
    connect();
    loggedIn();
  };
  useEffect(() => {
    whenLoggedOut((waiting) => {
      disconnect();
      me.value = { authenticated: false, expired: true, waiting: me.value?.waiting || waiting };
    });
    enter();
  }, []);
  if (me.value === null) return problem ? html`<main class="login"><p role="alert">${problem}; retrying …</p></main>` : null;
  if (!me.value.authenticated) return html`<${Login} entered=${enter} />`;
  return html`<${Frame}><${Page} /></${Frame}>`;
}

listenToKeys();
render(html`<${App} />`, document.getElementById("app"));
