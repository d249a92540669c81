// A table of runs. The page's address holds its filters and sort order. Bulk actions apply to selected or all matches.
import { html, useEffect, useState } from "../../vendor/preact.js";
import * as actions from "../actions.js";
import { get } from "../api.js";
import { count, number } from "../format.js";
import { listen } from "../live.js";
import { go, link, route } from "../routes.js";
import { instanceOf, mayOperate, throttle, unitNamed } from "../state.js";
import { FAILURES, ofRun } from "../states.js";
import { At, Card, Empty, Head, RunBadge, Took, UnitLink, Unloaded, useLoad } from "../parts/basics.js";
import { Cause } from "./cause.js";
import { confirm } from "../parts/dialog.js";
import { Icon } from "../parts/icon.js";
import { rowKeys } from "../parts/shortcuts.js";
import { FILTERS, Filters, bulkFilter, filterOf } from "./run_filters.js";
import { SKIPPED_FOR, starter } from "../verdict.js";

export const PAGE = 50;
const COLUMNS = [
  ["status", "Status"],
  ["taskName", "Task"],
  ["createdAt", "Created"],
  ["startedAt", "Started", "wide started"],
  ["duration", "Duration", "number"],
  ["exitCode", "Exit", "number wide"],
];

/**
 * name: show only the runs of this task or service; without it, the table is a page of its own, with a head.
 * page: path segments of the page that shows the table.
 */
export function RunsTable({ name, page }) {
  const { query } = route.value;
  const read = (key) => query.get(key) ?? "";
  const offset = Math.max(0, Number.parseInt(read("offset"), 10) || 0);
  const sort = read("sort") || "createdAt";
  const direction = read("dir") || "desc";
  const filter = filterOf(read);
  if (name) filter.task_name = name;
  const [selected, setSelected] = useState(new Map());
  const [all, setAll] = useState(null);
  const parameters = { ...filter, naming: "camel", extended: true, limit: PAGE, offset, sort_field: sort, sort_direction: direction };
  const { data, error, reload } = useLoad((signal) => get("api/runs", parameters, signal), [parameters]);
  useEffect(() => {
    setSelected(new Map());
    setAll(null);
  }, [JSON.stringify(filter)]);
  useEffect(() => {
    const again = throttle(reload, 1500);
    return listen((kind, body) => {
      if (kind === "resumed" || (kind.startsWith("run.") && (!name || !body.taskName || body.taskName === name))) again();
    });
  }, [name]);

  const set = (changes) => {
    const next = Object.fromEntries(query);
    delete next.offset;
    go(link(...page, { ...next, ...changes }), { replace: true });
  };
  const runs = data?.runs ?? [];
  useEffect(() => {
    // This page of the list no longer exists: go to the last one.
    if (data?.total && !runs.length && offset >= data.total) set({ offset: Math.floor((data.total - 1) / PAGE) * PAGE || undefined });
  }, [data]);
  const isSelected = (run) => (all ? run.createdAt <= all.until && !all.except.has(run.id) : selected.has(run.id));
  const toggle = (run) => {
    if (all) {
      const except = new Set(all.except);
      if (!except.delete(run.id)) except.add(run.id);
      setAll({ ...all, except });
    } else {
      const next = new Map(selected);
      if (!next.delete(run.id)) next.set(run.id, run);
      setSelected(next);
    }
  };
  const [unfolded, setUnfolded] = useState(new Set());
  const unfold = (id) => {
    const next = new Set(unfolded);
    if (!next.delete(id)) next.add(id);
    setUnfolded(next);
  };
  const rows = sort === "createdAt" && !read("retries_only") ? folded(runs, unfolded) : runs.map((run) => ({ run, earlier: [] }));
  /** Select or deselect a row, together with the attempts folded into it. */
  const toggleRow = (run, earlier) => {
    if (!earlier.length || unfolded.has(run.id)) toggle(run);
    else if (all) {
      const except = new Set(all.except);
      for (const one of [run, ...earlier]) if (isSelected(run)) except.add(one.id); else except.delete(one.id);
      setAll({ ...all, except });
    } else {
      const next = new Map(selected);
      for (const one of [run, ...earlier]) if (isSelected(run)) next.delete(one.id); else next.set(one.id, one);
      setSelected(next);
    }
  };
  const clear = () => {
    setSelected(new Map());
    setAll(null);
  };
  const whole = runs.length > 0 && runs.every(isSelected);
  const toggleAll = () => {
    if (whole || all) clear();
    else setSelected(new Map([...selected, ...runs.map((run) => [run.id, run])]));
  };
  /** Select all current matches. `until`, the creation time of the newest, keeps later runs out of the selection. */
  const selectAll = async () => {
    const newest = { ...filter, naming: "camel", limit: 1, sort_field: "createdAt", sort_direction: "desc" };
    const found = await actions.attempt(() => get("api/runs", newest));
    if (found?.runs.length) setAll({ total: found.total, until: found.runs[0].createdAt, except: new Set() });
  };
  const chosen = all ? all.total - all.except.size : selected.size;
  const selector = () =>
    all
      ? { match_all: true, filter: bulkFilter({ ...filter, created_before: all.until }), except_ids: [...all.except] }
      : { ids: [...selected.keys()] };
  const act = async (operation, label) => {
    const sure = await confirm({
      title: `${label} ${count(chosen, "run")}?`,
      text: { delete: "You can restore them within the undo window.", stop: "Ended runs are not affected.", rerun: "Each task runs once, with the parameters of its newest selected run." }[operation],
      label,
      danger: operation !== "rerun",
    });
    if (sure && (await actions.bulk(operation, selector()))) {
      clear();
      reload();
    }
  };

  const pair = !all && selected.size === 2 && [...selected.keys()].sort().reverse(); // the newer run comes first

  const columns = name ? COLUMNS.filter(([key]) => key !== "taskName") : COLUMNS;
  const heading = ([key, label, className = ""]) => {
    const here = key === sort;
    const next = here && direction === "desc" ? "asc" : "desc";
    const order = here ? (direction === "desc" ? "descending" : "ascending") : undefined;
    return html`<th class=${className} aria-sort=${order}>
      <button onClick=${() => set({ sort: key, dir: next })}>${label}${here ? (direction === "desc" ? " ↓" : " ↑") : ""}</button>
    </th>`;
  };
  const tools = html`${data && html`<span class="soft small">${count(data.total, "run")}</span>`}
    ${!name && html`<a class="button" href=${link("deleted")}>Deleted runs</a>`}`;
  return html`${!name && html`<${Head} title="Runs" tools=${tools} />`}
  <${Card} title=${name && "Runs"} label="Runs" tools=${tools} className="runs">
    <${Filters} name=${name} read=${read} set=${set} active=${FILTERS.some((key) => read(key))} clear=${() => go(link(...page), { replace: true })} />
    ${chosen > 0 &&
    html`<div class="selection" role="region" aria-label="Selection">
      <b>${number(chosen)} selected</b>
      ${!all && data.total > selected.size && whole && html`<button class="link" onClick=${selectAll}>Select all ${number(data.total)} that match</button>`}
      <span class="spring"></span>
      ${pair && html`<a class="button" href=${link("run", pair[0], { compare: pair[1] })}>Compare</a>`}
      <button disabled=${!mayOperate.value} onClick=${() => act("rerun", "Run again")}><${Icon} name="redo" />Run again</button>
      <button disabled=${!mayOperate.value} onClick=${() => act("stop", "Stop")}><${Icon} name="square" />Stop</button>
      <button class="danger" disabled=${!mayOperate.value} onClick=${() => act("delete", "Delete")}><${Icon} name="trash" />Delete</button>
      <button class="plain" onClick=${clear}>Clear</button>
    </div>`}
    ${!data && html`<${Unloaded} error=${error} retry=${reload} rows=${8} />`}
    ${error && data && html`<p class="problem body" role="alert">${error.message}</p>`}
    ${data && !runs.length && html`<${Empty}><p>${FILTERS.some((key) => read(key)) ? "No runs match these filters." : "No runs yet."}</p></${Empty}>`}
    ${runs.length > 0 &&
    html`<div class="scroll-x"><table>
      <thead><tr>
        <th><input type="checkbox" aria-label="Select this page" checked=${whole} onChange=${toggleAll} /></th>
        ${columns.map(heading)}<th class="wide">Cause</th><th class="wide trigger">Trigger</th>
      </tr></thead>
      <tbody>${rows.map(({ run, earlier, of }) => html`<${Row} key=${run.id} run=${run} by=${data.details[run.id]?.by} cause=${data.details[run.id]?.endCause} named=${!name} of=${of} selected=${[run, ...earlier].every(isSelected)} late=${all && run.createdAt > all.until} toggle=${() => toggleRow(run, earlier)}
        earlier=${earlier.length} open=${unfolded.has(run.id)} unfold=${() => unfold(run.id)} />`)}</tbody>
    </table></div>`}
    ${data && data.total > PAGE && html`<${Pager} offset=${offset} total=${data.total} to=${(value) => set({ offset: value || undefined })} />`}
  </${Card}>`;
}

/**
 * Fold the attempts of each run into one row, that of the last attempt. Return [{run, earlier, of}]: `earlier` lists
 * the previous attempts. If the id of `run` is in `unfolded`, they follow as rows whose `of` is this id.
 */
function folded(runs, unfolded) {
  const byId = new Map(runs.map((run) => [run.id, run]));
  const repeated = new Set(runs.map((run) => run.retryOfRunId));
  const rows = [];
  for (const run of runs) {
    if (repeated.has(run.id)) continue;
    const earlier = [];
    for (let one = byId.get(run.retryOfRunId); one; one = byId.get(one.retryOfRunId)) earlier.push(one);
    rows.push({ run, earlier });
    if (unfolded.has(run.id)) rows.push(...earlier.map((one) => ({ run: one, earlier: [], of: run.id })));
  }
  return rows;
}

/**
 * named: whether to show the task. late: the run was created after "Select all", and cannot be selected.
 * earlier: the number of attempts folded into the row. of: the id of the last attempt, if this is an earlier one.
 */
function Row({ run, by, cause, named, selected, late, toggle, earlier, open, unfold, of }) {
  const attempt = run.retryAttempt ? `, retry ${run.retryAttempt}` : "";
  const keys = rowKeys({
    r: () => mayOperate.value && run.status === "ended" && unitNamed(run.taskName)?.kind === "task" && actions.rerun(run),
    s: () => mayOperate.value && run.status !== "ended" && actions.stopRun(run),
  });
  return html`<tr aria-selected=${selected} class=${of ? "earlier" : ""} onKeyDown=${keys}>
    <td><input type="checkbox" aria-label=${`Select run ${run.id}`} checked=${selected} disabled=${late} onChange=${() => toggle(run)} /></td>
    <td><a href=${link("run", run.id)} aria-label=${`Run ${run.id} ${ofRun(run).word}`}><${RunBadge} run=${run} /></a>
      ${earlier > 0 && html`<button class="link small" aria-expanded=${open} onClick=${unfold}>${count(earlier + 1, "attempt")}</button>`}</td>
    ${named && html`<td><${UnitLink} name=${run.taskName} /></td>`}
    <td><a href=${link("run", run.id)} tabindex="-1"><${At} at=${run.createdAt} /></a></td>
    <td class="wide started">${run.startedAt && html`<${At} at=${run.startedAt} />`}</td>
    <td class="number"><${Took} run=${run} /></td>
    <td class="number wide">${run.status === "ended" && run.exitCode >= 0 ? run.exitCode : ""}</td>
    <td class="wide why">${FAILURES.includes(run.endReason) ? html`<${Cause} id=${run.id} />` : html`<span class="soft">${SKIPPED_FOR[cause]}</span>`}</td>
    <td class="wide trigger soft">${starter(run, by)}${attempt}${instanceOf(run)}</td>
  </tr>`;
}

export function Pager({ offset, total, to }) {
  return html`<nav class="pager" aria-label="Pages of runs">
    <button disabled=${offset === 0} onClick=${() => to(Math.max(0, offset - PAGE))}>Newer</button>
    <span class="soft small number">${number(offset + 1)}–${number(Math.min(total, offset + PAGE))} of ${number(total)}</span>
    <button disabled=${offset + PAGE >= total} onClick=${() => to(offset + PAGE)}>Older</button>
  </nav>`;
}
