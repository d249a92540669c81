// A card with all attempts of a run: the start, the duration and the preceding wait of each.
import { html, useEffect } from "../../vendor/preact.js";
import { Refused, get, runPath, taskPath } from "../api.js";
import { count, duration } from "../format.js";
import { listen } from "../live.js";
import { link } from "../routes.js";
import { now, throttle, unitNamed } from "../state.js";
import { FAILURES, ofRun } from "../states.js";
import { At, Badge, Card, Took, useLoad } from "../parts/basics.js";

/** Load all attempts that `run` is one of, oldest first. The `retryOfRunId` of a retry names the previous attempt. */
async function chain(run, signal) {
  const found = new Map([[run.id, run]]);
  for (let first = run; first.retryOfRunId && !found.has(first.retryOfRunId); ) {
    try {
      first = await get(runPath(first.retryOfRunId), { naming: "camel" }, signal);
    } catch (error) {
      if (error instanceof Refused && error.status === 404) break; // the previous attempt is no longer kept
      throw error;
    }
    found.set(first.id, first);
  }
  const later = await get(
    taskPath(run.taskName, "runs"),
    { retriesOnly: true, createdAfter: run.createdAt, sortDirection: "asc", limit: 200 },
    signal,
  );
  for (const one of later.items) if (found.has(one.retryOfRunId)) found.set(one.id, one);
  return [...found.values()].sort((a, b) => a.retryAttempt - b.retryAttempt);
}

/** Estimate the number of attempts before they are loaded, to reserve their space: the content below must not move. */
function expected(run) {
  const retries = unitNamed(run.taskName)?.definition.retryAttempts ?? 0;
  return 1 + (FAILURES.includes(run.endReason) ? Math.max(retries, run.retryAttempt) : run.retryAttempt);
}

const beginOf = (run) => Date.parse(run.startedAt ?? run.createdAt);
const endOf = (run, at) => (run.endedAt ? Date.parse(run.endedAt) : run.startedAt ? at : beginOf(run));

/** A placeholder as high as the row of an attempt, at every page width. */
const Coming = () => html`<li><span class="badge">\u00a0</span><span class="small when">\u00a0</span><span class="track"></span><span class="small number"></span></li>`;

export function Attempts({ run }) {
  const { data, reload } = useLoad((signal) => chain(run, signal), [run.id, run.status]);
  useEffect(() => {
    const again = throttle(reload, 2000);
    return listen((kind, body) => (kind === "resumed" || (body.taskName === run.taskName && body.retryAttempt > 0)) && again());
  }, [run.id]);
  const coming = data ? 0 : expected(run);
  if (coming > 1) return html`<${Card} title=${count(coming, "attempt")}><ol class="lines attempts" aria-busy="true">${Array.from({ length: coming }, Coming)}</ol></${Card}>`;
  if (!data || data.length < 2) return null;
  const at = data.some((one) => one.status === "running") ? now.value : 0;
  const first = beginOf(data[0]);
  const whole = Math.max(1, endOf(data.at(-1), at) - first);
  const part = (ms) => `${Math.min(100, Math.max(0, (100 * ms) / whole))}%`;
  return html`<${Card} title=${count(data.length, "attempt")}><ol class="lines attempts">
    ${data.map((one, index) => {
      const waited = index ? beginOf(one) - endOf(data[index - 1], at) : 0;
      const place = { left: `min(${part(beginOf(one) - first)}, calc(100% - 3px))`, width: part(endOf(one, at) - beginOf(one)) };
      return html`<li key=${one.id} class=${one.id === run.id ? "here" : ""}>
        <a href=${link("run", one.id)} aria-current=${one.id === run.id ? "true" : undefined}>
          <${Badge} look=${{ ...ofRun(one), word: `${one.retryAttempt + 1}. ${ofRun(one).word}` }} />
        </a>
        <span class="small soft when">${one.startedAt ? html`<${At} at=${one.startedAt} />` : html`waits since <${At} at=${one.createdAt} />`}${waited >= 1000 && `, ${duration(waited)} later`}</span>
        <span class="track" aria-hidden="true"><i class=${ofRun(one).tone} style=${place}></i></span>
        <span class="small number"><${Took} run=${one} /></span>
      </li>`;
    })}
  </ol></${Card}>`;
}
