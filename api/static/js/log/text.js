// Renders the text of a line as nodes with colours, links and highlights. Log text is only ever inserted as text, never
// as HTML.
import { coloursOf } from "./colours.js";
import { PLAIN, hasEscapes, parse, webAddress } from "./escapes.js";

const ADDRESS = /\bhttps?:\/\/[^\s<>"'`\\^{|}\x00-\x1f\x7f-\x9f]+/gi;
const CLASSES = ["bold", "italic", "underline", "strikethrough"];

/** Whether a text has no colours, links or highlights, so that a single text node can show it. */
export const isPlain = (text, found, begin = PLAIN) => !found && begin === PLAIN && !hasEscapes(text) && !text.includes("://");

/**
 * Append `text` to `element`, highlight matches of `found` (a global RegExp or null), and return the final style.
 * linked: whether its addresses become links, which must not be inside another link.
 */
export function fill(element, text, found, begin = PLAIN, linked = true) {
  const { parts, end } = parse(text.replace(/^\ufeff/, ""), begin);
  const whole = parts.map((part) => part.text).join("");
  const hits = found ? [...whole.matchAll(found)].map((match) => [match.index, match.index + match[0].length]) : [];
  let at = 0;
  for (const part of parts) {
    const place = part.style === PLAIN ? element : element.appendChild(styled(linked ? part.style : { ...part.style, link: null }));
    if (part.style.link || !linked) mark(place, part.text, at, hits);
    else link(place, part.text, at, hits);
    at += part.text.length;
  }
  return end;
}

function styled(style) {
  const made = style.link ? anchor(style.link) : document.createElement("span");
  const { color, ground } = coloursOf(style);
  if (color) made.style.color = color;
  if (ground) made.style.backgroundColor = ground;
  for (const name of CLASSES) if (style[name]) made.classList.add(`ansi-${name}`);
  return made;
}

function anchor(address) {
  const made = document.createElement("a");
  made.href = address;
  made.target = "_blank";
  made.rel = "noopener noreferrer";
  made.title = address; // the link's text may show another address
  return made;
}

/** Return an address without trailing punctuation and unmatched closing brackets. */
function trimmed(address) {
  const times = (text, letter) => text.split(letter).length;
  let text = address;
  for (;;) {
    const last = text.at(-1);
    const opening = { ")": "(", "]": "[" }[last];
    const unmatched = opening && times(text, last) > times(text, opening);
    if (!unmatched && !".,;:!?*_~".includes(last)) return text;
    text = text.slice(0, -1);
  }
}

function link(element, text, at, hits) {
  let from = 0;
  for (const match of text.includes("://") ? text.matchAll(ADDRESS) : []) {
    const address = trimmed(match[0]);
    const target = webAddress(address);
    if (!target) continue;
    mark(element, text.slice(from, match.index), at + from, hits);
    mark(element.appendChild(anchor(target)), address, at + match.index, hits);
    from = match.index + address.length;
  }
  mark(element, text.slice(from), at + from, hits);
}

/** Append a part of a line that begins at offset `at`; highlight what belongs to `hits`, the matches in the line. */
function mark(element, text, at, hits) {
  let from = 0;
  for (const hit of hits) {
    const [first, last] = hit.map((offset) => Math.min(Math.max(offset - at, 0), text.length));
    if (first === last) continue;
    element.append(text.slice(from, first));
    const made = document.createElement("mark");
    made.textContent = text.slice(first, last);
    element.append(made);
    from = last;
  }
  if (from < text.length) element.append(text.slice(from));
}
