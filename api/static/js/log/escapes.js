// Terminal escape sequences in a line: colours, styles and links (OSC 8) become styles of its parts; all others are
// dropped. A style that is not reset carries over to the next line of the same stream.

const SEQUENCE = new RegExp(
  [
    "(?:\\x1b\\]|\\x9d)([^\\x07\\x1b\\x9c]*)(?:\\x07|\\x1b\\\\|\\x9c|$)", // OSC: 1
    "(?:\\x1b[PX^_]|[\\x90\\x98\\x9e\\x9f])[^\\x07\\x1b\\x9c]*(?:\\x07|\\x1b\\\\|\\x9c|$)", // DCS, SOS, PM, APC
    "(?:\\x1b\\[|\\x9b)([0-?]*)[ -/]*([@-~]|$)", // CSI: 2, 3
    "\\x1b[ -/]*[0-~]?", // all others
  ].join("|"),
  "g",
);
const SPECIAL = /[\x1b\x90\x98\x9b\x9d-\x9f]/;
const LINK = /^8;[^;]*;(.*)$/s;

/**
 * How text looks. fg, bg: null (as the line), a number of the 256 colours, or [red, green, blue]. link: an address or
 * null. Styles are never changed, so two that are the same object are equal.
 */
export const PLAIN = Object.freeze({
  fg: null,
  bg: null,
  bold: false,
  dim: false,
  italic: false,
  underline: false,
  inverse: false,
  strikethrough: false,
  link: null,
});

const PLAINLY = {
  1: { bold: true },
  2: { dim: true },
  3: { italic: true },
  7: { inverse: true },
  9: { strikethrough: true },
  21: { underline: true },
  22: { bold: false, dim: false },
  23: { italic: false },
  24: { underline: false },
  27: { inverse: false },
  29: { strikethrough: false },
  39: { fg: null },
  49: { bg: null },
};

/** Whether a text has no escape sequences. */
export const hasEscapes = (text) => SPECIAL.test(text);

/** The parts of a line, [{text, style}], and the style after it. */
export function parse(text, begin) {
  const parts = [];
  let style = begin;
  let from = 0;
  const add = (to) => to > from && parts.push({ text: text.slice(from, to), style });
  for (const found of text.matchAll(SEQUENCE)) {
    add(found.index);
    from = found.index + found[0].length;
    if (found[3] === "m") style = afterSgr(style, found[2]);
    else if (found[1] !== undefined) style = afterOsc(style, found[1]);
  }
  add(text.length);
  return { parts, end: style };
}

/** The text without its escape sequences. */
export const plain = (text) => (hasEscapes(text) ? parse(text, PLAIN).parts.map((part) => part.text).join("") : text);

/** The style after a line that began with another. */
export const styleAfter = (text, begin) => (hasEscapes(text) ? parse(text, begin).end : begin);

function afterOsc(style, content) {
  const target = LINK.exec(content)?.[1];
  if (target === undefined) return style;
  return { ...style, link: webAddress(target) };
}

/** An address with http or https, as browsers write it; null for any other text. */
export function webAddress(text) {
  try {
    const url = new URL(text);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

function afterSgr(style, content) {
  if (/[<-?]/.test(content)) return style; // of a private kind
  const changes = {};
  const codes = content.split(";");
  while (codes.length) {
    const [code, ...details] = codes.shift().split(":").map((one) => Number(one || 0));
    if (code === 0) Object.assign(changes, PLAIN, { link: style.link });
    else if (code === 4) changes.underline = details[0] !== 0;
    else if (code === 38 || code === 48 || code === 58) {
      const colour = details.length ? colourOf(details.length > 4 ? [details[0], ...details.slice(2)] : details) : colourOf(taken(codes));
      if (colour !== undefined && code !== 58) changes[code === 38 ? "fg" : "bg"] = colour;
    } else if (code >= 30 && code <= 37) changes.fg = code - 30;
    else if (code >= 40 && code <= 47) changes.bg = code - 40;
    else if (code >= 90 && code <= 97) changes.fg = code - 82;
    else if (code >= 100 && code <= 107) changes.bg = code - 92;
    else Object.assign(changes, PLAINLY[code]);
  }
  const after = { ...style, ...changes };
  return Object.keys(PLAIN).every((name) => after[name] === PLAIN[name]) ? PLAIN : after;
}

/** Take the codes that follow 38 or 48 and belong to it. */
const taken = (codes) => codes.splice(0, codes[0] === "2" ? 4 : 2).map(Number);

/** The colour of "5;n" or "2;r;g;b"; undefined for anything else. */
function colourOf([kind, ...values]) {
  const valid = values.every((value) => Number.isInteger(value) && value >= 0 && value <= 255);
  if (kind === 5 && valid && values.length >= 1) return values[0];
  if (kind === 2 && valid && values.length >= 3) return values.slice(0, 3);
  return undefined;
}
