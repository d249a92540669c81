// Sources of log lines: pages by absolute line number, and a stream of new lines.
import { get, runPath, withQuery } from "../api.js";
import { count } from "../format.js";
import { instanceOf } from "../state.js";
import { ofReason } from "../states.js";
import { EventStream } from "./stream.js";

const KEPT = 20_000;

/** A log whose new lines arrive as events. */
class Log {
  /** Open the stream of the lines from `n` on. handlers: see EventStream. Return an object with `close()`. */
  open(n, handlers) {
    return new EventStream(this.streamFrom(n), handlers);
  }
}

/** The log of a run; pages of all kept lines can be loaded. */
export class RunLog extends Log {
  constructor(id) {
    super();
    this.id = id;
    this.raw = runPath(id, "log/raw");
    this.ahead = null;
    this.partial = false;
  }

  /** Request the first page before the run itself has loaded, which saves a round trip on slow links. */
  askAhead(from, limit) {
    this.ahead = { from, limit, page: get(runPath(this.id, "log"), { from, limit }) };
    this.ahead.page.catch(() => {}); // the view that uses the page reports the error
  }

  /** Return {lines, firstAvailable, totalLines, finalized}. A negative `from` counts from the end. */
  page(from, limit, stream) {
    const { ahead } = this;
    this.ahead = null;
    if (ahead?.from === from && ahead.limit === limit && !stream) return ahead.page;
    return get(runPath(this.id, "log"), { from, limit, stream });
  }

  /** Return the page that begins with the first line at or after a time (ISO 8601). */
  pageAt(at, limit) {
    return get(runPath(this.id, "log"), { at, limit });
  }

  /** Return the frames of redrawn line `n`, each a list of row texts. */
  async frames(n) {
    return (await get(runPath(this.id, `log/line/${n}/history`))).frames;
  }

  streamFrom(n) {
    return withQuery(runPath(this.id, "log/stream"), { from: n, replayLimit: 5000 });
  }

  keep() {}
}

/** A log that is only available as a stream; this object keeps its newest lines. */
class StreamedLog extends Log {
  constructor() {
    super();
    this.raw = null;
    this.partial = true;
    this.lines = [];
  }

  async page(from, limit, stream) {
    const lines = stream ? this.lines.filter((line) => line.stream === stream) : this.lines;
    const first = this.lines[0]?.n ?? 0;
    const total = (this.lines.at(-1)?.n ?? -1) + 1;
    const begin = from < 0 ? Math.max(first, total + from) : from;
    return {
      lines: lines.filter((line) => line.n >= begin).slice(0, limit),
      firstAvailable: first,
      totalLines: total,
      finalized: false,
    };
  }

  async pageAt(at, limit) {
    const page = await this.page(0, KEPT);
    const from = Date.parse(at);
    return { ...page, lines: page.lines.filter((line) => line.ts >= from).slice(0, limit) };
  }

  keep(lines) {
    this.lines.push(...lines);
    if (this.lines.length > KEPT) this.lines.splice(0, this.lines.length - KEPT);
  }
}

const STAMP = /^\d{4}-\d\d-\d\dT[\d:.]+Z /;

/** The daemon's own log. Its lines begin with their time, which the view shows beside them. */
export class DaemonLog extends StreamedLog {
  translate(kind, bodies) {
    return [kind, kind === "line" ? bodies.map((line) => ({ ...line, text: line.text.replace(STAMP, "") })) : bodies];
  }

  streamFrom(n) {
    return withQuery("api/daemon/log/stream", { from: this.lines.length ? n : -2000, replayLimit: 5000 });
  }
}

/** Colours of the names of units; css/log.css has as many. */
const COLOURS = 8;

/**
 * The lines of all runs of one or more tasks and services, ordered by time. `n` numbers the lines in order of arrival;
 * `name` shows the instance and the line's number in its run, or with several units that of the unit.
 */
export class UnitLog extends StreamedLog {
  /** path: the stream in the API. query: its parameters. named: whether lines show the names of their units. */
  constructor(path, query = {}, named = false) {
    super();
    Object.assign(this, { path, query, named });
    this.colours = new Map(); // by name of the unit
    this.runs = new Map();
    this.next = 0;
    this.lastTs = null;
    this.read = new Map(); // last received line number by run ID: a stream that reconnects repeats lines
  }

  streamFrom() {
    this.runs.clear();
    const since = this.lastTs === null ? undefined : new Date(this.lastTs).toISOString();
    return withQuery(this.path, { ...this.query, since, from: since ? undefined : -2000 });
  }

  lineAt(n) {
    return this.lines[n - (this.lines[0]?.n ?? 0)];
  }

  /** Translate events of this stream to the kinds that LogView handles; return [kind, bodies]. */
  translate(kind, bodies) {
    if (kind === "run") for (const run of bodies) this.runs.set(run.r, run);
    if (kind === "lines") return ["line", bodies.flat().flatMap((line) => this.known(line))];
    if (kind === "gap") return ["line", bodies.map(({ r, count: lost }) => this.note(r, `${count(lost, "line")} not kept`))];
    if (kind === "end") return ["line", bodies.map(({ r, endReason, exitCode }) => this.note(r, `${ofReason(endReason).word}${exitCode >= 0 ? ` (exit code ${exitCode})` : ""}`))];
    return ["none", []];
  }

  known(line) {
    const run = this.runs.get(line.r);
    if (!run || line.n <= (this.read.get(run.runId) ?? -1)) return [];
    this.read.set(run.runId, line.n);
    this.lastTs = line.ts;
    return [this.numbered({ ...line, ...this.label(run, line.n + 1), runId: run.runId, runLine: line.n })];
  }

  /** Return what a row shows before a line of a run: {name, colour}. */
  label(run, number = "") {
    if (!this.named) return { name: `[${run?.instanceIndex ?? "?"}] ${number}` };
    const name = run?.taskName ?? "?";
    if (!this.colours.has(name)) this.colours.set(name, this.colours.size % COLOURS);
    return { name: `${name}${instanceOf(run ?? {})}`, colour: this.colours.get(name) };
  }

  note(r, text) {
    const run = this.runs.get(r);
    return this.numbered({ ts: this.lastTs ?? Date.now(), stream: "system", text, ...this.label(run) });
  }

  numbered(line) {
    return { ...line, n: this.next++ };
  }
}

/** The log of one of several units that share a stream. */
class PartLog extends UnitLog {
  constructor(whole, name) {
    super("");
    Object.assign(this, { whole, name });
  }

  label(run, number = "") {
    return { name: `${run ? instanceOf(run) : ""} ${number}`.trim() };
  }

  open(_n, handlers) {
    return this.whole.join(this.name, handlers);
  }
}

/** The logs of several units, each of them a log of its own; one stream brings them all. */
export class UnitLogs {
  constructor(names) {
    this.parts = new Map(names.map((name) => [name, new PartLog(this, name)]));
    this.readers = new Map(); // handlers by name of the unit
    this.units = new Map(); // names by number of the run in the stream
    this.events = null;
    this.live = false;
  }

  join(name, handlers) {
    this.readers.set(name, handlers);
    if (this.live) handlers.opened();
    this.events ??= this.connect();
    return { close: () => this.leave(name) };
  }

  leave(name) {
    this.readers.delete(name);
    if (this.readers.size) return;
    this.events?.close();
    this.events = null;
    this.live = false;
  }

  connect() {
    const parts = [...this.parts.values()];
    const lastTs = Math.max(...parts.map((part) => part.lastTs ?? 0));
    for (const part of parts) part.runs.clear();
    this.units.clear();
    const since = lastTs ? new Date(lastTs).toISOString() : undefined;
    const address = withQuery("api/logs/stream", { task: [...this.parts.keys()].join(), since, from: since ? undefined : -4000 });
    return new EventStream(address, {
      opened: () => {
        this.live = true;
        for (const one of this.readers.values()) one.opened();
      },
      heard: (kind, bodies) => this.heard(kind, bodies),
      lost: () => {
        const readers = [...this.readers.values()];
        this.readers.clear();
        this.events = null;
        this.live = false;
        for (const one of readers) one.lost();
      },
    });
  }

  heard(kind, bodies) {
    const byUnit = new Map();
    for (const body of kind === "lines" ? bodies.flat() : bodies) {
      if (kind === "run") this.units.set(body.r, body.taskName);
      const name = this.units.get(body.r);
      if (!byUnit.has(name)) byUnit.set(name, []);
      byUnit.get(name).push(body);
    }
    for (const [name, some] of byUnit) this.readers.get(name)?.heard(kind, some);
  }
}
