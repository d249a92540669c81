// The daemon's event stream, and whether it is connected.
import { signal } from "../vendor/preact.js";
import { whenUnavailable } from "./api.js";
import { away, listens } from "./seen.js";
import { currentMs, learnTime } from "./server_time.js";
import { daemon, loadAll, loadDaemon, loadUnits, loadUnread, sample, throttle, unread } from "./state.js";

const KINDS = [
  "run.created",
  "run.started",
  "run.updated",
  "run.ended",
  "run.deleted",
  "run.restored",
  "flow.step",
  "service.state",
  "service.flapping",
  "config.reloaded",
  "config.stale",
  "notification.created",
  "notification.updated",
  "notification.unreadCountChanged",
  "system",
  "ping",
  "dropped",
];
const SILENT_MS = 10_000; // the daemon sends a ping every 5 s
const QUIET_MS = 12_000; // the scheduler measures the host every 5 s
const AGAIN_MS = 2000;
const REMEMBERED_MS = 3000;
const UNOPENED_MS = 1000; // a proxy may buffer the stream; after this time, load the state without it
const UNTOLD_MS = 30_000; // no event reports that schedules were paused or resumed

/** The state of the event stream: "connecting", "live" or "lost". */
export const connection = signal("connecting");
/** When the stream was lost, in milliseconds since the epoch; null if it was not. */
export const lostSince = signal(null);

const absent = () => away.value && !listens.value;

const listeners = new Set();
let source = null;
let heardAt = 0;
let sampledAt = 0;
let wanted = false;
let unopened = null;

/** Call `listener(kind, body)` for every event. Return a function that removes the listener. */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const unitsSoon = throttle(loadUnits, 1000);
const daemonSoon = throttle(loadDaemon, 1000);
const unreadSoon = throttle(loadUnread, 1000);

function lost() {
  if (connection.value !== "lost") lostSince.value = currentMs();
  connection.value = "lost";
}

function heard(kind, event) {
  heardAt = Date.now();
  const body = event.data ? JSON.parse(event.data) : {};
  if (kind === "ping") learnTime(body.at);
  if (kind === "system") {
    sampledAt = heardAt;
    sample.value = body;
  }
  if (kind === "notification.unreadCountChanged") unread.value = body.count;
  else if (kind.startsWith("notification.")) unreadSoon();
  else if (kind.startsWith("run.") || kind.startsWith("service.")) unitsSoon();
  else if (kind.startsWith("config.")) {
    // The API caches the scheduler's state for a moment; the event is newer.
    if (daemon.value) daemon.value = { ...daemon.value, configStale: kind === "config.stale" };
    unitsSoon();
    setTimeout(daemonSoon, REMEMBERED_MS);
  } else if (kind === "dropped") {
    unitsSoon();
    daemonSoon();
  }
  for (const listener of listeners) listener(kind, body);
}

function open() {
  source?.close();
  source = null;
  if (absent()) return;
  const mine = new EventSource("api/events/stream");
  source = mine;
  heardAt = Date.now();
  mine.onopen = () => {
    clearTimeout(unopened);
    heardAt = sampledAt = Date.now();
    connection.value = "live";
    lostSince.value = null;
    // Changes before the stream opened sent no event, so load everything.
    loadAll();
    for (const listener of listeners) listener("resumed", {});
  };
  mine.onerror = () => {
    lost();
    if (mine.readyState !== EventSource.CLOSED) return;
    loadUnits(); // a response with status 401 reveals that the session has ended; EventSource hides the status
    setTimeout(() => wanted && source === mine && open(), AGAIN_MS);
  };
  for (const kind of KINDS) mine.addEventListener(kind, (event) => heard(kind, event));
}

/** Open the event stream. Load the shared state once the stream is open, so that no change is missed. */
export function connect() {
  wanted = true;
  connection.value = "connecting";
  open();
  unopened = setTimeout(loadAll, absent() ? 0 : UNOPENED_MS);
}

/** Close the event stream. */
export function disconnect() {
  wanted = false;
  clearTimeout(unopened);
  source?.close();
  source = null;
}

setInterval(() => {
  if (!wanted || absent() || !source || Date.now() - heardAt <= SILENT_MS) return;
  lost();
  open();
}, 1000);

setInterval(() => {
  if (!wanted || absent()) return;
  // No event reports that the scheduler has stopped or returned, so poll.
  if (daemon.value && (!daemon.value.schedulerActive || Date.now() - sampledAt > QUIET_MS)) daemonSoon();
}, 3000);

setInterval(() => wanted && connection.value === "live" && (unitsSoon(), daemonSoon()), UNTOLD_MS);

// A daemon on the same machine is reachable without a network, so try to connect in both cases.
for (const kind of ["online", "offline"]) addEventListener(kind, () => wanted && open());

whenUnavailable(daemonSoon);
listens.subscribe(() => wanted && away.value && open());

away.subscribe(() => {
  if (!wanted || (source && listens.value)) return;
  connection.value = "connecting";
  open();
});
