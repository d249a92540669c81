// The buttons and the menu for actions on a task or service, in a list or (`large`) on its own page.
import { html } from "../../vendor/preact.js";
import * as actions from "../actions.js";
import { mayOperate } from "../state.js";
import { Act } from "../parts/basics.js";
import { Icon } from "../parts/icon.js";
import { Menu } from "../parts/menu.js";
import { rowKeys } from "../parts/shortcuts.js";

const NOT_YOU = "Your role is read-only";

/** The keys of a unit's row: r starts, restarts or runs it, s stops it. */
export function keysOf(unit) {
  const service = unit.kind === "service";
  const down = ["stopped", "exited", "fatal"].includes(unit.state);
  return rowKeys({
    r: () => mayOperate.value && (!service ? actions.trigger(unit) : down ? actions.startService(unit) : actions.restartService(unit.name)),
    s: () => mayOperate.value && (service ? actions.stopService : actions.stopTask)(unit.name),
  });
}

/** advised: whether the first action is a button, which suggests it; otherwise it is in the menu. */
export function UnitActions({ unit, large = false, advised = true }) {
  const { name } = unit;
  const may = mayOperate.value;
  const title = may ? undefined : NOT_YOU;
  const item = (label, run) => ({ label, run, disabled: !may, title });
  if (unit.kind === "service") {
    const down = unit.state === "stopped" || unit.state === "exited" || unit.state === "fatal";
    const many = (unit.instances?.length ?? 0) > 1;
    return html`<span class="row">
      ${down && html`<${Act} class=${large ? "primary" : ""} disabled=${!may} title=${title} run=${() => actions.startService(unit)}><${Icon} name="play" />Start</${Act}>`}
      ${!down && advised && html`<${Act} disabled=${!may} title=${title} run=${() => actions.restartService(name)}><${Icon} name="redo" />Restart</${Act}>`}
      <${Menu} label=${`More for ${name}`} items=${[
        many && item("Restart one by one", () => actions.restartService(name, true)),
        (down || !advised) && (unit.state !== "stopped" || !unit.withheld) && item("Restart", () => actions.restartService(name)),
        unit.state !== "stopped" && item("Stop", () => actions.stopService(name)),
        !unit.withheld && item("Disable", () => actions.disableService(name)),
      ]} />
    </span>`;
  }
  const only = unit.definition.apiTrigger === false;
  const why = only ? "Only the schedule can run it (api_trigger = false)" : title;
  const scheduled = unit.cron.length > 0 || unit.definition.everyMs !== undefined || unit.nextRunAt !== undefined;
  const active = unit.active.running + unit.active.pending > 0;
  return html`<span class="row">
    ${active && (large || !advised) && html`<${Act} class="danger" disabled=${!may} title=${title} run=${() => actions.stopTask(name)}><${Icon} name="square" />Stop</${Act}>`}
    ${advised && html`<${Act} class=${large ? "primary" : ""} disabled=${!may || only} title=${why} run=${() => actions.trigger(unit)}><${Icon} name="play" />Run</${Act}>`}
    ${scheduled && html`<${Menu} label=${`More for ${name}`} items=${[unit.paused ? item("Resume the schedule", () => actions.resumeTask(name)) : item("Pause the schedule", () => actions.pauseTask(name))]} />`}
  </span>`;
}
