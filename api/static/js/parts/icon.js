// The icons of the dashboard: paths drawn as lines on a 24 × 24 grid.
import { html } from "../../vendor/preact.js";

/** The URL of Ringward's icon, from the page's <link>. */
export const ICON = document.querySelector('link[rel="icon"]').href;

const PATHS = {
  home: "M3 11l9-8 9 8M5 9.5V20h5v-6h4v6h5V9.5",
  list: "M8 6h13M8 12h13M8 18h13M3.5 6h.01M3.5 12h.01M3.5 18h.01",
  bars: "M4 6h9M8 12h10M6 18h5M17 18h3",
  columns: "M4 5h16v14H4zM12 5v14",
  calendar: "M4 6h16v14H4zM4 10h16M8 3v5M16 3v5",
  gauge: "M4 20V10M10 20V4M16 20v-7M21 20H3",
  pulse: "M3 12h4l3-8 4 16 3-8h4",
  bell: "M6 16V10a6 6 0 0112 0v6l2 2H4zM10 21h4",
  file: "M6 3h8l5 5v13H6zM14 3v5h5M9 13h6M9 17h6",
  shield: "M12 3l8 3v6c0 5-3.5 8-8 9-4.5-1-8-4-8-9V6z",
  user: "M12 4a4 4 0 100 8 4 4 0 000-8zM4 21c0-4.5 3.5-7 8-7s8 2.5 8 7",
  key: "M7.5 11a4.5 4.5 0 100 9 4.5 4.5 0 000-9zM11 12.5L20 3.5M16 7.5l3 3M13.5 10l2 2",
  search: "M11 4a7 7 0 100 14 7 7 0 000-14zM16 16l5 5",
  check: "M5 13l4.5 4.5L19 7",
  cross: "M6 6l12 12M18 6L6 18",
  alert: "M12 4l9 16H3zM12 10v4M12 17.2v.01",
  play: "M8 5l11 7-11 7z",
  square: "M6 6h12v12H6z",
  pause: "M8 5v14M16 5v14",
  clock: "M12 4a8 8 0 100 16 8 8 0 000-16zM12 8v4l3 2",
  skip: "M5 5l9 7-9 7zM18 5v14",
  redo: "M20 12a8 8 0 11-2.5-5.8M20 4v5h-5",
  trash: "M4 7h16M9 7V4h6v3M6.5 7l1 13h9l1-13",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  open: "M6 9l6 6 6-6",
  closed: "M9 6l6 6-6 6",
  back: "M15 6l-6 6 6 6",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  down: "M12 4v16M5 13l7 7 7-7",
  up: "M12 20V4M5 11l7-7 7 7",
  whole: "M4 9V4h5M15 4h5v5M20 15v5h-5M9 20H4v-5",
  filter: "M4 5h16l-6 8v6l-4-2v-4z",
  save: "M12 4v11M7 11l5 5 5-5M4 20h16",
  wrap: "M3 6h18M3 12h14a3.5 3.5 0 010 7h-4M15 16l-3 3 3 3M3 18h5",
  sun: "M12 8a4 4 0 100 8 4 4 0 000-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5",
  moon: "M20 14.5A8.5 8.5 0 119.5 4a7 7 0 0010.5 10.5z",
  contrast: "M12 4a8 8 0 100 16 8 8 0 000-16zM12 4v16",
  out: "M14 4h5v16h-5M4 12h11M11 8l4 4-4 4",
  link: "M10 14l4-4M9 9l-3 3a4 4 0 006 6l2-2M15 15l3-3a4 4 0 00-6-6l-2 2",
};

/** A decorative icon, hidden from screen readers. The text beside it or the label of its button gives its meaning. */
export function Icon({ name }) {
  return html`<svg class=${`icon icon-${name}`} viewBox="0 0 24 24" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}
