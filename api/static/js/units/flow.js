// The steps of a flow: of one run as a graph and a list, and of the last runs as a grid.
import { html, useEffect, useState } from "../../vendor/preact.js";
import * as actions from "../actions.js";
import { get, runPath, taskPath } from "../api.js";
import { moment } from "../format.js";
import { listen } from "../live.js";
import { Act, Badge, Card, Empty, RunBadge, Took, UnitLink, Unloaded, useLoad } from "../parts/basics.js";
import { link } from "../routes.js";
import { ApprovalButtons, answered, awaited } from "../runs/approval.js";
import { mayOperate, throttle } from "../state.js";
import { ofReason } from "../states.js";

const SIZE = { width: 152, height: 46, right: 52, below: 14 };
const GRID_RUNS = 30;
const GRID_STEPS = 100;
const OWN = { passed_over: { tone: "mute", word: "passed over", icon: "skip" }, interrupted: { tone: "warn", word: "interrupted", icon: "alert" } };
const CAUSES = {
  timeout: "the flow was out of time",
  removed: "it is no longer configured",
  flow_stopped: "the flow was stopped",
  missing_value: "a value that it needs is missing",
  fail_fast: "another of its runs had failed",
  condition: "its condition was not met",
  rejected: "it was rejected",
  approval_timeout: "nobody approved it in time",
};
const UPSTREAM = { failed: "a step before it failed", stopped: "a step before it was stopped", passed_over: "the steps before it gave no reason to begin" };

/** Return the look of the state of a step. */
export const ofStep = (state) => OWN[state] ?? ofReason(state === "waiting" ? "pending" : state);

/** Say why a step is in its state; "" if its runs say it. */
function why(step) {
  if (step.state === "waiting") return step.after.length ? `waits for ${step.after.join(", ")}` : "";
  if (step.keptFrom) return "kept from an earlier attempt";
  return step.cause === "upstream" ? UPSTREAM[step.state] : (CAUSES[step.cause] ?? step.cause ?? "");
}

/** Return the place of each step: [step, x, y]; a layer is a column, and each column is centred. */
function placed(steps) {
  const layers = [];
  for (const step of steps) (layers[step.layer] ??= []).push(step);
  const most = Math.max(...layers.map((layer) => layer.length));
  const places = new Map();
  layers.forEach((layer, column) =>
    layer.forEach((step, row) => {
      places.set(step.name, { step, x: column * (SIZE.width + SIZE.right), y: (row + (most - layer.length) / 2) * (SIZE.height + SIZE.below) });
    }),
  );
  return { places, width: layers.length * (SIZE.width + SIZE.right) - SIZE.right, height: most * (SIZE.height + SIZE.below) - SIZE.below };
}

function Node({ place, chosen, choose }) {
  const { step, x, y } = place;
  const look = ofStep(step.state);
  const press = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose(step.name);
  };
  const runs = step.runs.length > 1 ? ` · ${step.runs.length} runs` : "";
  return html`<g class="node ${look.tone} ${chosen ? "chosen" : ""}" transform="translate(${x} ${y})" role="button" tabindex="0" aria-pressed=${chosen} aria-label="${step.name}: ${look.word}" onClick=${() => choose(step.name)} onKeyDown=${press}>
    <title>${step.name}: ${look.word}</title>
    <rect width=${SIZE.width} height=${SIZE.height} rx="6" />
    <text x="10" y="19" class="name">${step.name.length > 18 ? `${step.name.slice(0, 17)}…` : step.name}</text>
    <text x="10" y="36" class="word">${look.word}${runs}</text>
  </g>`;
}

function Graph({ steps, chosen, choose }) {
  const { places, width, height } = placed(steps);
  const edges = [...places.values()].flatMap(({ step, x, y }) =>
    step.after.filter((name) => places.has(name)).map((name) => {
      const from = places.get(name);
      const [left, top] = [from.x + SIZE.width, from.y + SIZE.height / 2];
      const [right, bottom] = [x, y + SIZE.height / 2];
      const half = (right - left) / 2;
      return html`<path key=${`${name} ${step.name}`} class="edge ${step.when}" d="M${left} ${top} C${left + half} ${top} ${right - half} ${bottom} ${right} ${bottom}" />`;
    }),
  );
  return html`<div class="scroll-x flow-graph" tabindex="0" role="region" aria-label="Graph of the steps"><svg role="group" aria-label="Steps" width=${width + 4} height=${height + 4} viewBox="-2 -2 ${width + 4} ${height + 4}">
    ${edges}${[...places.values()].map((place) => html`<${Node} key=${place.step.name} place=${place} chosen=${place.step.name === chosen} choose=${choose} />`)}
  </svg></div>`;
}

function Runs({ step }) {
  return html`<ul class="step-runs">${step.runs.map((run) => html`<li key=${run.id}>
    <a href=${link("run", run.id)}>${run.item ?? (run.retryAttempt ? `attempt ${run.retryAttempt + 1}` : "run")}</a>
    ${run.item && run.retryAttempt > 0 && html` <span class="small soft">attempt ${run.retryAttempt + 1}</span>`}
    ${" "}<${RunBadge} run=${run} /> ${run.startedAt && html`<span class="small soft"><${Took} run=${run} /></span>`}
    ${run.waitingFor?.length > 0 && html` <span class="small soft">waits: ${run.waitingFor.map((one) => one.kind).join(", ")}</span>`}
    ${awaited(run.waitingFor) && html`<${ApprovalButtons} run=${run} what=${run.item ? `${step.name} ${run.item}` : step.name} />`}
    ${run.approval && html`<div class="small soft">${answered(run.approval)}</div>`}
    ${run.outputs && html`<span class="small mono outputs">${Object.entries(run.outputs).map(([key, value]) => html`<span key=${key}>${key} = ${typeof value === "string" ? value : JSON.stringify(value)}</span>`)}</span>`}
  </li>`)}</ul>`;
}

/** The button that lets an ended flow continue from a step. */
function FromHere({ run, step }) {
  const may = mayOperate.value;
  const title = may ? "Repeats this step and all behind it; keeps the other steps that succeeded" : "Your role is read-only";
  return html`<${Act} disabled=${!may} title=${title} aria-label="Run again from here: ${step.name}" run=${() => actions.rerun(run, { from_step: step.name })}>Run again from here</${Act}>`;
}

/** The steps of a run of a flow, live. */
export function FlowSteps({ runId, title = "Steps" }) {
  const { data, error, reload } = useLoad((signal) => get(runPath(runId, "steps"), {}, signal), [runId]);
  const [chosen, choose] = useState("");
  useEffect(() => {
    const again = throttle(reload, 500);
    return listen((kind, body) => (kind === "resumed" || kind === "flow.step" || kind.startsWith("run.")) && (kind === "resumed" || body.runId === runId || data?.steps.some((step) => step.task === body.taskName)) && again());
  }, [runId, data]);
  useEffect(() => {
    if (chosen) document.getElementById(`step-${chosen}`)?.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  if (!data) return html`<${Card} title=${title}><${Unloaded} error=${error} retry=${reload} rows=${4} /></${Card}>`;
  return html`<${Card} title=${title} className="flow">
    <${Graph} steps=${data.steps} chosen=${chosen} choose=${(name) => choose(name === chosen ? "" : name)} />
    <div class="scroll-x"><table class="steps"><thead><tr><th>Step</th><th>State</th><th>Runs</th></tr></thead><tbody>
      ${data.steps.map((step) => html`<tr key=${step.name} id="step-${step.name}" class=${step.name === chosen ? "chosen" : ""}>
        <td><${UnitLink} name=${step.task}>${step.name}</${UnitLink}>${step.optional && html` <span class="tag">optional</span>`}</td>
        <td><${Badge} look=${ofStep(step.state)} />${why(step) && html`<div class="small soft">${why(step)}</div>`}${data.run.status === "ended" && html`<div><${FromHere} run=${data.run} step=${step} /></div>`}</td>
        <td><${Runs} step=${step} /></td>
      </tr>`)}
    </tbody></table></div>
  </${Card}>`;
}

/** The states of the steps in the last runs of a flow. */
export function FlowGrid({ name }) {
  const { data, error, reload } = useLoad((signal) => get(taskPath(name, "steps"), { limit: GRID_RUNS }, signal), [name]);
  useEffect(() => {
    const again = throttle(reload, 2000);
    return listen((kind, body) => (kind === "resumed" || (body.taskName === name && (kind === "flow.step" || kind.startsWith("run.")))) && again());
  }, [name]);
  if (!data) return html`<${Card} title="Last runs"><${Unloaded} error=${error} retry=${reload} rows=${4} /></${Card}>`;
  const runs = [...data.items].reverse();
  const names = data.steps.slice(0, GRID_STEPS);
  const cell = (run, step, look) => html`<td key=${run.run.id}><a class=${look.tone} href=${link("run", run.run.id)} aria-label="${step}, ${moment(run.run.createdAt)}: ${look.word}" title="${step}: ${look.word}, ${moment(run.run.createdAt)}"></a></td>`;
  return html`<${Card} title="Last runs" className="flow-grid">
    ${!runs.length && html`<${Empty}>The grid appears with the first run.</${Empty}>`}
    ${runs.length > 0 && html`<div class="scroll-x body" tabindex="0" role="region" aria-label="Steps of the last runs"><table><tbody>
      <tr><th scope="row">flow</th>${runs.map((run) => cell(run, "flow", ofReason(run.run.endReason ?? run.run.status)))}</tr>
      ${names.map((step) => html`<tr key=${step}><th scope="row">${step}</th>${runs.map((run) => cell(run, step, ofStep(run.steps[step] ?? "waiting")))}</tr>`)}
    </tbody></table></div>`}
  </${Card}>`;
}
