// The text of a line as nodes: colours of terminals become classes. Text from outside is only ever set as text.
import Anser from "../../vendor/anser.js";

const ESCAPE = "\x1b";
const NAMED = /^ansi-(?:bright-)?(black|red|green|yellow|blue|magenta|cyan|white)$/;
const PALETTE = /^ansi-palette-(\d+)$/;
const CUBE = [0, 95, 135, 175, 215, 255];
const BASE = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

function paint(span, name, truecolor, property) {
  if (!name) return;
  const palette = PALETTE.exec(name);
  const named = NAMED.exec(name)?.[1] ?? (palette && palette[1] < 16 ? BASE[palette[1] % 8] : null);
  if (named && property === "color") span.classList.add(`ansi-${named}-fg`);
  else if (named) span.style.setProperty(property, `var(--ansi-${named})`);
  else if (truecolor) span.style.setProperty(property, `rgb(${truecolor})`);
  else if (palette) span.style.setProperty(property, ofPalette(Number(palette[1])));
}

/** The 216 colours and 24 greys of xterm's palette. */
function ofPalette(index) {
  if (index >= 232) {
    const grey = 8 + (index - 232) * 10;
    return `rgb(${grey}, ${grey}, ${grey})`;
  }
  const at = index - 16;
  return `rgb(${CUBE[Math.floor(at / 36)]}, ${CUBE[Math.floor(at / 6) % 6]}, ${CUBE[at % 6]})`;
}

/** Whether a text is shown just as it is: nothing of it is coloured, and nothing marked. */
export const isPlain = (text, found) => !found && !text.includes(ESCAPE);

/** Put `text` into `element`; `found` (a RegExp with the flag g, or null) is marked. */
export function fill(element, text, found) {
  if (!text.includes(ESCAPE)) {
    mark(element, text, found);
    return;
  }
  const parts = Anser.ansiToJson(text, { use_classes: true, remove_empty: true });
  for (const part of parts) {
    const span = document.createElement("span");
    paint(span, part.fg, part.fg_truecolor, "color");
    paint(span, part.bg, part.bg_truecolor, "background-color");
    for (const decoration of part.decorations) if (decoration !== "hidden") span.classList.add(`ansi-${decoration}`);
    mark(span, part.content, found);
    element.append(span);
  }
}

function mark(element, text, found) {
  if (!found) {
    element.append(text);
    return;
  }
  let from = 0;
  for (const match of text.matchAll(found)) {
    if (!match[0]) continue;
    element.append(text.slice(from, match.index));
    const hit = document.createElement("mark");
    hit.textContent = match[0];
    element.append(hit);
    from = match.index + match[0].length;
  }
  element.append(text.slice(from));
}
