// The notifications page: lists notifications, newest first, and marks them as read.
import { html, useEffect } from "../../vendor/preact.js";
import { attempt } from "../actions.js";
import { get, post } from "../api.js";
import { NotifyHere } from "../parts/browser_notifications.js";
import { sentencesOf } from "../format.js";
import { Ago, Badge, Card, Empty, Head, NotPermitted, UnitLink, Unloaded, useLoad, useTitle } from "../parts/basics.js";
import { useOlder } from "../parts/older.js";
import { Cause } from "../runs/cause.js";
import { listen } from "../live.js";
import { link } from "../routes.js";
import { isLimited, loadUnread, mayOperate, throttle, unread } from "../state.js";

const PAGE = 50;
const LOOKS = {
  error: { tone: "bad", word: "error", icon: "cross" },
  warn: { tone: "warn", word: "warning", icon: "alert" },
  info: { tone: "busy", word: "info", icon: "bell" },
};


export function Notifications() {
  useTitle("Notifications");
  const { data, error, reload } = useLoad(async (signal) => (isLimited.value ? null : get("api/notifications", { limit: PAGE }, signal)), []);
  const { older, setOlder, button } = useOlder("api/notifications", PAGE, data);
  useEffect(() => {
    const again = throttle(reload, 1000);
    return listen((kind) => (kind.startsWith("notification.") || kind === "resumed") && again());
  }, []);
  if (isLimited.value) return html`<${NotPermitted} title="Notifications">Your token is limited to some tasks and cannot see notifications.</${NotPermitted}>`;
  const seen = new Set();
  const items = [...(data?.items ?? []), ...older].filter((one) => !seen.has(one.id) && seen.add(one.id));
  const mark = async (one) => {
    await attempt(() => post(`api/notifications/${one.id}/${one.readAt ? "unread" : "read"}`));
    setOlder(older.map((old) => (old.id === one.id ? { ...old, readAt: one.readAt ? undefined : new Date().toISOString() } : old)));
    reload();
    loadUnread();
  };
  const markAll = async () => {
    await attempt(() => post("api/notifications/read"));
    setOlder(older.map((old) => ({ ...old, readAt: old.readAt ?? new Date().toISOString() })));
    reload();
    loadUnread();
  };
  const tools = html`<${NotifyHere} /><a class="button" href=${link("notifiers")}>Notifiers</a><button disabled=${!mayOperate.value || !unread.value} onClick=${markAll}>Mark all as read</button>`;
  return html`<${Head} title="Notifications" tools=${tools} /><${Card} label="Notifications" className="attention notifications">
    ${!data && html`<${Unloaded} error=${error} retry=${reload} rows=${6} />`}
    ${data && !items.length && html`<${Empty}>No notifications.</${Empty}>`}
    <ul>${items.map((one) => html`<li key=${one.id}>
      <${Badge} look=${LOOKS[one.severity]} />
      <div class="what">
        <p>${one.readAt ? one.title : html`<b>${one.title}</b>`}${one.count > 1 && html` <span class="badge">${one.count} times</span>`}</p>
        <p class="small soft">${sentencesOf(one)}</p>
        ${one.runId && one.severity !== "info" && html`<${Cause} id=${one.runId} />`}
        <p class="small faint"><${Ago} at=${one.lastOccurredAt} />${one.taskName && html`, <${UnitLink} name=${one.taskName} />`}</p>
      </div>
      ${one.runId && html`<a class="button" href=${link("run", one.runId)}>Show run</a>`}
      <button class="plain" disabled=${!mayOperate.value} onClick=${() => mark(one)}>${one.readAt ? "Mark as unread" : "Mark as read"}</button>
    </li>`)}</ul>
    ${button}
  </${Card}>`;
}
