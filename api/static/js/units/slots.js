// A card about slots and max_running: the places in use, the runs that hold them, and the runs that wait for them.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { get } from "../api.js";
import { count, createdMs, moment } from "../format.js";
import { listen } from "../live.js";
import { link } from "../routes.js";
import { isLimited, throttle, units } from "../state.js";
import { Card, useLoad } from "../parts/basics.js";

const AGAIN_MS = 2000;
const SHOWN = 9;
const NAMED = 3;

/** Return whether a unit uses slots, or has pending runs, which may wait because of max_running. */
const concerned = (unit) => Object.keys(unit.definition.uses ?? {}).length > 0 || (unit.kind === "task" && unit.active.pending > 0);

/**
 * Load /api/slots once a unit is concerned, and again when runs change. Return {slots, known}: `slots` is the response,
 * or null if there are no slots and no limit. `known` is false while the first request is pending.
 */
export function useSlots() {
  const wanted = useRef(false);
  wanted.current ||= (units.value ?? []).some(concerned);
  const { data, error, reload } = useLoad(async (signal) => (wanted.current ? get("api/slots", {}, signal) : null), [wanted.current]);
  useEffect(() => {
    const again = throttle(reload, AGAIN_MS);
    return listen((kind) => wanted.current && (kind === "resumed" || kind === "config.reloaded" || kind.startsWith("run.")) && again());
  }, []);
  const configured = data && (data.items.length > 0 || data.maxRunning.limit !== undefined);
  return { slots: configured ? data : null, known: !wanted.current || Boolean(data || error) };
}

/** Links to the first NAMED of `runs`; several runs of one task are told apart by the times of their creation. */
function Runs({ runs }) {
  const shown = runs.slice(0, NAMED);
  const alike = (run) => shown.filter((one) => one.taskName === run.taskName).length > 1;
  return shown.map((run, index) => html`${index > 0 && ", "}<a key=${run.runId} href=${link("run", run.runId)}>${run.taskName}${alike(run) && ` (${moment(createdMs(run.runId))})`}</a>`);
}

function Bar({ used, size, text }) {
  return html`<progress max=${size} value=${Math.min(used, size)} aria-label=${text}></progress> <span class="number">${used}/${size}</span>`;
}

function Slot({ slot }) {
  const { name, size, used, waiting, heldBy, nextRuns } = slot;
  const unnamed = waiting - Math.min(nextRuns.length, NAMED);
  // The first waiting run finds room here, so it waits for another slot or a limit, and the others wait for it.
  const elsewhere = used + (nextRuns[0]?.places ?? 1) <= size;
  const verb = elsewhere ? ["run waits for something else", "runs wait for something else"] : ["run waits", "runs wait"];
  return html`<li class=${waiting && !elsewhere ? "wanted" : ""}>
    <b class="clip" title=${name}>${name}</b><span class="spring"></span><${Bar} used=${used} size=${size} text=${`Slot ${name}: ${used} of ${count(size, "place")} in use`} />
    ${heldBy.length > 0 && html`<p class="small"><span class="soft">Held by</span> <${Runs} runs=${heldBy} />${heldBy.length > NAMED && " and others"}</p>`}
    ${waiting > 0 && html`<p class="small"><span class="soft">${count(waiting, ...verb)}:</span> <${Runs} runs=${nextRuns} />${unnamed > 0 && ` ${nextRuns.length ? "and " : ""}${unnamed} more`}</p>`}
  </li>`;
}

/**
 * The card of slots. If there are more than SHOWN, slots with waiting runs come first. A token that is limited to some
 * tasks gets only their slots. slots: see useSlots.
 */
export function Slots({ slots }) {
  const [more, setMore] = useState(false);
  if (!slots) return null;
  const { maxRunning } = slots;
  const own = new Set((units.value ?? []).flatMap((unit) => Object.keys(unit.definition.uses ?? {})));
  const items = isLimited.value ? slots.items.filter((slot) => own.has(slot.name)) : slots.items;
  const limit = isLimited.value ? undefined : maxRunning.limit;
  const { running } = maxRunning;
  if (!items.length && limit === undefined) return null;
  const all = more || items.length <= SHOWN;
  const shown = all ? items : items.toSorted((a, b) => b.waiting - a.waiting || b.used / b.size - a.used / a.size).slice(0, SHOWN);
  const tools = limit !== undefined && html`<span class="row small"><span class="soft">Running tasks</span><${Bar} used=${running} size=${limit} text=${`${running} of at most ${count(limit, "run")} of tasks`} /></span>`;
  return html`<${Card} title="Slots" className="slots" tools=${tools}>
    <ul>${shown.map((slot) => html`<${Slot} key=${slot.name} slot=${slot} />`)}</ul>
    ${!all && html`<p class="body"><button class="link" onClick=${() => setMore(true)}>Show all ${items.length}</button></p>`}
  </${Card}>`;
}
