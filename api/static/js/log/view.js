// Shows a log through a window of at most a few thousand lines around the visible part. Pages load as the reader
// scrolls, so a log may have any length and lines any height. The rest of the log is not in memory.
//
// The view is in one of two states:
// - following: the window includes the end; the view appends new lines and stays at the end.
// - reading: the window stays where it is, and the view only counts new lines.
//
// While following, the view draws at most 30 times a second. Lines of a fast log that would scroll past between two
// drawings get no row; they load when the reader scrolls back.
import { away } from "../seen.js";
import { throttle } from "../state.js";
import { plain } from "./escapes.js";
import { isAtLeast, placeInTrace } from "./levels.js";
import { regionRows, textOf } from "./rows.js";
import { LineWindow } from "./window.js";

const PAGE = 500;
const AT_ONCE = 10_000; // lines that a filter requests at a time
const LOOK = 100_000; // lines that a filter reads before it stops and offers to continue
const MOST = 2000; // most rows on the page
const FOLLOWED = 100; // most rows while following: two screens, since the browser lays all of them out at each drawing
const NEAR_PX = 1200; // distance from the window's edge at which the next page loads
const END_PX = 24;
const PACE_MS = 33; // between two drawings of new lines
const TOLD_MS = 100; // between two calls of `changed` for new lines
const AGAIN_MS = 1000;
const RELEASED = ["pointerup", "pointercancel"];

/** Return [from, limit] of the first page of an unfiltered view. range: the lines to begin at, or null for the end. */
export const firstPage = (range) => [range === null ? -PAGE : Math.max(0, range[0] - PAGE / 2), PAGE];

export class LogView {
  /**
   * source: the lines; see source.js. scroll, rows, region: elements. look: see `fillRow` in rows.js.
   * changed(): called when the first visible line, first, total, following, finished, live or error changes.
   */
  constructor({ source, scroll, rows, region, look, changed }) {
    Object.assign(this, { source, scroll, rows, region, look, changed });
    this.window = new LineWindow(rows, look);
    this.first = 0;
    this.total = 0;
    this.finished = false;
    this.following = false;
    this.loaded = false;
    this.error = null;
    this.stream = "";
    this.asked = undefined; // the previous line that `wanted` checked
    this.keep = null; // (line) => whether the filter keeps it; null: it keeps all lines
    this.noneBefore = false; // the last load before the window found no lines
    this.waitsAfter = false; // the filter stopped after the window without finding a line
    this.lookedFrom = 0; // a filter has read every line from this number to the window
    this.looked = 0; // lines that the filter has read in this load
    this.most = LOOK; // lines that the filter may read in one load
    this.readTo = 0; // after the window, no line below this number passes the filter
    this.seenTo = 0; // every line below this number was there when the reader stopped following, or has been visible
    this.queue = [];
    this.behind = false; // the stream has dropped lines
    this.held = false; // another log leads: reaching the end does not make this one follow it
    this.drawn = new Map(); // rows of the region that each stream is redrawing
    this.redrawn = false; // whether `drawn` has changed since the last drawing
    this.full = false;
    this.frame = 0;
    this.pause = 0;
    this.paintedAt = 0;
    this.loading = null;
    this.turn = 0;
    this.events = null;
    this.live = false; // whether the stream is open and delivers new lines
    this.again = 0;
    this.tell = throttle(() => this.closed || changed(), TOLD_MS);
    this.onScroll = () => this.scrolled();
    scroll.addEventListener("scroll", this.onScroll, { passive: true });
    // Pressing a row stops following, so that new lines do not move the text while the reader selects it.
    this.pressed = false;
    this.onPress = (event) => {
      this.pressed = event.button === 0;
      this.hold();
    };
    this.onRelease = () => (this.pressed = false);
    rows.addEventListener("pointerdown", this.onPress, { passive: true });
    for (const kind of RELEASED) document.addEventListener(kind, this.onRelease);
    this.onCopy = (event) => this.copied(event);
    document.addEventListener("copy", this.onCopy);
    this.unwatch = away.subscribe(() => (away.value ? this.disconnect() : this.connect()));
  }

  /** Load the end of the log, or a range of lines, [first, last]. */
  async open(range = null) {
    if (range === null) await this.toEnd();
    else await this.jump(range[0], { last: range[1] });
  }

  /** Mark a range of lines, [first, last], without scrolling to it. */
  mark(range) {
    this.following = false;
    this.window.target = range;
    const { scrollTop } = this.scroll;
    this.window.draw(this.lines);
    this.scroll.scrollTop = scrollTop;
    this.changed();
  }

  /** Whether a filter is active. */
  get some() {
    return this.stream !== "" || this.keep !== null;
  }

  /** Whether a line passes the filter. Call it in line order: stack traces depend on the previous line. */
  wanted(line) {
    placeInTrace(line, this.asked);
    this.asked = line;
    return (!this.stream || line.stream === this.stream) && (!this.keep || this.keep(line));
  }

  close() {
    this.closed = true;
    this.unwatch();
    this.disconnect();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.pause);
    this.scroll.removeEventListener("scroll", this.onScroll);
    this.rows.removeEventListener("pointerdown", this.onPress);
    for (const kind of RELEASED) document.removeEventListener(kind, this.onRelease);
    document.removeEventListener("copy", this.onCopy);
  }

  /** Stop following until the reader returns to the end. */
  hold() {
    if (!this.following || this.finished) return;
    this.following = false;
    this.changed();
  }

  /** The selected Range within the rows, or null. */
  get selection() {
    const selection = getSelection();
    const some = !selection.isCollapsed && selection.rangeCount && this.rows.contains(selection.getRangeAt(0).commonAncestorContainer);
    return some ? selection.getRangeAt(0) : null;
  }

  /** Whether the reader has selected rows, or presses one to select some. */
  get selecting() {
    return this.pressed || this.selection !== null;
  }

  copied(event) {
    const range = this.selection;
    if (!range) return;
    event.clipboardData.setData("text/plain", textOf(this.rows, range));
    event.preventDefault();
  }

  // Loading. Each load cancels the previous one.

  async load(request, use) {
    const turn = ++this.turn;
    this.loading = turn;
    this.looked = 0;
    try {
      const page = await request();
      if (turn !== this.turn || this.closed) return false;
      this.first = page.firstAvailable;
      this.total = Math.max(this.total, page.totalLines);
      this.finished ||= page.finalized; // the stream may have reported the end after the server made this page
      this.loaded = true;
      this.error = null;
      use(page.lines, page);
      this.fit();
      this.connect();
      return true;
    } catch (error) {
      if (turn === this.turn && !this.closed) this.error = error;
      return false;
    } finally {
      if (this.loading === turn) {
        this.loading = null;
        this.most = LOOK;
      }
      this.changed();
    }
  }

  get target() {
    return this.window.target;
  }

  get lines() {
    return this.window.lines;
  }

  /** From its first line up to this number (exclusive), the window has every line that passes the filter. */
  get end() {
    return Math.max(this.window.last + 1, this.readTo);
  }

  /** The number of lines that are new since the reader stopped following, and that have not been visible. */
  get unseen() {
    return this.following ? 0 : Math.max(0, this.total - this.seenTo);
  }

  replace(lines, readTo = 0, styles = undefined) {
    this.noneBefore = false;
    this.waitsAfter = false;
    this.readTo = readTo;
    this.window.some = this.some;
    this.window.replace(lines, styles);
  }

  toEnd() {
    this.window.target = null;
    return this.load(
      () => this.lastPage(),
      (lines, page) => {
        this.replace(lines, page.totalLines);
        this.lookedFrom = page.lookedFrom ?? 0;
        this.seenTo = page.totalLines;
        this.following = true;
        this.stick();
        this.later();
      },
    );
  }

  /** Return the last page of the log. */
  async lastPage() {
    if (this.some) return this.back(Infinity);
    return this.source.page(-PAGE, PAGE);
  }

  /** Request a page for the filter and count its lines. Return null if a newer load has cancelled this one. */
  async read(from, limit = AT_ONCE) {
    const { turn } = this;
    const page = await this.source.page(from, limit, this.stream || undefined);
    if (turn !== this.turn || this.closed) return null;
    this.looked += page.lines.length;
    this.tell();
    return page;
  }

  /** Whether the filter has reached the limit of lines for this load. */
  get enough() {
    return this.looked >= this.most;
  }

  /** Whether the filter has read all lines. */
  get isWhole() {
    return this.lookedFrom <= this.first && this.end >= this.total;
  }

  /** Filter further lines, before or after the window, until a page is found, `stop` is called or none are left. */
  lookFurther(before) {
    this.most = Infinity;
    return before ? this.loadBefore() : this.loadAfter();
  }

  /** Stop the filter's current load and show the lines found so far. */
  stop() {
    this.most = 0;
  }

  /**
   * Read backwards from `end`. Return the last page of lines that pass the filter, or fewer at the limit of the load.
   * lookedFrom: every line from this number to `end` was read. Return null if a newer load has cancelled this one.
   * Each part is cut at a line that is not indented, so that no stack trace is split.
   */
  async back(end) {
    let found = [];
    let from = end;
    let newest; // the last line read: `wanted` compares the next new line with it
    for (let step = PAGE; ; ) {
      const before = this.looked;
      const part = await this.part(from === Infinity ? -step : Math.max(0, from - step), from);
      if (!part) return null;
      const { lines, first } = part;
      const whole = first <= part.firstAvailable;
      const skip = whole ? 0 : Math.max(0, lines.findIndex((line) => !/^\s/.test(line.text)));
      this.asked = undefined;
      found = [...lines.slice(skip).filter((line) => this.wanted(line)), ...found];
      newest ??= this.asked;
      from = skip ? lines[skip].n : first;
      if (whole || found.length >= PAGE || this.enough) {
        if (found.length > PAGE) from = found.at(-PAGE).n;
        this.asked = newest;
        return { ...part, lines: found.slice(-PAGE), lookedFrom: from };
      }
      if (this.looked - before < AT_ONCE / 2) step *= 8; // few lines came, since the server omits other streams
    }
  }

  /**
   * Return a page with all lines from `begin` to `end` (exclusive). A negative `begin` counts from the end of the log.
   * first: the absolute number of `begin`. Return null if a newer load has cancelled this one.
   */
  async part(begin, end) {
    const lines = [];
    let first;
    for (let at = begin; ; at = lines.at(-1).n + 1) {
      const page = await this.read(at, Math.min(AT_ONCE, end - at));
      if (!page) return null;
      first ??= Math.max(page.firstAvailable, begin < 0 ? page.totalLines + begin : begin);
      lines.push(...page.lines);
      if (page.lines.length < AT_ONCE || lines.at(-1).n + 1 >= end) return { ...page, first, lines: lines.filter((line) => line.n < end) };
    }
  }

  /** Return the next page from line `from`. readTo: no other line below this number passes the filter; 0: unknown. */
  async ahead(from) {
    if (!this.some) {
      const page = await this.source.page(from, PAGE);
      return { ...page, readTo: page.lines.length < PAGE ? page.totalLines : 0 };
    }
    const lines = [];
    for (let readTo = from; ; ) {
      const page = await this.read(readTo);
      if (!page) return null;
      for (const line of page.lines) if (this.wanted(line)) lines.push(line);
      const whole = page.lines.length < AT_ONCE;
      readTo = whole ? page.totalLines : page.lines.at(-1).n + 1;
      if (lines.length > PAGE) return { ...page, lines: lines.slice(0, PAGE), readTo: 0 };
      if (whole || lines.length === PAGE || this.enough) return { ...page, lines, readTo };
    }
  }

  /** Scroll to line `n`, a third below the top. Mark the lines from `n` to `last`, unless `marked` is false. */
  jump(n, { marked = true, last = n } = {}) {
    return this.load(
      () => this.around(n),
      (lines, page) => {
        this.following = false;
        this.window.target = marked ? [n, last] : null;
        this.replace(lines, page.readTo);
        this.lookedFrom = page.lookedFrom ?? 0;
        this.seenTo = page.totalLines;
        this.fit();
        const row = this.window.rowAt(n);
        if (row?.matches(".fold, .folded")) this.look.open.add(this.lines.find((one) => one.n >= n).trace) && this.window.draw(this.lines);
        if (row) this.scroll.scrollTop = row.offsetTop - this.scroll.clientHeight / 3;
        else this.stick();
      },
    );
  }

  /** Return a page with lines on both sides of line `n`, and more lines before it if few follow. */
  async around(n) {
    const from = Math.max(0, n - PAGE / 2);
    const page = await this.ahead(from);
    if (!page || page.lines.length >= PAGE / 2 || from <= page.firstAvailable) return page && { ...page, lookedFrom: from };
    const before = await this.pageBefore(Math.min(from, page.totalLines));
    return before && { ...page, lines: [...before.lines, ...page.lines], lookedFrom: before.lookedFrom };
  }

  /** Jump to the first line at or after a time (ISO 8601), or to the last line. */
  async jumpToTime(at) {
    const page = await this.source.pageAt(at, 1);
    await this.jump(page.lines[0]?.n ?? page.totalLines - 1);
  }

  /** Scroll to the first line at or after the time `ts` (milliseconds since the epoch), or to the end before it. */
  async showTime(ts) {
    this.following = false;
    this.held = true;
    const within = () => this.lines.length && (this.lines[0].ts <= ts || this.lines[0].n <= this.first);
    if (!within() || (this.lines.at(-1).ts < ts && this.end < this.total)) {
      const page = await this.source.pageAt(new Date(ts).toISOString(), 1);
      await this.jump(page.lines[0]?.n ?? page.totalLines - 1, { marked: false });
    }
    const line = this.lines.find((one) => one.ts >= ts);
    this.scroll.scrollTop = line ? this.window.rowAt(line.n).offsetTop : this.scroll.scrollHeight;
  }

  scrolled() {
    const { scrollTop, clientHeight, scrollHeight } = this.scroll;
    const atEnd = scrollHeight - scrollTop - clientHeight < END_PX;
    if (this.following && !atEnd && scrollTop < this.stuckAt - 1) this.following = false;
    else if (!this.following && atEnd && this.loaded && !this.loading && !this.held && this.end >= this.total && !this.selecting) {
      this.following = true;
    }
    if (this.following) {
      this.tell();
      return;
    }
    this.seenTo = Math.max(this.seenTo, atEnd ? this.end : this.window.lineAt(scrollTop + clientHeight));
    if (!this.loading && this.loaded) {
      // If the last load of a filter found nothing, only the reader's buttons continue it.
      const before = this.some ? this.lookedFrom : this.lines[0]?.n;
      if (scrollTop < NEAR_PX && before > this.first && !this.noneBefore) this.loadBefore();
      else if (scrollHeight - scrollTop - clientHeight < NEAR_PX && this.lines.length && this.end < this.total && !this.waitsAfter) this.loadAfter();
    }
    this.changed();
  }

  loadAfter() {
    const from = this.end;
    return this.load(
      () => this.ahead(from),
      (lines, page) => {
        this.readTo = page.readTo;
        this.waitsAfter = !lines.length && page.readTo < page.totalLines;
        this.window.append(lines.filter((line) => line.n >= from));
        const height = this.rows.scrollHeight;
        const top = this.scroll.scrollTop;
        if (this.trimTop(MOST)) this.scroll.scrollTop = top - (height - this.rows.scrollHeight);
      },
    );
  }

  loadBefore() {
    const end = this.some ? this.lookedFrom : this.lines[0].n;
    return this.load(
      () => this.pageBefore(end),
      (lines, page) => {
        this.noneBefore = !lines.length;
        this.lookedFrom = page.lookedFrom ?? 0;
        const height = this.rows.scrollHeight;
        const top = this.scroll.scrollTop;
        this.window.prepend(lines);
        this.scroll.scrollTop = top + this.rows.scrollHeight - height;
        if (!this.selecting && this.window.trimEnd(MOST)) this.readTo = 0;
      },
    );
  }

  async pageBefore(end) {
    if (this.some) return this.back(end);
    for (let back = PAGE; ; back *= 8) {
      const from = Math.max(0, end - back);
      const page = await this.source.page(from, PAGE);
      const lines = page.lines.filter((line) => line.n < end);
      if (lines.length || from <= page.firstAvailable) return { ...page, lines };
    }
  }

  trimTop(most) {
    const gone = this.selecting ? 0 : this.window.trimTop(most);
    if (gone) {
      this.noneBefore = false;
      this.lookedFrom = this.lines[0]?.n ?? 0;
    }
    return gone;
  }

  stick() {
    this.scroll.scrollTop = this.scroll.scrollHeight;
    this.stuckAt = this.scroll.scrollTop;
  }

  /** Fix the log's size once its lines fill it, so that new lines do not lay out the rest of the page again. */
  fit() {
    if (this.full || this.rows.offsetHeight <= this.scroll.clientHeight) return;
    this.full = true;
    this.scroll.parentElement.dataset.full = "";
  }

  /** Draw the rows again after `look` has changed. */
  redraw() {
    const top = this.topLine();
    this.window.draw(this.lines);
    if (this.following) this.stick();
    else if (top !== null) this.scroll.scrollTop = this.window.rowAt(top)?.offsetTop ?? 0;
  }

  /** Fold or unfold the JSON of line `n`, or the stack trace whose first frame is line `n`. */
  unfold(n) {
    const { open } = this.look;
    if (!open.delete(n)) open.add(n);
    const { scrollTop } = this.scroll;
    this.following = false;
    this.window.draw(this.lines);
    this.scroll.scrollTop = scrollTop;
    this.changed();
  }

  /** Update only the times of the rows. */
  retime() {
    this.window.retime();
  }

  /** Return the number of the first visible line, or null. */
  topLine() {
    return this.window.lineAt(this.scroll.scrollTop);
  }

  /** Set the filter: a stream, a level (which includes worse ones) and a text (in any case). "" disables each. */
  want({ stream, level, text }) {
    this.stream = stream;
    const part = text.toLowerCase();
    const all = !level && !part;
    this.keep = all ? null : (line) => (!level || isAtLeast(line, level)) && (!part || line.text.toLowerCase().includes(part));
  }

  /** Set the filter and load the matching lines around the current position. */
  async only(wanted) {
    const top = this.topLine();
    this.want(wanted);
    this.redrawn = true;
    this.later();
    if (this.following || top === null) await this.toEnd();
    else await this.jump(top, { marked: false });
  }

  /** Return the plain text of lines `first` to `last`; lines outside the window are loaded. */
  async textBetween(first, last) {
    const texts = [];
    for (let at = first; at <= last; ) {
      const page = await this.source.page(at, Math.min(AT_ONCE, last - at + 1));
      const lines = page.lines.filter((line) => line.n <= last);
      for (const line of lines) texts.push(line.continued && texts.length ? `${texts.pop()}${plain(line.text)}` : plain(line.text));
      if (!lines.length) break;
      at = lines.at(-1).n + 1;
    }
    return texts.join("\n");
  }

  // New lines.

  disconnect() {
    this.events?.close();
    this.events = null;
    this.live = false;
    clearTimeout(this.again);
  }

  connect() {
    if (this.events || this.finished || this.closed || !this.loaded || away.value) return;
    clearTimeout(this.again);
    this.events = this.source.open(this.total, {
      // The stream sends current regions again, but omits regions that settled while it was closed.
      opened: () => {
        this.live = true;
        this.drawn.clear();
        this.redrawn = true;
        this.later();
      },
      heard: (kind, bodies) => this.heard(...(this.source.translate?.(kind, bodies) ?? [kind, bodies])),
      lost: () => {
        this.events = null;
        this.live = false;
        this.tell();
        this.again = setTimeout(() => this.connect(), AGAIN_MS);
      },
    });
  }

  heard(kind, bodies) {
    if (kind === "line" && bodies.length) this.take(bodies);
    for (const body of bodies) {
      if (kind === "region") {
        if (body.rows.length) this.drawn.set(body.stream, body.rows);
        else this.drawn.delete(body.stream);
        this.redrawn = true;
      } else if (kind === "rotated") this.first = body.firstAvailable;
      else if (kind === "dropped") {
        this.total = Math.max(this.total, body.after + 1 + body.count);
        this.behind = true;
      } else if (kind === "done") {
        this.disconnect();
        this.finished = true;
        this.drawn.clear();
        this.redrawn = true;
      }
    }
    this.later();
  }

  take(lines) {
    this.source.keep(lines);
    this.total = Math.max(this.total, lines.at(-1).n + 1);
    if (!this.following && !this.loading) return;
    this.queue.push(...(this.some ? lines.filter((line) => this.wanted(line)) : lines));
    // A hidden page paints nothing, so the queue grows. The next drawing shows only its last lines anyway.
    if (this.queue.length > 2 * MOST) this.queue.splice(0, this.queue.length - MOST);
  }

  /** Draw new content in the next animation frame, but at least PACE_MS after the previous drawing. */
  later() {
    if (this.frame || this.pause) return;
    const wait = this.paintedAt + PACE_MS - performance.now();
    const ask = () => {
      this.pause = 0;
      this.frame = requestAnimationFrame(() => this.paint());
    };
    if (wait > 0) this.pause = setTimeout(ask, wait);
    else ask();
  }

  paint() {
    this.frame = 0;
    this.paintedAt = performance.now();
    if (this.following && !this.loading) {
      this.drawQueue();
      this.drawRegion();
      this.fit();
      this.stick();
      if (this.behind) {
        this.behind = false;
        this.toEnd();
      }
    } else this.drawRegion();
    this.tell();
  }

  /** Append the queued lines; if they fill the whole window, show only the last of them. */
  drawQueue() {
    const { last } = this.window;
    const lines = this.queue.filter((line) => line.n > last);
    this.queue = [];
    if (lines.length >= FOLLOWED) {
      this.replace(lines.slice(-FOLLOWED), this.readTo, this.window.stylesAfter(lines.slice(0, -FOLLOWED)));
      this.lookedFrom = this.lines[0].n;
    } else if (lines.length) {
      this.window.append(lines);
      this.trimTop(FOLLOWED);
    }
    this.readTo = Math.max(this.readTo, this.total);
    this.seenTo = this.total;
  }

  drawRegion() {
    const drawn = [...this.drawn].filter(([stream]) => !this.stream || stream === this.stream);
    const hidden = !drawn.length || this.end < this.total;
    if (this.redrawn) {
      const rows = [];
      const styles = this.window.styles();
      for (const [stream, texts] of drawn) rows.push(...regionRows(stream, texts, styles.get(stream)));
      this.region.replaceChildren(...rows);
      this.redrawn = false;
    }
    if (this.region.hidden !== hidden) this.region.hidden = hidden;
  }
}
