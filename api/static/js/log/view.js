// The rows of a log that are on the page: a window of at most a few thousand lines around what is seen, moved by pages as
// the reader scrolls, so that a log may have any length and lines any height. Nothing else of the log is held.
//
// Two states: following (the end is in the window, new lines are appended, the view stays at the end) and reading (the
// window stays where it is; new lines are only counted).
import { away } from "../seen.js";
import { gapRow, regionRow, rowOf, timeText } from "./rows.js";

const PAGE = 500;
const AT_ONCE = 10_000; // lines of one stream that are asked for at a time
const MOST = 2000; // rows on the page
const FOLLOWED = 500; // rows while the end is followed: each frame lays them out anew
const NEAR_PX = 1200; // how close to the window's edge the next page is asked for
const END_PX = 24;

export class LogView {
  /**
   * source: see source.js. scroll, rows, region: elements. look: see rows.js.
   * changed(): called when first, total, top, following, finished, or error has changed.
   */
  constructor({ source, scroll, rows, region, look, changed }) {
    Object.assign(this, { source, scroll, rows, region, look, changed });
    this.lines = [];
    this.first = 0;
    this.total = 0;
    this.finished = false;
    this.following = false;
    this.loaded = false;
    this.error = null;
    this.stream = "";
    this.noneBefore = false; // of this stream, before the window
    this.readTo = 0; // up to here there is none of this stream behind the window
    this.target = null;
    this.queue = [];
    this.behind = false; // the stream has left lines out
    this.drawn = new Map();
    this.frame = 0;
    this.loading = null;
    this.turn = 0;
    this.events = null;
    this.again = 0;
    this.onScroll = () => this.scrolled();
    scroll.addEventListener("scroll", this.onScroll, { passive: true });
    this.unwatch = away.subscribe(() => (away.value ? this.disconnect() : this.connect()));
  }

  /** Begin at the end, or at line `n`. */
  async open(n = null) {
    if (n === null) await this.toEnd();
    else await this.jump(n);
  }

  close() {
    this.closed = true;
    this.unwatch();
    this.disconnect();
    cancelAnimationFrame(this.frame);
    this.scroll.removeEventListener("scroll", this.onScroll);
  }

  // Loading. A later wish makes an earlier one void.

  async load(request, use) {
    const turn = ++this.turn;
    this.loading = turn;
    try {
      const page = await request();
      if (turn !== this.turn || this.closed) return false;
      this.first = page.firstAvailable;
      this.total = Math.max(this.total, page.totalLines);
      this.finished ||= page.finalized; // it may have ended since this page was made
      this.loaded = true;
      this.error = null;
      use(page.lines, page);
      this.connect();
      return true;
    } catch (error) {
      if (turn === this.turn && !this.closed) this.error = error;
      return false;
    } finally {
      if (this.loading === turn) this.loading = null;
      this.changed();
    }
  }

  /** Number of the line up to which the window has everything behind its first. */
  get end() {
    return Math.max((this.lines.at(-1)?.n ?? -1) + 1, this.readTo);
  }

  replace(lines, readTo = 0) {
    this.noneBefore = false;
    this.readTo = readTo;
    this.lines = [];
    this.rows.replaceChildren();
    this.append(lines);
  }

  toEnd() {
    this.target = null;
    return this.load(
      () => this.lastPage(),
      (lines, page) => {
        this.replace(lines, page.totalLines);
        this.following = true;
        this.stick();
        this.later();
      },
    );
  }

  /** The last lines; of one stream alone, the page may have to begin further back. */
  async lastPage() {
    for (let back = PAGE; ; back *= 8) {
      const page = await this.tail(-back, Infinity);
      if (!this.stream || page.lines.length >= PAGE || page.totalLines - back <= page.firstAvailable) return page;
    }
  }

  /** The last lines of those from `from` on that are before `end`. */
  async tail(from, end) {
    const limit = this.stream ? AT_ONCE : PAGE;
    let lines = [];
    for (let at = from; ; at = lines.at(-1).n + 1) {
      const page = await this.source.page(at, limit, this.stream || undefined);
      lines = [...lines, ...page.lines.filter((line) => line.n < end)].slice(-PAGE);
      if (!this.stream || page.lines.length < limit || page.lines.at(-1).n + 1 >= end) return { ...page, lines };
    }
  }

  /** Show line `n` in the middle, marked. */
  jump(n, { marked = true } = {}) {
    const from = Math.max(0, n - PAGE / 2);
    return this.load(
      () => this.source.page(from, PAGE, this.stream || undefined),
      (lines, page) => {
        this.following = false;
        this.target = marked ? n : null;
        this.replace(lines, lines.length < PAGE ? page.totalLines : 0);
        this.place(n);
      },
    );
  }

  /** Show what was printed at that time (ISO). */
  async jumpToTime(at) {
    const page = await this.source.pageAt(at, 1);
    await this.jump(page.lines[0]?.n ?? page.totalLines - 1);
  }

  place(n) {
    const row = this.rowAt(n);
    if (!row) return;
    this.scroll.scrollTop = row.offsetTop - this.scroll.clientHeight / 3;
    for (const old of this.rows.querySelectorAll(".target")) old.classList.remove("target");
    if (this.target !== null) row.classList.add("target");
  }

  rowAt(n) {
    const index = this.lines.findIndex((line) => line.n >= n);
    return this.rows.querySelector(`[data-n="${this.lines[index]?.n}"]`);
  }

  scrolled() {
    const { scrollTop, clientHeight, scrollHeight } = this.scroll;
    const atEnd = scrollHeight - scrollTop - clientHeight < END_PX;
    if (this.following && !atEnd && scrollTop < this.stuckAt - 1) this.following = false;
    else if (!this.following && atEnd && this.loaded && !this.loading && this.end >= this.total) {
      this.following = true;
    }
    if (!this.loading && !this.following && this.loaded) {
      if (scrollTop < NEAR_PX && this.lines[0]?.n > this.first && !this.noneBefore) this.loadBefore();
      else if (scrollHeight - scrollTop - clientHeight < NEAR_PX && this.lines.length && this.end < this.total) this.loadAfter();
    }
    this.changed();
  }

  loadAfter() {
    const from = this.end;
    return this.load(
      () => this.source.page(from, PAGE, this.stream || undefined),
      (lines, page) => {
        if (lines.length < PAGE) this.readTo = page.totalLines;
        this.append(lines.filter((line) => line.n >= from));
        this.trimTop();
      },
    );
  }

  loadBefore() {
    const end = this.lines[0].n;
    return this.load(
      () => this.pageBefore(end),
      (lines) => {
        this.noneBefore = !lines.length;
        this.prepend(lines);
      },
    );
  }

  async pageBefore(end) {
    for (let back = PAGE; ; back *= 8) {
      const from = Math.max(0, end - back);
      const page = await this.tail(from, end);
      if (page.lines.length || from <= page.firstAvailable) return page;
    }
  }

  // Rows.

  append(lines) {
    const fragment = document.createDocumentFragment();
    let before = this.lines.at(-1);
    for (const line of lines) {
      const missing = before && !this.stream ? line.n - before.n - 1 : 0;
      if (missing > 0) fragment.append(gapRow(missing, "were dropped: the log is full, or the disk is"));
      fragment.append(rowOf(line, before, this.look));
      before = line;
    }
    this.lines.push(...lines);
    this.rows.append(fragment);
    this.mark();
  }

  prepend(lines) {
    const fragment = document.createDocumentFragment();
    let before;
    for (const line of lines) {
      fragment.append(rowOf(line, before, this.look));
      before = line;
    }
    const height = this.rows.scrollHeight;
    const top = this.scroll.scrollTop;
    this.lines.unshift(...lines);
    this.rows.prepend(fragment);
    this.scroll.scrollTop = top + this.rows.scrollHeight - height;
    if (this.lines.length > MOST) {
      this.lines.length = MOST;
      this.readTo = 0;
      const kept = this.lines.at(-1).n;
      while (Number(this.rows.lastChild.dataset.n ?? -1) !== kept) this.rows.lastChild.remove();
    }
    this.mark();
  }

  trimTop() {
    const surplus = this.lines.length - (this.following ? FOLLOWED : MOST);
    if (surplus <= 0) return;
    const height = this.rows.scrollHeight;
    const top = this.scroll.scrollTop;
    const kept = this.lines[surplus].n;
    this.lines.splice(0, surplus);
    while (this.rows.firstChild && Number(this.rows.firstChild.dataset.n ?? -1) !== kept) this.rows.firstChild.remove();
    if (!this.following) this.scroll.scrollTop = top - (height - this.rows.scrollHeight);
  }

  mark() {
    if (this.target !== null) this.rows.querySelector(`[data-n="${this.target}"]`)?.classList.add("target");
  }

  stick() {
    this.scroll.scrollTop = this.scroll.scrollHeight;
    this.stuckAt = this.scroll.scrollTop;
  }

  /** Draw the rows anew, after `look` has changed. */
  redraw() {
    const top = this.topLine();
    const lines = this.lines;
    this.replace(lines);
    if (this.following) this.stick();
    else if (top !== null) this.scroll.scrollTop = this.rowAt(top)?.offsetTop ?? 0;
  }

  /** Only the times of the rows. */
  retime() {
    let before;
    for (const line of this.lines) {
      const cell = this.rows.querySelector(`[data-n="${line.n}"] .t`);
      if (cell) cell.textContent = timeText(line, before, this.look);
      before = line;
    }
  }

  /** Number of the first line that is seen; null when there is none. */
  topLine() {
    const top = this.scroll.scrollTop;
    let low = 0;
    let high = this.rows.children.length - 1;
    if (high < 0) return null;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.rows.children[middle].offsetTop <= top) low = middle;
      else high = middle - 1;
    }
    for (let row = this.rows.children[low]; row; row = row.nextElementSibling) if (row.dataset.n) return Number(row.dataset.n);
    return null;
  }

  /** Show only lines of that stream ("": all). */
  async only(stream) {
    const top = this.topLine();
    this.stream = stream;
    if (this.following || top === null) await this.toEnd();
    else await this.jump(top, { marked: false });
  }

  // What is new.

  disconnect() {
    this.events?.close();
    this.events = null;
    clearTimeout(this.again);
  }

  connect() {
    if (this.events || this.finished || this.closed || !this.loaded || away.value) return;
    const events = new EventSource(this.source.streamFrom(this.total));
    this.events = events;
    const on = (kind, use) => events.addEventListener(kind, (event) => use(JSON.parse(event.data)));
    on("line", (line) => this.heard(line));
    on("region", (region) => this.drew(region));
    on("rotated", ({ firstAvailable }) => {
      this.first = firstAvailable;
      this.later();
    });
    on("dropped", ({ after, count }) => {
      this.total = Math.max(this.total, after + 1 + count);
      this.behind = true;
      this.later();
    });
    on("done", () => {
      events.close();
      this.finished = true;
      this.drawn.clear();
      this.later();
    });
    // What is drawn now is told anew; what has settled meanwhile is not told of.
    events.onopen = () => {
      this.drawn.clear();
      this.later();
    };
    events.onerror = () => {
      if (events.readyState !== EventSource.CLOSED) return;
      this.events = null;
      this.again = setTimeout(() => this.connect(), 2000);
    };
  }

  heard(line) {
    this.source.keep([line]);
    this.total = Math.max(this.total, line.n + 1);
    if ((this.following || this.loading) && (!this.stream || line.stream === this.stream)) this.queue.push(line);
    // A hidden page paints nothing. What is left is more than the window holds, so it will stand there alone.
    if (this.queue.length > 2 * MOST) this.queue.splice(0, MOST - 1);
    this.later();
  }

  drew({ stream, rows }) {
    if (rows.length) this.drawn.set(stream, rows);
    else this.drawn.delete(stream);
    this.later();
  }

  later() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.paint());
  }

  paint() {
    this.frame = 0;
    if (this.following && !this.loading) {
      const lines = this.takeQueue();
      if (lines.length) this.append(lines);
      this.trimTop();
      this.drawRegion();
      this.stick();
      if (this.behind) {
        this.behind = false;
        this.toEnd();
      }
    } else this.drawRegion();
    this.changed();
  }

  /** What is to be appended; when that is more than fits into the window, its end alone. */
  takeQueue() {
    const last = this.lines.at(-1)?.n ?? -1;
    const lines = this.queue.filter((line) => line.n > last);
    this.queue = [];
    if (lines.length <= FOLLOWED) return lines;
    this.lines = [];
    this.rows.replaceChildren();
    return lines.slice(-FOLLOWED);
  }

  drawRegion() {
    const rows = [];
    for (const [stream, texts] of this.drawn) rows.push(...texts.map((text) => regionRow(stream, text)));
    this.region.replaceChildren(...rows);
    this.region.hidden = !rows.length || (this.lines.at(-1)?.n ?? -1) + 1 < this.total - this.queue.length;
  }
}
