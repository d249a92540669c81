// The page of a run: its result, attempts, log, comparison with the last good run, facts and resource usage.
import { html, useEffect, useMemo, useState } from "../../vendor/preact.js";
import * as actions from "../actions.js";
import { Refused, get, runPath } from "../api.js";
import { duration, percent, size, tookMs } from "../format.js";
import { ApprovalButtons, answered, awaited } from "../runs/approval.js";
import { Attempts } from "../runs/attempts.js";
import { Act, Ago, At, Card, Empty, Problem, RunBadge, Skeleton, Took, useLoad, useTitle } from "../parts/basics.js";
import { CauseLine } from "../runs/cause.js";
import { BYTES, Chart, PERCENTS } from "../parts/chart.js";
import { Left, useExpected } from "../runs/expected.js";
import { Icon } from "../parts/icon.js";
import { Comparison, isCompared } from "../runs/comparison.js";
import { Menu } from "../parts/menu.js";
import { Trail } from "../runs/neighbours.js";
import { listen } from "../live.js";
import { LogPanel, rangeOf } from "../log/panel.js";
import { parametersOf, queryOf } from "../log/search.js";
import { RunLog, UnitLog } from "../log/source.js";
import { firstPage } from "../log/view.js";
import { go, link, route } from "../routes.js";
import { instanceOf, mayOperate, now, throttle, trouble, unitNamed, units } from "../state.js";
import { FAILURES, ofRun } from "../states.js";
import { FlowSteps } from "../units/flow.js";
import { sentence, starter } from "../verdict.js";

const SHORT_MS = 15_000;
const AGAIN_MS = 10_000; // how often a running run's last output is requested

export function RunPage({ id }) {
  const { data: run, error, reload } = useLoad((signal) => get(runPath(id), { naming: "camel" }, signal), [id]);
  useTitle(run ? `${run.taskName} · run` : "Run");
  useEffect(() => {
    const again = throttle(reload, 300);
    return listen((kind, body) => (body.runId === id || kind === "resumed" || (kind.startsWith("run.") && body.affected)) && again());
  }, [id]);
  const { query } = route.value;
  const compared = query.get("compare");
  const at = { range: rangeOf(query.get("line")), stream: query.get("stream"), level: query.get("level"), filter: query.get("filter") };
  const source = useMemo(() => {
    const made = new RunLog(id);
    if (!at.stream && !at.level && !at.filter) made.askAhead(...firstPage(at.range));
    return made;
  }, [id]);
  const [logged, setLogged] = useState(false); // render the cards below the log after its lines, which would move them
  const { data: details } = useLoad(async (signal) => (logged ? get(runPath(id, "details"), {}, signal) : null), [id, logged, run?.status]);
  const gone = error instanceof Refused && (error.status === 404 || error.status === 422);
  if (gone || (error && !run)) {
    return html`<h1>Run</h1><${Card} label="Problem">
      ${gone ? html`<${Empty}><p>No run <span class="mono">${id}</span>: it was deleted, or its retention has expired.</p><a class="button" href=${link("runs")}>All runs</a></${Empty}>` : html`<${Problem} error=${error} retry=${reload} />`}
    </${Card}>`;
  }
  // The attempts of a failure are estimated from its task. Wait for the units, or late attempts would move the log.
  const known = units.value || trouble.value || !FAILURES.includes(run?.endReason);
  if (!run || run.id !== id || !known) return html`<h1>Run</h1><${Card} label="Loading"><${Skeleton} rows=${8} /></${Card}>`;
  const address = (changes) => link("run", id, { ...Object.fromEntries(query), ...changes });
  const ask = (wanted) => go(address({ q: undefined, regex: undefined, case: undefined, all: undefined, ...parametersOf(wanted) }), { replace: true });
  return html`<${Trail} run=${run} ready=${logged} />
    <div class="page-head">
      <h1>${run.taskName}<span class="soft">${instanceOf(run)}</span></h1>
      <${RunBadge} run=${run} />
      <span class="spring"></span><${RunActions} run=${run} />
    </div>
    <${Verdict} run=${run} />
    <${Attempts} run=${run} />
    ${compared && details && html`<${Comparison} key=${compared} run=${run} details=${details} id=${compared} leave=${() => go(address({ compare: undefined }), { replace: true })} />`}
    ${unitNamed(run.taskName)?.steps ? html`<${FlowSteps} runId=${id} /><${FlowLog} id=${id} loaded=${() => setLogged(true)} />` : html`<${LogPanel}
      key=${id}
      source=${source}
      at=${at}
      moved=${(changes) => go(address(changes), { replace: true })}
      address=${(n) => link("run", id, { line: n + 1 })}
      taskName=${run.taskName}
      runId=${id}
      asked=${queryOf(query)}
      ask=${ask}
      elsewhere=${(hit, wanted) => go(link("run", hit.runId, { line: hit.n + 1, ...parametersOf(wanted) }))}
      startMs=${run.startedAt ? Date.parse(run.startedAt) : 0}
      fileName=${`${run.taskName}-${id}.log`}
      loaded=${() => setLogged(true)}
    />`}
    ${details && !compared && isCompared(run) && html`<${Comparison} run=${run} details=${details} />`}
    ${details && html`<div class="cards"><${Facts} run=${run} details=${details} /><${Resources} run=${run} /></div>`}`;
}

/** The merged log of the steps of a flow's run. */
function FlowLog({ id, loaded }) {
  const source = useMemo(() => new UnitLog("api/logs/stream", { flow_run_id: id }, true), [id]);
  const address = (n) => {
    const line = source.lineAt(n);
    return line?.runId ? link("run", line.runId, { line: line.runLine + 1 }) : null;
  };
  useEffect(loaded, [id]);
  return html`<${LogPanel} key=${id} source=${source} title="Log of all steps" address=${address} />`;
}

function RunActions({ run }) {
  const may = mayOperate.value;
  const title = may ? undefined : "Your role is read-only";
  const ended = run.status === "ended";
  const unit = unitNamed(run.taskName);
  const service = unit?.kind === "service";
  return html`<span class="row">
    ${!ended && html`<${Act} class="danger" disabled=${!may} title=${title} run=${() => actions.stopRun(run)}><${Icon} name="square" />Stop</${Act}>`}
    ${ended && unit?.steps && run.endReason !== "succeeded" && html`<${Act} disabled=${!may} title=${title ?? "Keeps the steps that succeeded"} run=${() => actions.rerun(run, { failed: true })}><${Icon} name="redo" />Run again what failed</${Act}>`}
    ${ended && !service && html`<${Act} class="primary" disabled=${!may} title=${title} run=${() => actions.rerun(run)}><${Icon} name="redo" />Run again</${Act}>`}
    <${Menu} label="More for this run" items=${[
      !ended && { label: "Kill now", run: () => actions.forceStopRun(run), disabled: !may, title },
      !service && unit?.definition.params?.length > 0 && { label: "Run again with changes", run: () => actions.rerunWithChanges(run, unit), disabled: !may, title },
      !ended && !service && { label: "Run again", run: () => actions.rerun(run), disabled: !may, title },
      run.status !== "running" && {
        label: "Delete",
        disabled: !may,
        title,
        run: async () => (await actions.deleteRun(run)) && go(link("task", run.taskName)),
      },
      { label: "Copy its id", run: () => navigator.clipboard?.writeText(run.id) },
    ]} />
  </span>`;
}

function Verdict({ run }) {
  const turn = run.status === "running" && Math.floor(now.value / AGAIN_MS);
  const { data } = useLoad((signal) => get(runPath(run.id, run.status === "ended" ? "ending" : "details"), {}, signal), [run.id, run.status, turn, run.status === "pending" && run]);
  const task = unitNamed(run.taskName)?.kind === "task";
  const expected = useExpected(run.taskName, task && run.status === "running");
  return html`<section class="card verdict ${ofRun(run).tone}" aria-label="Verdict">
    <p class="words" role="status">${sentence(run, data)}</p>
    ${run.status === "pending" && awaited(data?.waitingFor) && html`<p><${ApprovalButtons} run=${run} what=${run.taskName} /></p>`}
    ${data?.approval && html`<p class="small">${answered(data.approval)}</p>`}
    ${run.status === "running" && html`<${Left} run=${run} expected=${expected} />`}
    ${FAILURES.includes(run.endReason) && html`<p class="why">${data?.cause ? html`<${CauseLine} id=${data.failedRunId ?? run.id} cause=${data.cause} />` : "\u00a0"}</p>`}
    <p class="small soft">${run.startedAt ? html`Started <${At} at=${run.startedAt} />, ${run.endedAt ? "took" : "running for"} <${Took} run=${run} />${data?.lastOutputAt && html`, last output <${Ago} at=${data.lastOutputAt} />`}` : html`Created <${At} at=${run.createdAt} />`}${data?.doneBy && html`, to be done by <${At} at=${data.doneBy} />`}</p>
  </section>`;
}

function Facts({ run, details }) {
  return html`<${Card} title="Run"><div class="body"><dl class="facts">
    <div><dt>Started by</dt><dd>${starter(run, details.by)}</dd></div>
    <div><dt>Created</dt><dd><${At} at=${run.createdAt} /></dd></div>
    ${run.startedAt && html`<div><dt>Started</dt><dd><${At} at=${run.startedAt} /></dd></div>`}
    ${run.endedAt && html`<div><dt>Ended</dt><dd><${At} at=${run.endedAt} /></dd></div>`}
    ${run.startedAt && html`<div><dt>Duration</dt><dd><${Took} run=${run} /></dd></div>`}
    ${run.status === "ended" && run.exitCode >= 0 && html`<div><dt>Exit code</dt><dd class="mono">${run.exitCode}</dd></div>`}
    ${Object.entries(run.params ?? {}).map(([name, value]) => html`<div><dt>${name}</dt><dd class="mono">${value}</dd></div>`)}
    <div class="wide"><dt>Id</dt><dd class="mono small">${run.id}</dd></div>
    ${run.executionId && html`<div><dt>Job id</dt><dd class="mono small">${run.executionId}</dd></div>`}
  </dl></div></${Card}>`;
}

function Resources({ run }) {
  const { data, reload } = useLoad((signal) => get(runPath(run.id, "resources"), {}, signal), [run.id, run.status]);
  useEffect(() => {
    if (run.status !== "running") return undefined;
    const timer = setInterval(() => document.hidden || reload(), 5000);
    return () => clearInterval(timer);
  }, [run.id, run.status]);
  const samples = data?.samples ?? [];
  const chart = useMemo(
    () => ({
      times: samples.map((one) => Date.parse(one.t) / 1000),
      cpu: [{ label: "CPU", token: "accent", format: percent, values: samples.map((one) => one.cpuPercent ?? null) }],
      memory: [{ label: "memory", token: "accent", format: size, values: samples.map((one) => one.rssBytes) }],
    }),
    [data],
  );
  const fact = (label, value) => value !== undefined && html`<div><dt>${label}</dt><dd class="number">${value}</dd></div>`;
  return html`<${Card} title="Resources"><div class="body">
    ${data &&
    html`<dl class="facts">
      ${fact("CPU, user", data.cpuUserMs === undefined ? undefined : duration(data.cpuUserMs))}
      ${fact("CPU, system", data.cpuSystemMs === undefined ? undefined : duration(data.cpuSystemMs))}
      ${fact("Peak memory", data.maxRssBytes === undefined ? undefined : size(data.maxRssBytes))}
      ${fact("Read from disk", data.readBytes === undefined ? undefined : size(data.readBytes))}
      ${fact("Written to disk", data.writeBytes === undefined ? undefined : size(data.writeBytes))}
    </dl>`}
    ${samples.length > 1 &&
    html`<div class="cards usage">
      <figure><h3>CPU</h3><${Chart} times=${chart.times} series=${chart.cpu} steps=${PERCENTS} height=${90} text="CPU over time" /></figure>
      <figure><h3>Memory</h3><${Chart} times=${chart.times} series=${chart.memory} steps=${BYTES} height=${90} text="Memory over time" /></figure>
    </div>`}
    ${data && samples.length < 2 && html`<p class="hint usage">${hint(run)}</p>`}
  </div></${Card}>`;
}

function hint(run) {
  if (!run.startedAt) return run.status === "ended" ? "The run never started." : "The run has not started.";
  if (run.status === "running") return "Sampled every five seconds.";
  return tookMs(run) < SHORT_MS ? "The run was too short for a chart." : "No samples are kept for this run.";
}
