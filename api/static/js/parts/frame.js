// The frame around every page: navigation, top bar, banners, toasts and dialogs.
import { html, signal, useEffect, useState } from "../../vendor/preact.js";
import { post } from "../api.js";
import { attempt, endWindow, resumeAll } from "../actions.js";
import { duration } from "../format.js";
import { connection, disconnect, lostSince } from "../live.js";
import { link, route } from "../routes.js";
import { daemon, isAdmin, me, mayOperate, now, schedulerAbsences, trouble, unread } from "../state.js";
import { remember, remembered } from "../taste.js";
import { Withheld } from "../units/withheld.js";
import { Act } from "./basics.js";
import { Dialog } from "./dialog.js";
import { ICON, Icon } from "./icon.js";
import { openPalette } from "./palette.js";
import { showShortcuts } from "./shortcuts.js";
import { Tip } from "./tip.js";
import { Toasts } from "./toasts.js";

const FIRST = 5; // pages in the bar of a phone; the others are behind "More"
const ITEMS = [
  ["", "Overview", "home"],
  ["runs", "Runs", "list"],
  ["timeline", "Timeline", "bars"],
  ["logs", "Logs", "columns"],
  ["search", "Search", "search"],
  ["calendar", "Calendar", "calendar"],
  ["notifications", "Notifications", "bell"],
  ["usage", "Usage", "gauge"],
  ["system", "System", "pulse"],
  ["daemon", "Daemon", "file"],
  ["audit", "Audit", "shield", true],
  ["accounts", "Accounts", "user", true],
  ["tokens", "Tokens", "key", true],
];
const LONG_MS = 1000; // a shorter outage, such as an upgrade, shows no banner, which would move the page
const ABSENCES = 2; // a single one may only mean that the host is busy
const THEMES = { auto: "contrast", light: "sun", dark: "moon" };
const theme = signal(remembered("theme", "auto"));

function wear(value) {
  theme.value = value;
  remember("theme", value);
  if (value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
}
wear(theme.value);

function Nav() {
  const [open, setOpen] = useState(false);
  useEffect(() => setOpen(false), [route.value]);
  const here = route.value.path[0] ?? "";
  const current = { task: "", run: "runs", deleted: "runs", notifiers: "notifications" }[here] ?? here;
  const items = ITEMS.filter(([, , , admin]) => !admin || isAdmin.value);
  const rest = items.slice(FIRST);
  return html`<nav class="nav ${open ? "open" : ""}" aria-label="Pages">
    <a class="brand" href=${link()}><img src=${ICON} alt="" />Ringward</a>
    ${items.map(
      ([path, label, icon], index) => html`${index === FIRST && html`<button class="more" aria-expanded=${open} aria-current=${rest.some(([name]) => name === current) ? "true" : undefined} onClick=${() => setOpen(!open)}>
          <${Icon} name="more" />More${unread.value > 0 && html`<span class="count" aria-hidden="true">${Math.min(99, unread.value)}</span>`}
        </button>`}<a class=${index < FIRST ? "item" : "item rest"} href=${path ? link(path) : link()} aria-current=${path === current ? "page" : undefined}>
        <${Icon} name=${icon} />${label}
        ${path === "notifications" && unread.value > 0 && html`<span class="count" aria-label=${`${unread.value} unread`}>${unread.value > 99 ? "99+" : unread.value}</span>`}
      </a>`,
    )}
    <p class="foot">${daemon.value && html`${daemon.value.hostname}<br />Ringward ${daemon.value.version}<br />`}<a href="docs">HTTP API</a></p>
  </nav>`;
}

function LinkState() {
  const state = connection.value;
  const words = { connecting: "connecting", live: "live", lost: "disconnected" };
  return html`<span class="link-state ${state}" role="status">${words[state]}</span>`;
}

function Bar() {
  const next = { auto: "light", light: "dark", dark: "auto" }[theme.value];
  const logOut = async () => {
    disconnect();
    await attempt(() => post("api/auth/logout"));
    location.reload();
  };
  return html`<header class="bar">
    <button class="find" onClick=${openPalette}><${Icon} name="search" />Find<kbd>Ctrl K</kbd></button>
    <span class="spring"></span>
    <${LinkState} />
    <button class="plain wide" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick=${showShortcuts}>?</button>
    <button class="plain" aria-label=${`Colours: ${theme.value}; change to ${next}`} title=${`Colours: ${theme.value}`} onClick=${() => wear(next)}><${Icon} name=${THEMES[theme.value]} /></button>
    ${["session", "token"].includes(me.value?.method) && html`<button class="plain" aria-label="Log out" title=${me.value.user ? `Log out ${me.value.user}` : "Log out"} onClick=${logOut}><${Icon} name="out" /></button>`}
  </header>`;
}

function Banners() {
  const banners = [];
  const lostMs = connection.value === "lost" ? now.value - lostSince.value : 0;
  if (lostMs >= LONG_MS) {
    banners.push(html`<div class="banner bad" role="alert"><b>Disconnected for ${duration(lostMs)}.</b> This page may be out of date. Runs and services continue; reconnecting …</div>`);
  } else if (connection.value !== "lost" && schedulerAbsences.value >= ABSENCES) {
    banners.push(daemon.value.starting
      ? html`<div class="banner busy" role="status"><b>The daemon is starting.</b> Commands are rejected until it has started.</div>`
      : html`<div class="banner busy" role="status"><b>The scheduler is restarting.</b> Runs continue and logs are live; commands are delayed.</div>`);
  } else if (trouble.value) banners.push(html`<div class="banner bad" role="alert">${trouble.value}</div>`);
  if (daemon.value?.pause) {
    banners.push(html`<div class="banner warn" role="status"><${Withheld} word="All schedules are paused" ...${daemon.value.pause} /><span class="spring"></span>
      ${mayOperate.value && html`<${Act} run=${resumeAll}>Resume</${Act}>`}</div>`);
  }
  for (const { name, since, ...more } of daemon.value?.windows ?? []) {
    banners.push(html`<div class="banner warn" role="status"><${Withheld} word=${`The window ${name} was opened`} at=${since} ...${more} /><span class="spring"></span>
      ${mayOperate.value && html`<${Act} run=${() => endWindow(name)}>Close</${Act}>`}</div>`);
  }
  if (daemon.value?.configStale) {
    banners.push(html`<div class="banner warn" role="status"><b>The configuration was edited.</b> Reload to apply.<span class="spring"></span>
      ${isAdmin.value && html`<a class="button" href=${link("daemon", { plan: 1 })}>Preview reload</a>`}</div>`);
  }
  if (me.value && !mayOperate.value) banners.push(html`<div class="banner busy small">Read-only: you are signed in as ${me.value.user ? `${me.value.user}, ` : ""}${me.value.role}.</div>`);
  return banners;
}

export function Frame({ children }) {
  return html`<div class="frame">
      <a class="skip" href="#main" onClick=${(event) => {
        event.preventDefault();
        document.getElementById("main").focus();
      }}>Skip to the content</a>
      <${Nav} /><${Bar} />
      <div class="view"><main id="main" tabindex="-1"><${Banners} />${children}</main></div>
    </div>
    <${Toasts} /><${Dialog} /><${Tip} />`;
}
