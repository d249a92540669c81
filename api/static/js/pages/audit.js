// The audit page: lists the actions of all users, newest first. Only admins can read it.
import { html, useState } from "../../vendor/preact.js";
import { attempt } from "../actions.js";
import { get } from "../api.js";
import { At, Badge, Card, Empty, Problem, Skeleton, useLoad, useTitle } from "../parts/basics.js";
import { isAdmin } from "../state.js";

const PAGE = 100;

/** Convert the operation id of an API call to words: "runTask" becomes "run task". */
const words = (operation) => operation.replace(/(?<=[a-z])(?=[A-Z])/g, " ").toLowerCase();

export function Audit() {
  useTitle("Audit");
  const { data, error, reload } = useLoad(async (signal) => (isAdmin.value ? get("api/audit", { limit: PAGE }, signal) : null), []);
  const [older, setOlder] = useState([]);
  const [cursor, setCursor] = useState(null);
  if (!isAdmin.value) return html`<h1>Audit</h1><${Card} label="Not permitted"><${Empty}>Only admins can read the audit log.</${Empty}></${Card}>`;
  const next = cursor ?? data?.nextCursor;
  const more = async () => {
    const page = await attempt(() => get("api/audit", { limit: PAGE, before: next }));
    if (!page) return;
    setOlder([...older, ...page.items]);
    setCursor(page.nextCursor ?? "");
  };
  const items = [...(data?.items ?? []), ...older];
  const look = (status) => (status < 400 ? { tone: "good", word: "ok", icon: "check" } : { tone: "bad", word: `rejected (${status})`, icon: "cross" });
  return html`<h1 class="hidden-text">Audit</h1><${Card} title="Audit" tools=${html`<button onClick=${reload}>Refresh</button>`}>
    ${error && !data && html`<${Problem} error=${error} retry=${reload} />`}
    ${!data && !error && html`<${Skeleton} rows=${8} />`}
    ${data && !items.length && html`<${Empty}>No entries yet.</${Empty}>`}
    ${items.length > 0 &&
    html`<div class="scroll-x"><table>
      <thead><tr><th>Time</th><th>User</th><th>From</th><th>Action</th><th>Target</th><th>Result</th><th>Detail</th></tr></thead>
      <tbody>${items.map((one) => html`<tr key=${one.id}>
        <td><${At} at=${one.at} /></td><td>${one.who ?? "unknown"}</td><td class="mono small">${one.from}</td><td>${words(one.operation)}</td>
        <td class="mono small">${one.target ?? ""}</td><td><${Badge} look=${look(one.status)} /></td><td class="soft">${one.reason ?? one.result ?? ""}</td>
      </tr>`)}</tbody>
    </table></div>`}
    ${next && html`<p class="body"><button onClick=${more}>Load older</button></p>`}
  </${Card}>`;
}
