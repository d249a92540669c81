// The logs of several tasks and services, chosen in the address: merged in the order of time, or side by side.
import { html, useMemo } from "../../vendor/preact.js";
import { LogColumns } from "../log/columns.js";
import { LogPanel } from "../log/panel.js";
import { parametersOf, queryOf } from "../log/search.js";
import { UnitLog } from "../log/source.js";
import { Card, Empty, useTitle } from "../parts/basics.js";
import { Choices } from "../parts/choices.js";
import { Select } from "../parts/select.js";
import { go, link, route } from "../routes.js";
import { units } from "../state.js";
import { Views } from "../units/views.js";

const COLUMNS = 4;

/** Return a RegExp for a glob of names: `*`, `?` and `[…]` are special, as on the command line. */
const ofGlob = (glob) =>
  new RegExp(`^${glob.replace(/[.+^${}()|\\]/g, "\\$&").replaceAll("[!", "[^").replaceAll("*", ".*").replaceAll("?", ".")}$`);

/** Return the units that a choice of names and globs, a group and a tag selects, as the API does. */
export function chosenOf(all, names, group, tag) {
  const globs = names.map((name) => (/[*?[]/.test(name) ? ofGlob(name) : null));
  const named = (unit) => !names.length || names.some((name, index) => (globs[index] ? globs[index].test(unit.name) : name === unit.name));
  return all.filter((unit) => named(unit) && (!group || unit.group === group) && (!tag || unit.tags.includes(tag)));
}

export function Logs() {
  useTitle("Logs");
  const { query } = route.value;
  const all = units.value ?? [];
  const names = (query.get("task") ?? "").split(",").filter(Boolean);
  const [group, tag] = [query.get("group") ?? "", query.get("tag") ?? ""];
  const chosen = chosenOf(all, names, group, tag);
  const some = names.length > 0 || group !== "" || tag !== "";
  const beside = query.get("view") === "columns";
  const at = { stream: query.get("stream"), level: query.get("level"), filter: query.get("filter") };
  const open = (changes) => go(link("logs", { ...Object.fromEntries(query), ...changes }), { replace: true });
  const options = [...names.filter((name) => !all.some((unit) => unit.name === name)), ...all.map((unit) => unit.name)];
  return html`<div class="page-head"><h1>Logs</h1><span class="spring"></span><${Views} page="logs" />
      <span class="row" role="group" aria-label="Arrangement">
        <button aria-pressed=${!beside} onClick=${() => open({ view: "" })}>Merged</button>
        <button aria-pressed=${beside} onClick=${() => open({ view: "columns" })}>Side by side</button>
      </span></div>
    <form class="filters logs-of" role="search" aria-label="Choose tasks and services" onSubmit=${(event) => event.preventDefault()}>
      <${Choices} label="Tasks and services" options=${options.map((name) => [name, name])} chosen=${names} set=${(values) => open({ task: values.join() })} />
      <${Select} label="Group" all="All groups" value=${group} values=${all.flatMap((unit) => unit.group ?? [])} set=${(value) => open({ group: value })} />
      <${Select} label="Tag" all="All tags" value=${tag} values=${all.flatMap((unit) => unit.tags)} set=${(value) => open({ tag: value })} />
    </form>
    ${!some && html`<${Card} label="Nothing chosen"><${Empty}><p>Choose tasks and services, a group or a tag to read their logs together.</p></${Empty}></${Card}>`}
    ${some && units.value && !chosen.length && html`<${Card} label="Nothing found"><${Empty}><p>No task or service matches.</p></${Empty}></${Card}>`}
    ${chosen.length > 0 && some && (beside
      ? html`<${LogColumns} key=${chosen.slice(0, COLUMNS).map((unit) => unit.name).join()} names=${chosen.slice(0, COLUMNS).map((unit) => unit.name)} of=${chosen.length} at=${at} asked=${queryOf(query)} moved=${open} />`
      : html`<${Merged} key=${`${names} ${group} ${tag}`} scope=${{ task: names.join(), group, tag }} at=${at} asked=${queryOf(query)} moved=${open} />`)}`;
}

function Merged({ scope, at, asked, moved }) {
  const source = useMemo(() => new UnitLog("api/logs/stream", scope, true), []);
  const address = (n) => {
    const line = source.lineAt(n);
    return line?.runId ? link("run", line.runId, { line: line.runLine + 1 }) : null;
  };
  const ask = (wanted) => moved({ q: "", regex: "", case: "", ...parametersOf(wanted) });
  return html`<${LogPanel} source=${source} title="Merged log" at=${at} moved=${({ line: _line, ...changes }) => moved(changes)} address=${address} asked=${asked} ask=${ask}
    everywhere=${{ path: "api/logs/search", scope }} />`;
}
