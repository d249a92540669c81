// The logs of two runs side by side: differences line by line, with the equal parts folded.
import { html, useEffect, useMemo, useRef, useState } from "../../vendor/preact.js";
import { runPath } from "../api.js";
import { count, number } from "../format.js";
import { Skeleton } from "../parts/basics.js";
import { link } from "../routes.js";

const AROUND = 3; // equal lines shown around a difference
const UNFOLDED = 500; // lines that one press unfolds
const SHOWN = 1000; // rows of differences; a press shows as many more
const KINDS = ["times", "ids", "numbers"];
const LISTED = new Intl.ListFormat("en");
/** The worker's module; the page's own script is beside it, or in the bundle. */
const WORKER = new URL("../js/runs/diff_worker.js", document.querySelector("script[type=module]").src);

/** Return the rows of a comparison, [{left, right}] with indexes or undefined, and folded parts, {fold: [left, right, length]}. */
function rowsOf({ left, right, equal }, unfolded) {
  const rows = [];
  let [x, y] = [0, 0];
  const differ = (toX, toY) => {
    for (let step = 0; step < Math.max(toX - x, toY - y); step += 1) {
      rows.push({ left: x + step < toX ? x + step : undefined, right: y + step < toY ? y + step : undefined, differs: true });
    }
  };
  for (const [fromX, fromY, length] of equal) {
    differ(fromX, fromY);
    const before = fromX || fromY ? AROUND : 0;
    const atEnd = fromX + length === left.length && fromY + length === right.length;
    const after = atEnd ? 0 : AROUND;
    const first = before + (unfolded.get(fromX) ?? 0);
    const folded = length - first - after;
    const shown = folded > 1 ? first : length;
    for (let step = 0; step < shown; step += 1) rows.push({ left: fromX + step, right: fromY + step });
    if (folded > 1) {
      rows.push({ fold: fromX, length: folded });
      for (let step = length - after; step < length; step += 1) rows.push({ left: fromX + step, right: fromY + step });
    }
    [x, y] = [fromX + length, fromY + length];
  }
  differ(left.length, right.length);
  return rows;
}

/** left, right: the runs, and `names`, what they are called. */
export function LogDiff({ left, right, names }) {
  const [ignore, setIgnore] = useState(KINDS);
  const [found, setFound] = useState(null);
  const [unfolded, setUnfolded] = useState(new Map());
  const [most, setMost] = useState(SHOWN);
  const worker = useRef(null);
  useEffect(() => {
    worker.current = new Worker(WORKER, { type: "module" });
    worker.current.onmessage = ({ data }) => setFound(data);
    worker.current.onerror = () => setFound({ error: "The comparison failed; reload the page", ignore: [] });
    return () => worker.current.terminate();
  }, []);
  useEffect(() => {
    setUnfolded(new Map());
    setMost(SHOWN);
    const addresses = [left, right].map((run) => new URL(runPath(run.id, "log"), document.baseURI).href);
    worker.current.postMessage({ addresses, ignore });
  }, [ignore]);
  const rows = useMemo(() => (found && !found.error ? rowsOf(found, unfolded) : []), [found, unfolded]);
  const flip = (kind) => setIgnore(ignore.includes(kind) ? ignore.filter((one) => one !== kind) : [...ignore, kind]);
  const choice = html`<p class="row small ignored">Ignore ${KINDS.map((kind) => html`<label key=${kind} class="check"><input type="checkbox" checked=${ignore.includes(kind)} onChange=${() => flip(kind)} />${kind}</label>`)}</p>`;
  if (!found) return html`${choice}<${Skeleton} />`;
  if (found.error) return html`${choice}<p class="problem" role="alert">${found.error}</p>`;
  const differing = rows.filter((row) => row.differs);
  const told = differing.length ? `${count(differing.length, "difference")}` : "The logs are the same";
  const apart = found.ignore.length ? `, apart from ${LISTED.format(found.ignore)}` : "";
  const cell = (run, lines, at, other) =>
    at === undefined
      ? html`<td class="n"></td><td class="none"></td>`
      : html`<td class="n"><a href=${link("run", run.id, { line: lines[at].n + 1 })}>${number(lines[at].n + 1)}</a></td><td class=${other}>${other ? html`<mark>${lines[at].text}</mark>` : lines[at].text}</td>`;
  return html`${choice}
    <p class="small soft" role="status">${told}${apart}.${!found.whole && " Only the first 100,000 lines of each log are compared."}</p>
    <div class="diff" tabindex="0" role="region" aria-label="Differences of the logs"><table>
      <colgroup><col class="n" /><col /><col class="n" /><col /></colgroup>
      <thead><tr><th colspan="2" scope="col">${names[0]}</th><th colspan="2" scope="col">${names[1]}</th></tr></thead>
      <tbody>${rows.slice(0, most).map((row) =>
        row.fold === undefined
          ? html`<tr key=${`${row.left} ${row.right}`} class=${row.differs ? "differs" : ""}>${cell(left, found.left, row.left, row.differs ? "left" : "")}${cell(right, found.right, row.right, row.differs ? "right" : "")}</tr>`
          : html`<tr key=${`fold ${row.fold}`} class="folded"><td colspan="4"><button class="link" onClick=${() => setUnfolded(new Map(unfolded).set(row.fold, (unfolded.get(row.fold) ?? 0) + UNFOLDED))}>${count(row.length, "equal line")}</button></td></tr>`,
      )}</tbody>
    </table></div>
    ${rows.length > most && html`<p><button onClick=${() => setMost(most + SHOWN)}>Show more of ${count(rows.length, "row")}</button></p>`}`;
}
