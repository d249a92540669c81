// A log on the page: a window of at most a few thousand lines around the visible part, moved by pages as the reader
// scrolls, so that a log may have any length and lines any height. Nothing else of the log is held.
//
// Two states: following (the end is in the window, new lines are appended, the view stays at the end) and reading (the
// window stays where it is; new lines are only counted). Who follows a log that is faster than anybody reads sees its end
// some times a second: lines that would never be seen get no row, but stand where they belong as soon as one scrolls.
import { away } from "../seen.js";
import { throttle } from "../state.js";
import { plain } from "./escapes.js";
import { isAtLeast, placeInTrace } from "./levels.js";
import { regionRows, textOf } from "./rows.js";
import { EventStream } from "./stream.js";
import { LineWindow } from "./window.js";

const PAGE = 500;
const AT_ONCE = 10_000; // lines that a filter reads at a time
const LOOK = 100_000; // lines that a filter reads before it waits to be told to go on
const MOST = 2000; // rows on the page
const FOLLOWED = 100; // rows while the end is followed, two screens: each frame lays them out anew
const NEAR_PX = 1200; // how close to the window's edge the next page is asked for
const END_PX = 24;
const PACE_MS = 33; // between two drawings of new lines
const TOLD_MS = 100; // between two tellings of it
const AGAIN_MS = 1000;

/** The first page that a view without filters asks for, [from, limit], when it begins at a range of lines or, null, at the end. */
export const firstPage = (range) => [range === null ? -PAGE : Math.max(0, range[0] - PAGE / 2), PAGE];

export class LogView {
  /**
   * source: see source.js. scroll, rows, region: elements. look: see rows.js.
   * changed(): called when first, total, top, following, finished, live, or error has changed.
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
    this.asked = undefined; // the line before, see wanted
    this.keep = null; // (line) => whether it is wanted; null: all are
    this.noneBefore = false; // of the wanted lines, before the window
    this.waitsAfter = false; // the filter has found nothing more behind the window
    this.lookedFrom = 0; // from here on a filter has read every line up to those of the window
    this.looked = 0; // lines that the filter has read in this load
    this.most = LOOK; // that it may read in one
    this.readTo = 0; // up to here there is none of this stream behind the window
    this.queue = [];
    this.behind = false; // the stream has left lines out
    this.drawn = new Map();
    this.redrawn = false; // and the page does not show it yet
    this.full = false;
    this.frame = 0;
    this.pause = 0;
    this.paintedAt = 0;
    this.loading = null;
    this.turn = 0;
    this.events = null;
    this.live = false; // the stream is open, so that new lines arrive
    this.again = 0;
    this.tell = throttle(() => this.closed || changed(), TOLD_MS);
    this.onScroll = () => this.scrolled();
    scroll.addEventListener("scroll", this.onScroll, { passive: true });
    // Text that is being read, or selected, must not move away: rows of lines that come would take its place.
    this.onPress = () => this.hold();
    rows.addEventListener("pointerdown", this.onPress, { passive: true });
    this.onCopy = (event) => this.copied(event);
    document.addEventListener("copy", this.onCopy);
    this.unwatch = away.subscribe(() => (away.value ? this.disconnect() : this.connect()));
  }

  /** Begin at the end, or at a range of lines, [first, last]. */
  async open(range = null) {
    if (range === null) await this.toEnd();
    else await this.jump(range[0], { last: range[1] });
  }

  /** Mark a range of lines, where they are. */
  mark(range) {
    this.following = false;
    this.window.target = range;
    const { scrollTop } = this.scroll;
    this.window.draw(this.lines);
    this.scroll.scrollTop = scrollTop;
    this.changed();
  }

  /** Whether only some of the lines are wanted. */
  get some() {
    return this.stream !== "" || this.keep !== null;
  }

  /** Whether a line is wanted; to be asked in the order of lines, since a stack trace is one. */
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
    document.removeEventListener("copy", this.onCopy);
  }

  /** Follow the end no more, until somebody goes there. */
  hold() {
    if (!this.following || this.finished) return;
    this.following = false;
    this.changed();
  }

  /** What is selected of the rows, a Range; null when nothing is. */
  get selection() {
    const selection = getSelection();
    const some = !selection.isCollapsed && selection.rangeCount && this.rows.contains(selection.getRangeAt(0).commonAncestorContainer);
    return some ? selection.getRangeAt(0) : null;
  }

  copied(event) {
    const range = this.selection;
    if (!range) return;
    event.clipboardData.setData("text/plain", textOf(this.rows, range));
    event.preventDefault();
  }

  // Loading. A later wish makes an earlier one void.

  async load(request, use) {
    const turn = ++this.turn;
    this.loading = turn;
    this.looked = 0;
    try {
      const page = await request();
      if (turn !== this.turn || this.closed) return false;
      this.first = page.firstAvailable;
      this.total = Math.max(this.total, page.totalLines);
      this.finished ||= page.finalized; // it may have ended since this page was made
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

  /** Number of the line up to which the window has everything behind its first. */
  get end() {
    return Math.max(this.window.last + 1, this.readTo);
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
        this.following = true;
        this.stick();
        this.later();
      },
    );
  }

  /** The last lines. */
  async lastPage() {
    if (this.some) return this.back(Infinity);
    return this.source.page(-PAGE, PAGE);
  }

  /** Ask for a page of which only some lines are wanted, and count its lines; null: this load is void. */
  async read(from) {
    const { turn } = this;
    const page = await this.source.page(from, AT_ONCE, this.stream || undefined);
    if (turn !== this.turn || this.closed) return null;
    this.looked += page.lines.length;
    this.tell();
    return page;
  }

  /** Whether a filter has read so much in this load that it waits to be told to go on. */
  get enough() {
    return this.looked >= this.most;
  }

  /** Whether a filter has read all lines. */
  get isWhole() {
    return this.lookedFrom <= this.first && this.end >= this.total;
  }

  /** Read every further line for the filter, before or behind the window, until there is a page of them, or `stop`. */
  lookFurther(before) {
    this.most = Infinity;
    return before ? this.loadBefore() : this.loadAfter();
  }

  /** The filter shows what it has found so far. */
  stop() {
    this.most = 0;
  }

  /**
   * The last wanted lines before `end`, read backwards until there is a page of them, or enough was read. lookedFrom: from
   * here on all were read. A part begins with a line that is not indented, so that no stack trace is divided.
   */
  async back(end) {
    let found = [];
    let from = end;
    let newest; // the line before those that will come
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
      if (this.looked - before < AT_ONCE / 2) step *= 8; // lines of other streams are not even sent
    }
  }

  /**
   * All lines before `end` from `begin` on; if that is negative, it is counted from the end of the log. first: the number
   * at which that begins. null: this load is void.
   */
  async part(begin, end) {
    const lines = [];
    let first;
    for (let at = begin; ; at = lines.at(-1).n + 1) {
      const page = await this.read(at);
      if (!page) return null;
      first ??= Math.max(page.firstAvailable, begin < 0 ? page.totalLines + begin : begin);
      lines.push(...page.lines);
      if (page.lines.length < AT_ONCE || lines.at(-1).n + 1 >= end) return { ...page, first, lines: lines.filter((line) => line.n < end) };
    }
  }

  /** The next lines from `from` on; readTo: up to here there are no others. */
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

  /** Show line `n` in the middle, marked; with `last`, all lines up to that one are marked. */
  jump(n, { marked = true, last = n } = {}) {
    return this.load(
      () => this.around(n),
      (lines, page) => {
        this.following = false;
        this.window.target = marked ? [n, last] : null;
        this.replace(lines, page.readTo);
        this.lookedFrom = page.lookedFrom ?? 0;
        this.fit();
        const row = this.window.rowAt(n);
        if (row?.matches(".fold, .folded")) this.look.open.add(this.lines.find((one) => one.n >= n).trace) && this.window.draw(this.lines);
        if (row) this.scroll.scrollTop = row.offsetTop - this.scroll.clientHeight / 3;
        else this.stick();
      },
    );
  }

  /** Lines on both sides of line `n`; where there are few behind it, more of those before it. */
  async around(n) {
    const from = Math.max(0, n - PAGE / 2);
    const page = await this.ahead(from);
    if (!page || page.lines.length >= PAGE / 2 || from <= page.firstAvailable) return page && { ...page, lookedFrom: from };
    const before = await this.pageBefore(Math.min(from, page.totalLines));
    return before && { ...page, lines: [...before.lines, ...page.lines], lookedFrom: before.lookedFrom };
  }

  /** Show what was printed at that time (ISO). */
  async jumpToTime(at) {
    const page = await this.source.pageAt(at, 1);
    await this.jump(page.lines[0]?.n ?? page.totalLines - 1);
  }

  scrolled() {
    const { scrollTop, clientHeight, scrollHeight } = this.scroll;
    const atEnd = scrollHeight - scrollTop - clientHeight < END_PX;
    if (this.following && !atEnd && scrollTop < this.stuckAt - 1) this.following = false;
    else if (!this.following && atEnd && this.loaded && !this.loading && this.end >= this.total && !this.selection) {
      this.following = true;
    }
    if (this.following) {
      this.tell();
      return;
    }
    if (!this.loading && this.loaded) {
      // A filter that has found nothing more in what it read goes on when it is told to.
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
        if (!this.selection && this.window.trimEnd(MOST)) this.readTo = 0;
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
    const gone = this.selection ? 0 : this.window.trimTop(most);
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

  /** Once the lines fill their place it keeps its size, and what changes in it changes nothing else of the page. */
  fit() {
    if (this.full || this.rows.offsetHeight <= this.scroll.clientHeight) return;
    this.full = true;
    this.scroll.parentElement.dataset.full = "";
  }

  /** Draw the rows anew, after `look` has changed. */
  redraw() {
    const top = this.topLine();
    this.window.draw(this.lines);
    if (this.following) this.stick();
    else if (top !== null) this.scroll.scrollTop = this.window.rowAt(top)?.offsetTop ?? 0;
  }

  /** Fold or unfold a line or a stack trace by the number of its (first) line. */
  unfold(n) {
    const { open } = this.look;
    if (!open.delete(n)) open.add(n);
    const { scrollTop } = this.scroll;
    this.following = false;
    this.window.draw(this.lines);
    this.scroll.scrollTop = scrollTop;
    this.changed();
  }

  /** Only the times of the rows. */
  retime() {
    this.window.retime();
  }

  /** Number of the first line that is seen; null when there is none. */
  topLine() {
    return this.window.lineAt(this.scroll.scrollTop);
  }

  /** Want only lines of that stream ("": all), of that level or a worse one ("": all), with that text ("": any). */
  want({ stream, level, text }) {
    this.stream = stream;
    const part = text.toLowerCase();
    const all = !level && !part;
    this.keep = all ? null : (line) => (!level || isAtLeast(line, level)) && (!part || line.text.toLowerCase().includes(part));
  }

  /** Show only such lines. */
  async only(wanted) {
    const top = this.topLine();
    this.want(wanted);
    this.redrawn = true;
    this.later();
    if (this.following || top === null) await this.toEnd();
    else await this.jump(top, { marked: false });
  }

  /** The text of the lines from `first` to `last`, whether they are shown or not. */
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

  // What is new.

  disconnect() {
    this.events?.close();
    this.events = null;
    this.live = false;
    clearTimeout(this.again);
  }

  connect() {
    if (this.events || this.finished || this.closed || !this.loaded || away.value) return;
    clearTimeout(this.again);
    this.events = new EventStream(this.source.streamFrom(this.total), {
      // The stream repeats the present drawing, but not drawings that settled meanwhile.
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
    // A hidden page paints nothing. The rest is more than the window holds, so it will be there alone.
    if (this.queue.length > 2 * MOST) this.queue.splice(0, this.queue.length - MOST);
  }

  /** Draw what is new with the next frame; the first at once, those that follow at a pace. */
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

  /** Show what has come; when that is more than the window holds, its end alone. */
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
