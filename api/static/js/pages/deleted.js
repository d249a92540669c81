// The page of deleted runs: filters and restores them within the undo window.
import { html, useEffect } from "../../vendor/preact.js";
import * as actions from "../actions.js";
import { get } from "../api.js";
import { count } from "../format.js";
import { listen } from "../live.js";
import { Ago, At, Card, Empty, Head, RunBadge, UnitLink, Unloaded, useLoad, useTitle } from "../parts/basics.js";
import { FILTERS, Filters, bulkFilter, filterOf } from "../runs/run_filters.js";
import { PAGE, Pager } from "../runs/runs_table.js";
import { go, link, route } from "../routes.js";
import { mayOperate, throttle } from "../state.js";

export function Deleted() {
  useTitle("Deleted runs");
  const { query } = route.value;
  const read = (key) => query.get(key) ?? "";
  const offset = Math.max(0, Number.parseInt(read("offset"), 10) || 0);
  const filter = filterOf(read);
  const parameters = { ...filter, limit: PAGE, offset };
  const { data, error, reload } = useLoad((signal) => get("api/runs/deleted", parameters, signal), [parameters]);
  useEffect(() => {
    const again = throttle(reload, 1500);
    return listen((kind) => (kind === "resumed" || kind === "run.deleted" || kind === "run.restored") && again());
  }, []);
  const set = (changes) => {
    const next = Object.fromEntries(query);
    delete next.offset;
    go(link("deleted", { ...next, ...changes }), { replace: true });
  };
  const restore = async (selector) => {
    await actions.restore(selector);
    reload();
  };
  const active = FILTERS.some(read);
  const runs = data?.runs ?? [];
  const tools = html`${data && html`<span class="soft small">${count(data.total, "run")}</span>`}
    <button disabled=${!runs.length || !mayOperate.value} onClick=${() => restore({ match_all: true, filter: bulkFilter(filter) })}>
      ${active ? "Restore all matching" : "Restore all"}
    </button>`;
  return html`<${Head} title="Deleted runs" above=${[["Runs", link("runs")]]} tools=${tools} /><${Card} label="Deleted runs" className="runs">
    <${Filters} read=${read} set=${set} active=${active} clear=${() => go(link("deleted"), { replace: true })} />
    ${!data && html`<${Unloaded} error=${error} retry=${reload} rows=${6} />`}
    ${error && data && html`<p class="problem body" role="alert">${error.message}</p>`}
    ${data && !data.total && html`<${Empty}><p>${active ? "No deleted runs match these filters." : "No deleted runs to restore."}</p></${Empty}>`}
    ${runs.length > 0 &&
    html`<div class="scroll-x"><table>
      <thead><tr><th>Status</th><th>Task</th><th>Created</th><th>Deleted</th><th class="wide">Id</th><th><span class="hidden-text">Actions</span></th></tr></thead>
      <tbody>${runs.map((run) => html`<tr key=${run.id}>
        <td><${RunBadge} run=${run} /></td><td><${UnitLink} name=${run.taskName} /></td>
        <td><${At} at=${run.createdAt} /></td><td><${Ago} at=${run.deletedAt} /></td><td class="wide mono small">${run.id}</td>
        <td class="actions"><button disabled=${!mayOperate.value} aria-label=${`Restore run ${run.id}`} onClick=${() => restore({ ids: [run.id] })}>Restore</button></td>
      </tr>`)}</tbody>
    </table></div>`}
    ${data && (data.total > PAGE || offset > 0) && html`<${Pager} offset=${offset} total=${data.total} to=${(value) => set({ offset: value || undefined })} />`}
    <p class="body small soft">Deleted runs can be restored within the undo window (<span class="mono">undo_window</span>); then they are removed with their logs.</p>
  </${Card}>`;
}
