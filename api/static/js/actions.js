// Actions on tasks, services and runs. Each reports its result, and offers to undo it where possible.
import { html, useState } from "../vendor/preact.js";
import { Refused, post, remove, runPath, taskPath } from "./api.js";
import { count } from "./format.js";
import { close, confirm, show } from "./parts/dialog.js";
import { Icon } from "./parts/icon.js";
import { toast } from "./parts/toasts.js";
import { currentMs } from "./server_time.js";
import { go, link } from "./routes.js";
import { daemon, loadDaemon, loadUnits } from "./state.js";
import { ofRun } from "./states.js";

/** Return the result of `work`. If it throws `Refused`, show the message and return undefined. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    const action = error.unknown ? { label: "Runs", run: () => go(link("runs")) } : null;
    toast(error.message, { bad: true, action });
    return undefined;
  }
}

/** Do `work`, which starts a run. If its outcome is unknown, the error refers the reader to the list of runs. */
async function starting(work) {
  try {
    return await work();
  } catch (error) {
    if (error.unknown) throw new Refused(0, `${error.unknown} It may have started; check Runs`, { unknown: error.unknown });
    throw error;
  }
}

const BULK_MS = 120_000; // the daemon responds once the whole operation is done
const underWay = new Set();

/** Do `work` unless work of that `name` is under way: a second press on a slow button must not repeat the command. */
async function once(name, work) {
  if (underWay.has(name)) return undefined;
  underWay.add(name);
  try {
    return await work();
  } finally {
    underWay.delete(name);
  }
}

export async function did(text, work) {
  const result = await attempt(async () => {
    await work();
    return true;
  });
  if (result) toast(text);
  loadUnits();
  return result;
}

/** Trigger a task. If it has parameters, show a form for them first. */
export function trigger(unit) {
  const params = unit.definition.params ?? [];
  if (!params.length) return once(`run ${unit.name}`, () => start(unit.name));
  show(() => html`<${ParameterForm} unit=${unit} params=${params} />`, { label: `Run ${unit.name}` });
  return undefined;
}

/** Show a form that runs the task of a run again; it begins with the parameters of that run. */
export function rerunWithChanges(run, unit) {
  const params = unit.definition.params ?? [];
  show(() => html`<${ParameterForm} unit=${unit} params=${params} given=${run.params} />`, { label: `Run ${unit.name}` });
}

async function start(name) {
  const run = await attempt(() => starting(() => post(taskPath(name, "run"), undefined, { naming: "camel" })));
  if (!run) return undefined;
  const text = run.status === "ended" ? `${name} did not start: ${ofRun(run).word}` : `${name} was triggered`;
  toast(text, { action: { label: "Show", run: () => go(link("run", run.id)) } });
  loadUnits();
  return run;
}

/** given: initial values by parameter name; secrets have none. */
function ParameterForm({ unit, params, given = {} }) {
  const [problems, setProblems] = useState({});
  const [general, setGeneral] = useState(null);
  const [busy, setBusy] = useState(false);
  const submit = (event) => {
    event.preventDefault();
    const data = new FormData(event.target);
    setBusy(true);
    return once(`run ${unit.name}`, () => send(data)).finally(() => setBusy(false));
  };
  const send = async (data) => {
    const values = {};
    for (const one of params) {
      const value = one.kind === "flag" ? (data.has(one.name) ? "true" : "false") : data.get(one.name);
      const empty = one.default !== undefined && one.choices?.includes(""); // an empty choice overrides the default
      if (value !== null && (value !== "" || empty)) values[one.name] = value;
    }
    try {
      const run = await starting(() => post(taskPath(unit.name, "run"), { params: values }, { naming: "camel" }));
      close();
      loadUnits();
      go(link("run", run.id));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      const found = {};
      for (const one of error.errors) found[one.location.replace(/^body\.params\./, "")] = one.message;
      setProblems(found);
      setGeneral(params.some((one) => found[one.name]) ? null : error.message);
    }
  };
  return html`<form onSubmit=${submit}>
    <h2>Run ${unit.name}</h2>
    ${params.map((one) => html`<${Field} param=${one} given=${one.secret ? undefined : given[one.name]} problem=${problems[one.name]} />`)}
    ${general && html`<p class="problem" role="alert">${general}</p>`}
    <div class="buttons">
      <button type="button" onClick=${close}>Cancel</button>
      <button class="primary" aria-busy=${busy}>Run</button>
    </div>
  </form>`;
}

/** given: the initial value; it replaces the default. */
function Field({ param, given, problem }) {
  const chosen = given ?? param.default;
  const id = `param-${param.name}`;
  const told = [param.description && `${id}-hint`, problem && `${id}-problem`].filter(Boolean).join(" ") || undefined;
  const shared = { id, name: param.name, required: param.required && param.default === undefined, "aria-invalid": problem ? "true" : undefined, "aria-describedby": told };
  let input;
  if (param.kind === "flag") {
    input = html`<input ...${shared} required=${false} type="checkbox" defaultChecked=${chosen === "true"} />`;
  } else if (param.choices?.length || param.type === "boolean") {
    const choices = param.choices?.length ? param.choices : ["true", "false"];
    input = html`<select ...${shared}>
      ${param.default === undefined && html`<option value="">–</option>`}
      ${choices.map((one) => html`<option selected=${one === chosen}>${one}</option>`)}
    </select>`;
  } else {
    const numeric = param.type === "integer" || param.type === "number";
    const type = param.secret ? "password" : numeric ? "number" : "text";
    if (numeric) shared.step = param.type === "integer" ? 1 : "any";
    input = html`<input ...${shared} type=${type} defaultValue=${given ?? ""} placeholder=${param.default ?? ""} autocomplete="off" spellcheck=${false} />`;
  }
  return html`<div class="field">
    <label for=${id}>${param.name}${shared.required ? " (required)" : ""}</label>
    ${input} ${param.description && html`<small id=${`${id}-hint`}>${param.description}</small>`}
    ${problem && html`<p class="problem" id=${`${id}-problem`} role="alert"><${Icon} name="alert" />${problem}</p>`}
  </div>`;
}

export async function startService({ name, withheld }) {
  if (!withheld) return did(`${name} is starting`, () => post(taskPath(name, "start")));
  const text = `${withheld.by} disabled it${withheld.note ? `: “${withheld.note}”` : "."}`;
  const sure = await confirm({ title: `Enable and start ${name}?`, text, label: "Enable and start" });
  return sure && did(`${name} is starting`, () => post("api/units/start", { names: [name], enable: true }));
}
export const enableService = (name) => did(`${name} can be started again`, () => post("api/units/enable", { names: [name] }));

/** Show a form that stops a service until someone enables it. */
export function disableService(name) {
  show(() => html`<${DisableForm} name=${name} />`, { label: `Disable ${name}` });
}

function DisableForm({ name }) {
  const submit = (event) => {
    event.preventDefault();
    const note = new FormData(event.target).get("note").trim() || undefined;
    close();
    return did(`${name} is disabled`, () => post("api/units/stop", { names: [name], disable: true, note }));
  };
  return html`<form onSubmit=${submit}>
    <h2>Stop and disable ${name}</h2>
    <p>It stays stopped until someone enables it, even when the daemon or the host restarts.</p>
    <div class="field"><label for="disable-note">Note</label><input id="disable-note" name="note" maxlength="1000" autocomplete="off" autofocus /></div>
    <div class="buttons"><button type="button" onClick=${close}>Cancel</button><button class="primary">Stop and disable</button></div>
  </form>`;
}

export async function restartService(name, rolling = false) {
  const sure = await confirm({
    title: `Restart ${name}?`,
    text: rolling ? "The instances restart one at a time. Each waits until the previous one is ready." : "All instances restart at the same time.",
    label: "Restart",
    danger: !rolling,
  });
  const text = `${name} is being restarted${rolling ? ", one instance after the other" : ""}`;
  return sure && did(text, () => post(taskPath(name, "restart"), undefined, rolling ? { rolling: true } : {}));
}
/** Show a form that pauses the schedule of a task, with an end and a note. */
export const pauseTask = (name) => show(() => html`<${PauseForm} name=${name} />`, { label: `Pause ${name}` });
/** The API's end of a pause that lasts the chosen time; undefined: until someone ends it. */
const endOf = (data) => (data.get("for") ? new Date(currentMs() + Number(data.get("for"))).toISOString() : undefined);

/** Show a form that pauses all schedules together. */
export const pauseAll = () => show(() => html`<${PauseForm} />`, { label: "Pause all schedules" });
export const resumeAll = () => did("All schedules are resumed", () => post("api/daemon/resume")).then(loadDaemon);

/** name: the task; undefined for all schedules together. */
function PauseForm({ name }) {
  const submit = (event) => {
    event.preventDefault();
    const data = new FormData(event.target);
    const body = { until: endOf(data), note: data.get("note").trim() || undefined };
    close();
    if (name) return did(`${name} is paused`, () => post(taskPath(name, "pause"), body));
    return did("All schedules are paused", () => post("api/daemon/pause", body)).then(loadDaemon);
  };
  return html`<form onSubmit=${submit}>
    <h2>${name ? `Pause ${name}` : "Pause all schedules"}</h2>
    <p>${name ? "It does not start by its schedule." : "Nothing starts by its schedule, and every page says so."} Active runs continue.</p>
    <div class="field"><label for="pause-for">How long</label><select id="pause-for" name="for">${PAUSES.map(([ms, text]) => html`<option value=${ms}>${text}</option>`)}</select></div>
    <div class="field"><label for="pause-note">Note</label><input id="pause-note" name="note" maxlength="1000" autocomplete="off" autofocus /></div>
    <div class="buttons"><button type="button" onClick=${close}>Cancel</button><button class="primary">Pause</button></div>
  </form>`;
}
const PAUSES = [
  ["", "until someone ends the pause"],
  [3_600_000, "for an hour"],
  [4 * 3_600_000, "for 4 hours"],
  [86_400_000, "for a day"],
];

export const endWindow = (name) => did(`The window ${name} is closed`, () => post(`api/windows/${encodeURIComponent(name)}/end`)).then(loadDaemon);

export const resumeTask = (name) => did(`${name} is resumed`, () => post(taskPath(name, "resume")));

const SPANS = [
  ["", "until it fails again"],
  [3_600_000, "for an hour, whatever happens"],
  [4 * 3_600_000, "for 4 hours, whatever happens"],
  [86_400_000, "for a day, whatever happens"],
  [7 * 86_400_000, "for a week, whatever happens"],
];

/** Show a form that acknowledges the failure of a task or service, with a duration and a note. */
export function acknowledge(name) {
  show(() => html`<${AcknowledgeForm} name=${name} />`, { label: `Acknowledge ${name}` });
}

function AcknowledgeForm({ name }) {
  const [open, setOpen] = useState(false);
  const published = daemon.value?.publicUnits?.includes(name);
  const submit = (event) => {
    event.preventDefault();
    const data = new FormData(event.target);
    const body = { forMs: Number(data.get("for")) || undefined, note: data.get("note").trim() || undefined, public: data.has("public") || undefined };
    close();
    return did(`${name} is acknowledged`, () => post(taskPath(name, "acknowledge"), body));
  };
  return html`<form onSubmit=${submit}>
    <h2>Acknowledge ${name}</h2>
    <p>It leaves <i>Needs attention</i> for everybody. The audit has your name.</p>
    <div class="field"><label for="ack-for">How long</label><select id="ack-for" name="for">${SPANS.map(([ms, text]) => html`<option value=${ms}>${text}</option>`)}</select></div>
    <div class="field"><label for="ack-note">Note</label><input id="ack-note" name="note" required=${open} maxlength="1000" autocomplete="off" autofocus /></div>
    ${published && html`<label class="check"><input type="checkbox" name="public" checked=${open} onChange=${(event) => setOpen(event.target.checked)} />Show the note on the public status page</label>`}
    <div class="buttons"><button type="button" onClick=${close}>Cancel</button><button class="primary">Acknowledge</button></div>
  </form>`;
}

export const unacknowledge = (name) => did(`${name} is no longer acknowledged`, () => post(taskPath(name, "unacknowledge")));

export async function stopService(name) {
  const sure = await confirm({
    title: `Stop ${name}?`,
    text: "All instances stop. The service stays stopped until it is started, or until the daemon restarts.",
    label: "Stop",
  });
  return sure && did(`${name} is stopping`, () => post(taskPath(name, "stop")));
}

export async function stopRun(run) {
  const sure = await confirm({
    title: `Stop this run of ${run.taskName}?`,
    text: "Its processes are asked to stop, and killed if they do not.",
    label: "Stop",
  });
  return sure && did("The run is being stopped", () => post(runPath(run.id, "stop")));
}

/** Stop all running and waiting runs of a task. */
export async function stopTask(name) {
  const sure = await confirm({
    title: `Stop the runs of ${name}?`,
    text: "Active runs stop, and waiting runs do not start. The schedule continues.",
    label: "Stop",
  });
  return sure && did(`The runs of ${name} are being stopped`, () => post("api/runs/bulk/stop", { match_all: true, filter: { task_name: name } }));
}

export async function forceStopRun(run) {
  const sure = await confirm({
    title: "Kill this run now?",
    text: "Its processes get SIGKILL and cannot clean up.",
    label: "Kill",
  });
  return sure && did("The run is being killed", () => post(runPath(run.id, "stop"), undefined, { force: true }));
}

/**
 * Run the task of a run again with the same parameters. A flow continues with `how`: { failed: true } repeats only the
 * steps that did not succeed, { from_step: name } also that step and all behind it.
 */
export async function rerun(run, how = {}) {
  const result = await once(`rerun ${run.id}`, () => attempt(() => starting(() => post("api/runs/bulk/rerun", { ids: [run.id] }, how))));
  if (!result) return;
  const again = result.triggered?.[0];
  if (!again) {
    toast("Nothing was triggered: it is a service, is no longer configured, or api_trigger is false", {
      bad: true,
    });
    return;
  }
  loadUnits();
  go(link("run", again.run_id));
}

/** Delete a run and offer to undo it. Return whether it was deleted. */
export async function deleteRun(run) {
  const done = await attempt(async () => {
    await remove(runPath(run.id));
    return true;
  });
  if (!done) return false;
  toast("The run was deleted", { action: { label: "Undo", run: () => restore({ ids: [run.id] }) } });
  return true;
}

/** Restore deleted runs. selector: {ids}, or {match_all} together with a `deleted_at` in the query. */
export async function restore(selector, query) {
  const result = await attempt(() => post("api/runs/bulk/restore", selector, query, BULK_MS));
  if (result) toast(`${count(result.affected, "run")} restored`);
  loadUnits();
}

/** Apply `operation` ("stop", "rerun" or "delete") to all runs of `selector`. Return whether it succeeded. */
export async function bulk(operation, selector) {
  const query = operation === "delete" ? { undo: true } : {};
  const result = await attempt(() => post(`api/runs/bulk/${operation}`, selector, query, BULK_MS));
  if (!result) return false;
  if (operation === "rerun") toast(`${count(result.triggered?.length ?? 0, "task")} triggered`);
  else if (operation === "stop") toast(`${count(result.affected, "run")} being stopped`);
  else {
    // The time limits the undo to this deletion; runs deleted earlier stay deleted.
    const undo = () => restore({ match_all: true }, { deleted_at: result.deleted_at });
    toast(`${count(result.affected, "run")} deleted`, {
      action: result.affected ? { label: "Undo", run: undo } : null,
      shownMs: 20_000,
    });
  }
  loadUnits();
  return true;
}
