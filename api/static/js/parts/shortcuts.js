// The dashboard's global keyboard shortcuts, and the dialog that lists all shortcuts.
import { html } from "../../vendor/preact.js";
import { go, link } from "../routes.js";
import { isOpen, show } from "./dialog.js";
import { openPalette } from "./palette.js";

const GO = { o: link(), r: link("runs"), t: link("timeline"), n: link("notifications"), s: link("system"), d: link("daemon"), a: link("audit") };
const ROWS = "main :is(tbody tr:not(.group), .lines > li, .attention li, .hits > li)";
const STEPS = { j: 1, k: -1 };
const LIST = [
  ["j, k", "In a list: next and previous row"],
  ["Enter, x", "In a list: open or select the row"],
  ["r, s", "In a list: run or restart, stop"],
  ["Ctrl K or /", "Find tasks, runs, pages and commands"],
  ["g then o", "Overview"],
  ["g then r", "Runs"],
  ["g then t", "Timeline"],
  ["g then n", "Notifications"],
  ["g then s", "System"],
  ["g then d", "Daemon"],
  ["g then a", "Audit"],
  ["f", "In a log: follow the end"],
  ["n, Shift N", "In a log: next and previous hit"],
  ["Shift F", "In a log: full screen"],
  ["Shift click", "On a line number: select the lines up to it"],
  ["Home, End", "In a log: first and last line"],
  ["Page up, Page down", "In a log: one screen up or down"],
  ["Arrows", "In a menu, the timeline, the last runs, the calendar, or the bar beside a log: next item"],
  ["Shift arrows, +, −", "In the timeline: move the window, zoom"],
  ["?", "This help"],
  ["Escape", "Close dialog or menu"],
];
const CHORD_MS = 1200;
let chord = 0;

export function showShortcuts() {
  const content = () => html`<div class="inside">
    <h2>Keyboard shortcuts</h2>
    <table><tbody>${LIST.map(([keys, text]) => html`<tr><td><kbd>${keys}</kbd></td><td>${text}</td></tr>`)}</tbody></table>
    <form method="dialog" class="buttons"><button autofocus>Close</button></form>
  </div>`;
  show(content, { label: "Keyboard shortcuts" });
}

const rowOf = (element) => element.closest?.(ROWS);

/** Move the focus to the next or previous row of the lists on the page, or to the first one. */
function step(by) {
  const rows = [...document.querySelectorAll(ROWS)].filter((row) => row.checkVisibility() && row.querySelector("a[href], button"));
  const at = rows.indexOf(rowOf(document.activeElement));
  const row = rows[at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + by))];
  row?.querySelector("a[href], button").focus();
  row?.scrollIntoView({ block: "nearest" });
}

/** Return the onKeyDown handler of a row. does: {r, s}, what each key does while the focus is in the row. */
export const rowKeys = (does) => (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || Date.now() - chord < CHORD_MS || !does[event.key]) return;
  event.preventDefault();
  does[event.key]();
};

function isTyping(target) {
  return target.matches?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
}

export function listenToKeys() {
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      openPalette();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || isOpen()) return;
    if (event.key === "/") {
      event.preventDefault();
      openPalette();
    } else if (event.key === "?") showShortcuts();
    else if (event.key === "g") chord = Date.now();
    else if (STEPS[event.key]) step(STEPS[event.key]);
    else if (event.key === "x") rowOf(event.target)?.querySelector("input[type=checkbox]")?.click();
    else if (Date.now() - chord < CHORD_MS && GO[event.key]) {
      chord = 0;
      go(GO[event.key]);
    }
  });
}
