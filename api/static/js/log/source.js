// Sources of log lines: pages by absolute line number, and a stream of new lines.
import { get, runPath, taskPath, withQuery } from "../api.js";
import { count } from "../format.js";
import { ofReason } from "../states.js";

const KEPT = 20_000;

/** The log of a run; pages of all kept lines can be loaded. */
export class RunLog {
  constructor(id) {
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
class StreamedLog {
  constructor() {
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

/**
 * The lines of all runs of a task or service, ordered by time. `n` numbers the lines in order of arrival; `name` shows
 * the instance and the line's number in its run.
 */
export class UnitLog extends StreamedLog {
  constructor(name) {
    super();
    this.name = name;
    this.runs = new Map();
    this.next = 0;
    this.lastTs = null;
    this.read = new Map(); // last received line number by run ID: a stream that reconnects repeats lines
  }

  streamFrom() {
    this.runs.clear();
    const since = this.lastTs === null ? undefined : new Date(this.lastTs).toISOString();
    return withQuery(taskPath(this.name, "log/stream"), { since, from: since ? undefined : -2000 });
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
    return [this.numbered({ ...line, runId: run.runId, runLine: line.n, name: `[${run.instanceIndex}] ${line.n + 1}` })];
  }

  note(r, text) {
    const run = this.runs.get(r);
    return this.numbered({ ts: this.lastTs ?? Date.now(), stream: "system", text, name: `[${run?.instanceIndex ?? "?"}]` });
  }

  numbered(line) {
    return { ...line, n: this.next++ };
  }
}
