// The dashboard's global keyboard shortcuts, and the dialog that lists all shortcuts.
import { html } from "../../vendor/preact.js";
import { go, link } from "../routes.js";
import { isOpen, show } from "./dialog.js";
import { openPalette } from "./palette.js";

const GO = { o: link(), r: link("runs"), t: link("timeline"), n: link("notifications"), s: link("system"), d: link("daemon"), a: link("audit") };
const LIST = [
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

function isTyping(target) {
  return target.matches?.("input, textarea, select, [contenteditable]");
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
    else if (Date.now() - chord < CHORD_MS && GO[event.key]) {
      chord = 0;
      go(GO[event.key]);
    }
  });
}
