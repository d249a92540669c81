// The audit page: lists the actions of all users, newest first. Only admins can read it.
import { html } from "../../vendor/preact.js";
import { get } from "../api.js";
import { At, Badge, Card, Empty, Head, NotPermitted, Unloaded, useLoad, useTitle } from "../parts/basics.js";
import { useOlder } from "../parts/older.js";
import { isAdmin } from "../state.js";

const PAGE = 100;

/** Names of operations, in the words of the buttons. */
const ACTIONS = {
  login: "Log in",
  logout: "Log out",
  runTask: "Run",
  receiveHook: "Run by webhook",
  startService: "Start",
  stopService: "Stop",
  restartService: "Restart",
  pauseTask: "Pause schedule",
  resumeTask: "Resume schedule",
  acknowledgeTask: "Acknowledge",
  acknowledgeRun: "Acknowledge",
  unacknowledgeTask: "Undo acknowledgement",
  startUnits: "Start several",
  stopUnits: "Stop several",
  restartUnits: "Restart several",
  pauseUnits: "Pause several schedules",
  resumeUnits: "Resume several schedules",
  stopRun: "Stop run",
  deleteRun: "Delete run",
  bulkStopRuns: "Stop runs",
  bulkDeleteRuns: "Delete runs",
  bulkRestoreRuns: "Restore runs",
  bulkRerunRuns: "Run again",
  markNotificationRead: "Mark as read",
  markNotificationUnread: "Mark as unread",
  markAllNotificationsRead: "Mark all as read",
  testNotifier: "Send test message",
  reloadDaemon: "Reload configuration",
  trustClock: "Confirm clock",
  createToken: "Create token",
  revokeToken: "Revoke token",
  createUser: "Create account",
  setUserPassword: "Change password",
  removeUser: "Remove account",
};
/** Return the name of an operation; one that a newer daemon added is its id in words. */
const words = (operation) => ACTIONS[operation] ?? operation.replace(/(?<=[a-z])(?=[A-Z])/g, " ").toLowerCase();

export function Audit() {
  useTitle("Audit");
  const { data, error, reload } = useLoad(async (signal) => (isAdmin.value ? get("api/audit", { limit: PAGE }, signal) : null), []);
  const { older, button } = useOlder("api/audit", PAGE, data);
  if (!isAdmin.value) return html`<${NotPermitted} title="Audit">Only admins can read the audit log.</${NotPermitted}>`;
  const items = [...(data?.items ?? []), ...older];
  const look = (status) => (status < 400 ? { tone: "good", word: "ok", icon: "check" } : { tone: "bad", word: "rejected", icon: "cross" });
  return html`<${Head} title="Audit" tools=${html`<button onClick=${reload}>Refresh</button>`} /><${Card} label="Audit">
    ${!data && html`<${Unloaded} error=${error} retry=${reload} rows=${8} />`}
    ${data && !items.length && html`<${Empty}>No entries yet.</${Empty}>`}
    ${items.length > 0 &&
    html`<div class="scroll-x"><table>
      <thead><tr><th>Time</th><th>User</th><th>From</th><th>Action</th><th>Target</th><th>Result</th><th>Detail</th></tr></thead>
      <tbody>${items.map((one) => html`<tr key=${one.id}>
        <td><${At} at=${one.at} /></td><td>${one.who ?? "unknown"}</td><td class="mono small">${one.from}</td><td>${words(one.operation)}</td>
        <td class="mono small">${one.target ?? ""}</td><td><${Badge} look=${look(one.status)} /></td><td class="soft">${one.reason ?? one.result ?? ""}</td>
      </tr>`)}</tbody>
    </table></div>`}
    ${button}
  </${Card}>`;
}
