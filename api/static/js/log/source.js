// Where the lines of a log come from: pages by absolute number, and a stream of new lines.
import { get, runPath, withQuery } from "../api.js";

const KEPT = 20_000;

/** The log of a run: any line can be asked for. */
export class RunLog {
  constructor(id) {
    this.id = id;
    this.raw = runPath(id, "log/raw");
  }

  /** {lines, firstAvailable, totalLines, finalized}; `from` negative: counted from the end. */
  page(from, limit, stream) {
    return get(runPath(this.id, "log"), { from, limit, stream });
  }

  /** The page that begins with the first line of that time (ISO) or later. */
  pageAt(at, limit) {
    return get(runPath(this.id, "log"), { at, limit });
  }

  /** How a redrawn line came to be. */
  async frames(n) {
    return (await get(runPath(this.id, `log/line/${n}/history`))).frames;
  }

  streamFrom(n) {
    return withQuery(runPath(this.id, "log/stream"), { from: n, replayLimit: 5000 });
  }

  keep() {}
}

/** The daemon's own log: there is only a stream of it, whose newest lines are kept here. */
export class DaemonLog {
  constructor() {
    this.raw = null;
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

  streamFrom(n) {
    return withQuery("api/daemon/log/stream", { from: this.lines.length ? n : -2000, replayLimit: 5000 });
  }

  keep(lines) {
    this.lines.push(...lines);
    if (this.lines.length > KEPT) this.lines.splice(0, this.lines.length - KEPT);
  }
}
