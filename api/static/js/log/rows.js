// Renders a line of a log as a row of the page.
import { plain } from "./escapes.js";
import { LEVELS, levelOf, objectOf, placeInTrace } from "./levels.js";
import { fill, isPlain } from "./text.js";

const SHOWN_FRAMES = 2; // frames that stay visible when a stack trace is folded

/** Whether the screen is a phone's, on which lines wrap and their times have no milliseconds. */
export const NARROW = matchMedia("(max-width: 800px)").matches;

const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: NARROW ? undefined : 3,
});

/** Wrap `format` to cache its last result: in a burst, most lines have the timestamp of the line before. */
function remembering(format) {
  let last = null;
  let text = "";
  return (ts) => {
    if (ts !== last) {
      last = ts;
      text = format(ts);
    }
    return text;
  };
}

const clock = remembering((ts) => CLOCK.format(ts));
const iso = remembering((ts) => new Date(ts).toISOString());

function span(text, seconds) {
  return seconds >= 60 ? `${Math.floor(seconds / 60)}m${(seconds % 60).toFixed(3).padStart(6, "0")}s` : `${text}${seconds.toFixed(3)}s`;
}

/** Return the time of a line. mode: "clock", "start" (since `startMs`) or "delta" (since the line before). */
export function timeText(line, before, { mode, startMs }) {
  if (mode === "clock") return clock(line.ts);
  if (mode === "start") return span("+", Math.max(0, line.ts - startMs) / 1000);
  return span("Δ", before ? Math.max(0, line.ts - before.ts) / 1000 : 0);
}

function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Set the text of an element; if its only child is a text node, change that node, which is cheaper. */
function say(place, text) {
  const first = place.firstChild;
  if (first?.nodeType === Node.TEXT_NODE && !first.nextSibling) first.data = text;
  else place.textContent = text;
}

const EMPTY = element("div", "log-row");
EMPTY.append(element("a", "n"), element("span", "t"), element("span", "g"), element("span", "x"));
EMPTY.firstChild.tabIndex = -1;

/** Return an empty row for `fillRow`. */
export const newRow = () => EMPTY.cloneNode(true);

/**
 * Show a line in a new or reused row. look: {mode, startMs, found, address(n), frames(line), open, unfold(n)}.
 * found: a RegExp whose matches are highlighted, or null. open: a Set of unfolded lines and stack traces, by number.
 */
export function fillRow(row, line, before, look) {
  const [number, time, gutter, text] = row.children;
  while (row.children.length > 4) row.lastChild.remove();
  placeInTrace(line, before);
  const level = levelOf(line);
  row.className = `log-row ${line.stream}${line.continued ? " continued" : ""}${level ? ` level-${level}` : ""}`;
  row.dataset.n = line.n;
  say(number, line.name ?? (line.continued ? "⋯" : String(line.n + 1)));
  number.className = line.colour === undefined ? "n" : `n unit unit-${line.colour}`;
  const address = look.address(line.n);
  if (address) number.href = address;
  else number.removeAttribute("href");
  say(time, timeText(line, before, look));
  time.title = iso(line.ts);
  say(gutter, LEVELS[level] ?? "");
  gutter.title = [line.stream, level].filter(Boolean).join(", ");
  if (isPlain(line.text, look.found, line.begin)) say(text, line.text);
  else {
    text.replaceChildren();
    fill(text, line.text, look.found, line.begin);
  }
  if (line.frameCount) row.append(framesButton(line, look));
  if (line.frame >= SHOWN_FRAMES) fold(row, line, look);
  else if (line.text.charCodeAt(0) === 123) unfoldJson(row, line, look);
}

/** Hide a frame of a folded stack trace. The first of them keeps the button that unfolds or folds all. */
function fold(row, line, look) {
  const open = look.open.has(line.trace);
  const first = line.frame === SHOWN_FRAMES;
  if (!open) row.classList.add(first ? "fold" : "folded");
  if (!first) return;
  const button = element("button", "unfold", open ? "fold stack trace" : "… stack trace");
  button.setAttribute("aria-expanded", String(open));
  button.addEventListener("click", () => look.unfold(line.trace));
  row.append(button);
}

function unfoldJson(row, line, look) {
  const found = objectOf(plain(line.text));
  if (!found) return;
  const open = look.open.has(line.n);
  const button = element("button", "unfold", "{}");
  button.setAttribute("aria-label", `Line ${line.n + 1}: unfold JSON`);
  button.setAttribute("aria-expanded", String(open));
  button.addEventListener("click", () => look.unfold(line.n));
  row.append(button);
  if (open) row.append(element("pre", "json", JSON.stringify(found, null, 2)));
}

function framesButton(line, look) {
  const button = element("button", "frames", `↻ ${line.frameCount}`);
  button.title = "This line was redrawn; show its history";
  button.setAttribute("aria-label", `Line ${line.n + 1} was redrawn ${line.frameCount} times; show its history`);
  button.addEventListener("click", () => look.frames(line));
  return button;
}

/** Return the text of a Range of rows as it was printed, without line numbers, times and gap rows. */
export function textOf(rows, range) {
  let text = "";
  let before = false;
  for (const row of rows.children) {
    const cell = row.querySelector(".x");
    if (!cell || !range.intersectsNode(cell)) continue;
    const part = document.createRange();
    part.selectNodeContents(cell);
    if (range.comparePoint(cell, 0) < 0) part.setStart(range.startContainer, range.startOffset);
    if (range.comparePoint(cell, cell.childNodes.length) > 0) part.setEnd(range.endContainer, range.endOffset);
    text += before && !row.classList.contains("continued") ? `\n${part}` : String(part);
    before = true;
  }
  return text;
}

/** Return a row that reports missing lines; `why` follows the count: "3 lines …". */
export function gapRow(count, why) {
  return element("div", "log-row gap", `${count.toLocaleString()} ${count === 1 ? "line" : "lines"} ${why}`);
}

/** Return rows for the region that a stream is redrawing; begin: the style at the end of its last settled line. */
export function regionRows(stream, texts, begin) {
  let style = begin;
  return texts.map((text) => {
    const row = element("div", `log-row ${stream}`);
    const content = element("span", "x");
    style = fill(content, text, null, style);
    row.append(element("span", "n"), element("span", "t"), element("span", "g"), content);
    return row;
  });
}
