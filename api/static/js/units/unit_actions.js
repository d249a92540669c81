// The buttons and the menu for actions on a task or service, in a list or (`large`) on its own page.
import { html } from "../../vendor/preact.js";
import * as actions from "../actions.js";
import { mayOperate } from "../state.js";
import { Act } from "../parts/basics.js";
import { Icon } from "../parts/icon.js";
import { Menu } from "../parts/menu.js";

const NOT_YOU = "Your role is read-only";

export function UnitActions({ unit, large = false }) {
  const { name } = unit;
  const may = mayOperate.value;
  const title = may ? undefined : NOT_YOU;
  if (unit.kind === "service") {
    const down = unit.state === "stopped" || unit.state === "exited" || unit.state === "fatal";
    const many = (unit.instances?.length ?? 0) > 1;
    return html`<span class="row">
      ${down
        ? html`<${Act} class=${large ? "primary" : ""} disabled=${!may} title=${title} run=${() => actions.startService(name)}><${Icon} name="play" />Start</${Act}>`
        : html`<${Act} disabled=${!may} title=${title} run=${() => actions.restartService(name)}><${Icon} name="redo" />Restart</${Act}>`}
      <${Menu} label=${`More for ${name}`} items=${[
        many && { label: "Restart one by one", run: () => actions.restartService(name, true), disabled: !may, title },
        down && unit.state !== "stopped" && { label: "Restart", run: () => actions.restartService(name), disabled: !may, title },
        unit.state !== "stopped" && { label: "Stop", run: () => actions.stopService(name), disabled: !may, title },
        unit.state === "stopped" && { label: "Restart", run: () => actions.restartService(name), disabled: !may, title },
      ]} />
    </span>`;
  }
  const only = unit.definition.apiTrigger === false;
  const why = only ? "Only the schedule can run it (api_trigger = false)" : title;
  const scheduled = unit.cron.length > 0 || unit.definition.everyMs !== undefined || unit.nextRunAt !== undefined;
  const active = unit.active.running + unit.active.pending > 0;
  return html`<span class="row">
    ${large && active && html`<${Act} class="danger" disabled=${!may} title=${title} run=${() => actions.stopTask(name)}><${Icon} name="square" />Stop</${Act}>`}
    <${Act} class=${large ? "primary" : ""} disabled=${!may || only} title=${why} run=${() => actions.trigger(unit)}><${Icon} name="play" />Run</${Act}>
    ${scheduled &&
    html`<${Menu} label=${`More for ${name}`} items=${[
      unit.paused
        ? { label: "Resume the schedule", run: () => actions.resumeTask(name), disabled: !may, title }
        : { label: "Pause the schedule", run: () => actions.pauseTask(name), disabled: !may, title },
    ]} />`}
  </span>`;
}
