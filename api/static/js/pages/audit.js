// The audit page: lists the actions of all users, newest first. Only admins can read it. The address has its filters.
import { html } from "../../vendor/preact.js";
import { get } from "../api.js";
import { localMinute, toApi } from "../format.js";
import { ACTIONS, operationName } from "../operations.js";
import { At, Badge, Card, Empty, Head, NotPermitted, UnitLink, Unloaded, useLoad, useTitle } from "../parts/basics.js";
import { useOlder } from "../parts/older.js";
import { go, link, route } from "../routes.js";
import { isAdmin, unitNamed } from "../state.js";

const PAGE = 100;
const FILTERS = ["who", "operation", "target", "since", "until"];
const RUN = /\b[0-9A-HJKMNP-TV-Z]{26}\b/;

export function Audit() {
  useTitle("Audit");
  const { query } = route.value;
  const chosen = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
  const parameters = { ...chosen, limit: PAGE };
  const { data, error, reload } = useLoad(async (signal) => (isAdmin.value ? get("api/audit", parameters, signal) : null), [parameters]);
  if (!isAdmin.value) return html`<${NotPermitted} title="Audit">Only admins can read the audit log.</${NotPermitted}>`;
  const set = (changes) => go(link("audit", { ...chosen, ...changes }), { replace: true });
  const text = (name, label) => html`<label>${label}<input type="search" value=${chosen[name]} onChange=${(event) => set({ [name]: event.target.value.trim() })} /></label>`;
  const time = (name, label) => html`<label>${label}<input type="datetime-local" value=${localMinute(chosen[name])} onChange=${(event) => set({ [name]: toApi(event.target.value) })} /></label>`;
  const some = FILTERS.some((name) => chosen[name]);
  return html`<${Head} title="Audit" tools=${html`<button onClick=${reload}>Refresh</button>`} /><${Card} label="Audit">
    <form class="filters" role="search" aria-label="Filter the audit" onSubmit=${(event) => event.preventDefault()}>
      ${text("who", "User")}
      <label>Action<select value=${chosen.operation} onChange=${(event) => set({ operation: event.target.value })}>
        <option value="">any</option>${Object.entries(ACTIONS).map(([name, words]) => html`<option key=${name} value=${name}>${words}</option>`)}
      </select></label>
      ${text("target", "Target")}${time("since", "From")}${time("until", "Until")}
      ${some && html`<button type="button" class="plain" onClick=${() => go(link("audit"), { replace: true })}>Clear filters</button>`}
    </form>
    ${!data && html`<${Unloaded} error=${error} retry=${reload} rows=${8} />`}
    ${data && html`<${Entries} key=${JSON.stringify(chosen)} first=${data} chosen=${chosen} some=${some} />`}
  </${Card}>`;
}

function Entries({ first, chosen, some }) {
  const { older, button } = useOlder("api/audit", PAGE, first, chosen);
  const items = [...first.items, ...older];
  const look = (status) => (status < 400 ? { tone: "good", word: "ok", icon: "check" } : { tone: "bad", word: "rejected", icon: "cross" });
  if (!items.length) return html`<${Empty}>${some ? "No entries match these filters." : "No entries yet."}</${Empty}>`;
  return html`<div class="scroll-x"><table>
      <thead><tr><th>Time</th><th>User</th><th>From</th><th>Action</th><th>Target</th><th>Result</th><th>Detail</th></tr></thead>
      <tbody>${items.map((one) => html`<tr key=${one.id}>
        <td><${At} at=${one.at} /></td><td>${one.who ?? "unknown"}</td><td class="mono small">${one.from}</td><td>${operationName(one.operation)}</td>
        <td class="small"><${Target} one=${one} /></td><td><${Badge} look=${look(one.status)} /></td><td class="soft"><${Detail} text=${one.reason ?? one.result ?? ""} /></td>
      </tr>`)}</tbody>
    </table></div>
    ${button}`;
}

/** The target of an entry; a run has the name of its task and a link. */
function Target({ one }) {
  if (one.taskName) return html`<a href=${link("run", one.target)}>run</a> of <${UnitLink} name=${one.taskName} />`;
  if (unitNamed(one.target)) return html`<${UnitLink} name=${one.target} />`;
  return html`<span class="mono">${one.target ?? ""}</span>`;
}

/** The text of an entry; the id of a single run is a link. */
function Detail({ text }) {
  const id = /^run (\S+)$/.exec(text)?.[1];
  return id && RUN.test(id) ? html`<a href=${link("run", id)}>run</a>` : text;
}
