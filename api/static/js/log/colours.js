// Readable colours for terminal output: in both themes, text has a contrast of at least 4.5:1 with its background.
// A text colour too close to its background moves towards black or white until it reaches that contrast.

const LEAST = 4.5;
const STEPS = 32;
const DIMMED = 0.35;
const CUBE = [0, 95, 135, 175, 215, 255];
const THEMES = ["light", "dark"];

/** Text colours 0 to 15 on the log's own background, by theme. */
const TEXT = {
  light: "24292f b3261e 17693a 7f5200 1d4fc4 86319a 0b6570 57606a 57606a cf2a20 1b7a43 8f5d00 2b62e0 a03cb8 0d7784 24292f",
  dark: "9aa4b2 ff948b 6fd49a f2c35c 8fb0ff e09af2 66d3df c9d1dc 8f99a8 ffb0a9 93e6b5 ffd98a b0c8ff edbdf9 93e8f1 ffffff",
};
/** Colours 0 to 15 as backgrounds, and as text on a coloured background; the same in both themes. */
const GROUND = "1e2329 c62f2a 1f8a4c d7a526 2f66d0 9a3fb0 12808c c9ced6 5b6472 e5534b 3fb172 f0c54b 5a8cf0 c071d6 35b0bd ffffff";
/** CSS variables of line backgrounds: plain, under the pointer, marked, and being redrawn. */
const PAPERS = ["--log-paper", "--sunken", "--log-hit", "--busy-soft"];

const ofHex = (text) => [0, 2, 4].map((at) => Number.parseInt(text.slice(at, at + 2), 16));
const GROUNDS = GROUND.split(" ").map(ofHex);
const TEXTS = Object.fromEntries(THEMES.map((theme) => [theme, TEXT[theme].split(" ").map(ofHex)]));

function luminance(colour) {
  const [red, green, blue] = colour.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Return the WCAG contrast ratio, 1 to 21, of two colours, each [red, green, blue] with values from 0 to 255. */
export function contrast(one, other) {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

const mixed = (from, to, part) => from.map((value, at) => Math.round(value + (to[at] - value) * part));

/** Return `colour`, moved as little as possible towards black or white, so that it is readable on all `grounds`. */
function readable(colour, grounds) {
  const least = (text) => Math.min(...grounds.map((ground) => contrast(text, ground)));
  const extreme = least([0, 0, 0]) > least([255, 255, 255]) ? [0, 0, 0] : [255, 255, 255];
  for (let step = 0; step < STEPS; step += 1) {
    const moved = mixed(colour, extreme, step / STEPS);
    if (least(moved) >= LEAST) return moved;
  }
  return extreme;
}

/** Return colour `index` of xterm's 256 colours as [red, green, blue]; `named` holds colours 0 to 15. */
function ofPalette(index, named) {
  if (index < 16) return named[index];
  if (index >= 232) return Array(3).fill(8 + (index - 232) * 10);
  const at = index - 16;
  return [CUBE[Math.floor(at / 36)], CUBE[Math.floor(at / 6) % 6], CUBE[at % 6]];
}

const ofColour = (colour, named) => (typeof colour === "number" ? ofPalette(colour, named) : colour);

let measured = null;

/** Return {papers, ink} by theme from the style sheet: line backgrounds and the text colour, as [red, green, blue]. */
function themes() {
  if (measured) return measured;
  const probe = document.createElement("span");
  document.body.append(probe);
  const read = (theme, name) => {
    probe.style.cssText = `color-scheme: ${theme}; color: var(${name})`;
    return getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  };
  measured = Object.fromEntries(THEMES.map((theme) => [theme, { papers: PAPERS.map((name) => read(theme, name)), ink: read(theme, "--ink") }]));
  probe.remove();
  return measured;
}

function inTheme({ fg, bg, dim, inverse }, theme) {
  const { papers, ink } = themes()[theme];
  const [text, ground] = inverse ? [bg ?? papers[0], fg ?? ink] : [fg, bg];
  if (ground === null) {
    const plain = text === null ? ink : ofColour(text, TEXTS[theme]);
    return { color: readable(dim ? mixed(plain, papers[0], DIMMED) : plain, papers), ground: null };
  }
  const under = ofColour(ground, GROUNDS);
  const plain = text === null ? ink : ofColour(text, GROUNDS);
  return { color: readable(dim ? mixed(plain, under, DIMMED) : plain, [under]), ground: under };
}

const css = (light, dark) => `light-dark(rgb(${light}), rgb(${dark}))`;
const known = new Map();

/** Return the {color, ground} of a style as CSS colours; null stands for the colour of the line. */
export function coloursOf(style) {
  const { fg, bg, dim, inverse } = style;
  if (fg === null && bg === null && !dim && !inverse) return { color: null, ground: null };
  const key = `${fg};${bg};${dim};${inverse}`;
  let found = known.get(key);
  if (!found) {
    const [light, dark] = THEMES.map((theme) => inTheme(style, theme));
    found = { color: css(light.color, dark.color), ground: light.ground && css(light.ground, dark.ground) };
    if (known.size > 5000) known.clear(); // with 24-bit colours, a log may have any number of styles
    known.set(key, found);
  }
  return found;
}
