// The cause of a failed run: the line of its log that explains the failure. One request serves all runs on the page.
import { html, signal, useEffect } from "../../vendor/preact.js";
import { Refused, get } from "../api.js";
import { link } from "../routes.js";

const AT_ONCE = 50;
/** The causes {line, text} by run id; null if a run's log names no cause. */
const causes = signal(new Map());
const waiting = new Set();

/** Store the causes of `failures`, [{run, cause}], for later use by Cause. */
export function learn(failures) {
  causes.value = new Map([...causes.value, ...failures.map(({ run, cause }) => [run.id, cause ?? null])]);
}

function ask(id) {
  if (causes.value.has(id)) return;
  if (!waiting.size) setTimeout(loadAsked);
  waiting.add(id);
}

async function loadAsked() {
  const ids = [...waiting];
  waiting.clear();
  for (let from = 0; from < ids.length; from += AT_ONCE) {
    const some = ids.slice(from, from + AT_ONCE);
    try {
      const { items } = await get("api/runs/failures", { runs: some.join(",") });
      const found = new Map(items.map((one) => [one.run.id, one]));
      learn(some.map((id) => found.get(id) ?? { run: { id } }));
    } catch (error) {
      if (!(error instanceof Refused)) throw error; // the page shows the runs without their causes
    }
  }
}

/** The cause of a failed run, as a link to its line of the log; loads the cause if necessary. */
export function Cause({ id }) {
  useEffect(() => ask(id), [id]);
  const cause = causes.value.get(id);
  return cause ? html`<${CauseLine} id=${id} cause=${cause} />` : null;
}

export const CauseLine = ({ id, cause }) => html`<a class="cause" href=${link("run", id, { line: cause.line + 1 })} title=${cause.text}>${cause.text}</a>`;
