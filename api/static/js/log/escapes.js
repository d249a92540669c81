// Parses terminal escape sequences. Colours, styles and links (OSC 8) split a line into styled parts; other sequences
// are removed. A style that is not reset carries over to the next line of the same stream.

const SEQUENCE = new RegExp(
  [
    "(?:\\x1b\\]|\\x9d)([^\\x07\\x1b\\x9c]*)(?:\\x07|\\x1b\\\\|\\x9c|$)", // OSC; group 1: content
    "(?:\\x1b[PX^_]|[\\x90\\x98\\x9e\\x9f])[^\\x07\\x1b\\x9c]*(?:\\x07|\\x1b\\\\|\\x9c|$)", // DCS, SOS, PM, APC
    "(?:\\x1b\\[|\\x9b)([0-?]*)[ -/]*([@-~]|$)", // CSI; groups 2 and 3: parameters and final byte
    "\\x1b[ -/]*[0-~]?", // other sequences
  ].join("|"),
  "g",
);
const SPECIAL = /[\x1b\x90\x98\x9b\x9d-\x9f]/;
const LINK = /^8;[^;]*;(.*)$/s;

/**
 * The default style of text. fg, bg: null (the line's colour), 0 to 255 (xterm's colours) or [red, green, blue].
 * link: a web address or null. Styles are never modified, so parts and lines share them.
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

/** Whether a text contains escape sequences. */
export const hasEscapes = (text) => SPECIAL.test(text);

/** Parse a line that begins with style `begin`. Return {parts: [{text, style}], end}; end: the style at its end. */
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

/** Return the text without its escape sequences. */
export const plain = (text) => (hasEscapes(text) ? parse(text, PLAIN).parts.map((part) => part.text).join("") : text);

/** Return the style at the end of a line that begins with style `begin`. */
export const styleAfter = (text, begin) => (hasEscapes(text) ? parse(text, begin).end : begin);

function afterOsc(style, content) {
  const target = LINK.exec(content)?.[1];
  if (target === undefined) return style;
  return { ...style, link: webAddress(target) };
}

/** Return `text` as a normalised URL if it is an http or https address, otherwise null. */
export function webAddress(text) {
  try {
    const url = new URL(text);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

function afterSgr(style, content) {
  if (/[<-?]/.test(content)) return style; // a private sequence, not SGR
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

/** Remove and return the codes that specify the colour of a preceding 38, 48 or 58. */
const taken = (codes) => codes.splice(0, codes[0] === "2" ? 4 : 2).map(Number);

/** Return the colour of [5, n] or [2, red, green, blue]; undefined for anything else. */
function colourOf([kind, ...values]) {
  const valid = values.every((value) => Number.isInteger(value) && value >= 0 && value <= 255);
  if (kind === 5 && valid && values.length >= 1) return values[0];
  if (kind === 2 && valid && values.length >= 3) return values.slice(0, 3);
  return undefined;
}
