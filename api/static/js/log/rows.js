// One line of a log as a row of the page.
import { fill } from "./text.js";

const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
  hour12: false,
});

function span(text, seconds) {
  return seconds >= 60 ? `${Math.floor(seconds / 60)}m${(seconds % 60).toFixed(3).padStart(6, "0")}s` : `${text}${seconds.toFixed(3)}s`;
}

/** The time of a line. mode: "clock", "start" (since `startMs`), "delta" (since the line before). */
export function timeText(line, before, { mode, startMs }) {
  if (mode === "clock") return CLOCK.format(line.ts);
  if (mode === "start") return span("+", Math.max(0, line.ts - startMs) / 1000);
  return span("Δ", before ? Math.max(0, line.ts - before.ts) / 1000 : 0);
}

function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

/** `look`: {mode, startMs, found, address(n), frames(line)}. */
export function rowOf(line, before, look) {
  const row = element("div", `log-row ${line.stream}`);
  row.dataset.n = line.n;
  const number = element("a", "n", line.continued ? "⋯" : String(line.n + 1));
  const address = look.address(line.n);
  if (address) number.href = address;
  number.tabIndex = -1;
  const time = element("span", "t", timeText(line, before, look));
  time.title = new Date(line.ts).toISOString();
  const text = element("span", "x");
  fill(text, line.text, look.found);
  row.append(number, time, text);
  if (line.frameCount) {
    const button = element("button", "frames", `↻ ${line.frameCount}`);
    button.title = "This line was redrawn: see how it came to be";
    button.setAttribute("aria-label", `Line ${line.n + 1} was redrawn ${line.frameCount} times: show that`);
    button.addEventListener("click", () => look.frames(line));
    row.append(button);
  }
  return row;
}

/** A row that says that lines are not here. */
export function gapRow(count, why) {
  return element("div", "log-row gap", `${count.toLocaleString()} ${count === 1 ? "line" : "lines"} ${why}`);
}

/** What a stream draws now, below its settled lines. */
export function regionRow(stream, text) {
  const row = element("div", `log-row ${stream}`);
  const content = element("span", "x");
  fill(content, text, null);
  row.append(element("span", "n"), element("span", "t"), content);
  return row;
}
