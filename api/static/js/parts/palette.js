// The command palette: one field that finds tasks, services, runs, pages and actions.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import * as actions from "../actions.js";
import { get } from "../api.js";
import { moment } from "../format.js";
import { go, link } from "../routes.js";
import { instanceOf, isAdmin, mayOperate, units } from "../state.js";
import { ofRun, ofUnit } from "../states.js";
import { close, show } from "./dialog.js";
import { Icon } from "./icon.js";

const SHOWN = 12;
const PAGES = [
  ["Overview", link(), "home"],
  ["Runs", link("runs"), "list"],
  ["Failed runs", link("runs", { status: "failed,timeout,crashed,start_failed,log_overflow" }), "list"],
  ["Running now", link("runs", { status: "running,pending" }), "list"],
  ["Timeline", link("timeline"), "bars"],
  ["Logs of several tasks and services", link("logs"), "columns"],
  ["Search all logs", link("search"), "search"],
  ["Deleted runs", link("deleted"), "trash"],
  ["Notifications", link("notifications"), "bell"],
  ["Notifiers", link("notifiers"), "bell"],
  ["Calendar of the coming two weeks", link("calendar"), "calendar"],
  ["Usage", link("usage"), "gauge"],
  ["System", link("system"), "pulse"],
  ["Daemon and log", link("daemon"), "file"],
  ["Audit", link("audit"), "shield"],
  ["Accounts", link("accounts"), "user"],
  ["Tokens", link("tokens"), "key"],
];

export const openPalette = () => show(() => html`<${Palette} />`, { className: "palette", label: "Find" });

const open = (address) => () => go(address);

/** Return how well `text` matches the typed words. The result is 0 if it lacks any of them. */
function fit(text, words) {
  const low = text.toLowerCase();
  let score = 0;
  for (const word of words) {
    const at = low.indexOf(word);
    if (at < 0) return 0;
    score += at === 0 ? 3 : /[\W_]/.test(low[at - 1]) ? 2 : 1;
  }
  return score / Math.max(1, words.length);
}

function entries() {
  const found = PAGES.map(([label, address, icon]) => ({ label, icon, kind: "page", run: open(address) }));
  for (const unit of units.value ?? []) {
    const { name } = unit;
    const service = unit.kind === "service";
    found.push({ label: name, icon: ofUnit(unit).icon, kind: unit.kind, run: open(link("task", name)), first: 0.5 });
    if (!mayOperate.value) continue;
    const add = (verb, run, icon) => found.push({ label: `${verb} ${name}`, icon, kind: "do", run });
    if (!service) {
      add("Run", () => actions.trigger(unit), "play");
      if (unit.paused) add("Resume", () => actions.resumeTask(name), "play");
      else if (unit.nextRunAt) add("Pause", () => actions.pauseTask(name), "pause");
    } else {
      add("Restart", () => actions.restartService(name), "redo");
      if (unit.state === "stopped") add("Start", () => actions.startService(unit), "play");
      else add("Stop", () => actions.stopService(name), "square");
    }
  }
  if (isAdmin.value) found.push({ label: "Reload the configuration", icon: "redo", kind: "do", run: open(link("daemon", { plan: 1 })) });
  return found;
}

function Palette() {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [runs, setRuns] = useState([]);
  const list = useRef(null);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  useEffect(() => {
    setAt(0);
    setRuns([]);
    if (text.trim().length < 3) return undefined;
    const abort = new AbortController();
    const timer = setTimeout(() => {
      get("api/runs", { search: text.trim(), naming: "camel", limit: 5 }, abort.signal)
        .then((page) => setRuns(page.runs))
        .catch(() => {}); // tasks and pages are found without this request
    }, 150);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text]);
  const found = entries()
    .map((entry) => ({ ...entry, score: words.length ? fit(entry.label, words) : 1 }))
    .filter((entry) => entry.score)
    .sort((a, b) => b.score + (b.first ?? 0) - a.score - (a.first ?? 0))
    .slice(0, SHOWN);
  for (const run of runs) {
    found.push({ label: `${run.taskName}${instanceOf(run)}, ${moment(run.startedAt ?? run.createdAt)}`, title: run.id, icon: ofRun(run).icon, kind: `run, ${ofRun(run).word}`, run: open(link("run", run.id)) });
  }
  const choose = (entry) => {
    close();
    entry?.run();
  };
  const keys = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) {
      event.preventDefault();
      const next = (at + step + found.length) % found.length;
      setAt(next);
      list.current.children[next]?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      choose(found[at]);
    }
  };
  return html`<div>
    <input
      type="text"
      role="combobox"
      aria-label="Find tasks, runs, pages and commands"
      aria-expanded="true"
      aria-controls="palette-list"
      aria-activedescendant=${found.length ? `palette-${at}` : undefined}
      placeholder="Task, run id, page or command"
      autofocus
      autocomplete="off"
      spellcheck=${false}
      value=${text}
      onInput=${(event) => setText(event.target.value)}
      onKeyDown=${keys}
    />
    <ul ref=${list} id="palette-list" role="listbox" aria-label="Found">
      ${found.map(
        (entry, index) => html`<li
          id=${`palette-${index}`}
          role="option"
          aria-selected=${index === at}
          title=${entry.title}
          onPointerMove=${() => setAt(index)}
          onClick=${() => choose(entry)}
        >
          <${Icon} name=${entry.icon} /><span class="clip">${entry.label}</span><span class="soft small">${entry.kind}</span>
        </li>`,
      )}
    </ul>
    ${!found.length && html`<p class="empty">No matches.</p>`}
  </div>`;
}
