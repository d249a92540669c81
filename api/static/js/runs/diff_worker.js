// A worker that loads the logs of two runs and compares them, so that the page stays responsive.
import { plain } from "../log/escapes.js";
import { keyOf, matches } from "./diff.js";

const MOST = 100_000; // lines of each log
const PAGE = 10_000;

/** Return {lines, whole} of a log; the lines that Ringward itself wrote are left out. address: the log in the API. */
async function logOf(address) {
  const lines = [];
  for (let from = 0; lines.length < MOST; ) {
    const response = await fetch(`${address}?${new URLSearchParams({ from, limit: PAGE })}`, { headers: { Accept: "application/json" } });
    if (!response.ok) throw new Error(`The log could not be loaded: status ${response.status}`);
    const page = await response.json();
    for (const { n, stream, text } of page.lines) if (stream !== "system") lines.push({ n, text: plain(text) });
    if (!page.lines.length) break;
    from = page.lines.at(-1).n + 1;
    if (from >= page.totalLines) break;
  }
  return { lines: lines.slice(0, MOST), whole: lines.length < MOST };
}

let logs = null;

/** data: {addresses: [left, right], ignore}. The answer is {left, right, whole, equal}, or {error}. */
onmessage = async ({ data: { addresses, ignore } }) => {
  try {
    logs ??= Promise.all(addresses.map(logOf));
    const [left, right] = await logs;
    const keys = [left, right].map(({ lines }) => lines.map(({ text }) => keyOf(text, ignore)));
    postMessage({ left: left.lines, right: right.lines, whole: left.whole && right.whole, equal: matches(...keys), ignore });
  } catch (error) {
    logs = null;
    postMessage({ error: error.message, ignore });
  }
};
