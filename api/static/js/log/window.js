// The lines of a log that are on the page, and their rows. Each line has a row, and a gap row separates lines that are
// not consecutive.
import { PLAIN, styleAfter } from "./escapes.js";
import { fillRow, gapRow, newRow, timeText } from "./rows.js";

/** Return what the style of a line carries over to: its stream, of its run where a log has several runs. */
const outputOf = (line) => `${line.runId ?? ""}${line.stream}`;

/**
 * Set `begin`, the initial style of each line, to the style at the end of the previous line of its stream.
 * styles: a Map of each stream's last style; it is updated.
 */
function carry(lines, styles) {
  for (const line of lines) {
    line.begin = styles.get(outputOf(line)) ?? PLAIN;
    styles.set(outputOf(line), styleAfter(line.text, line.begin));
  }
}

export class LineWindow {
  /** box: the element that contains the rows. look: see `fillRow` in rows.js. */
  constructor(box, look) {
    this.box = box;
    this.look = look;
    this.lines = [];
    this.target = null; // [first, last]: numbers of the marked lines
    this.some = false; // whether a filter is active; then lines in between are not missing
  }

  get last() {
    return this.lines.at(-1)?.n ?? -1;
  }

  gap(before, line) {
    const missing = before && !this.some ? line.n - before.n - 1 : 0;
    return missing > 0 ? gapRow(missing, "were dropped: log or disk full") : null;
  }

  fill(row, line, before) {
    fillRow(row, line, before, this.look);
    if (this.target && line.n >= this.target[0] && line.n <= this.target[1]) row.classList.add("target");
  }

  made(lines, before) {
    const fragment = document.createDocumentFragment();
    for (const line of lines) {
      const gap = this.gap(before, line);
      if (gap) fragment.append(gap);
      const row = newRow();
      this.fill(row, line, before);
      fragment.append(row);
      before = line;
    }
    return fragment;
  }

  /** Return a Map from each stream to the style at the end of its last line in the window. */
  styles() {
    const found = new Map();
    for (const line of this.lines.toReversed()) if (!found.has(outputOf(line))) found.set(outputOf(line), styleAfter(line.text, line.begin));
    return found;
  }

  /** Return the same Map for the end of further lines, which get no rows. */
  stylesAfter(lines) {
    const found = this.styles();
    carry(lines, found);
    return found;
  }

  append(lines) {
    carry(lines, this.styles());
    this.box.append(this.made(lines, this.lines.at(-1)));
    this.lines.push(...lines);
  }

  prepend(lines) {
    const styles = new Map();
    carry(lines, styles);
    this.box.prepend(this.made(lines));
    this.restyle(styles);
    this.lines.unshift(...lines);
  }

  /** Fill rows again whose initial style differs, now that the styles of the preceding lines are known. */
  restyle(styles) {
    let before;
    for (const line of this.lines) {
      const style = styles.get(outputOf(line));
      if (style && JSON.stringify(style) === JSON.stringify(line.begin)) styles.delete(outputOf(line));
      else if (style) {
        line.begin = style;
        styles.set(outputOf(line), styleAfter(line.text, style));
        this.fill(this.rowAt(line.n), line, before);
      }
      if (!styles.size) return;
      before = line;
    }
  }

  /** Replace all lines. styles: if the new lines follow the current ones, each stream's style before them. */
  replace(lines, styles = new Map()) {
    carry(lines, styles);
    this.draw(lines);
  }

  /** Show rows for exactly these lines. Existing rows are reused, which is cheaper than creating new ones. */
  draw(lines) {
    for (const gap of this.box.querySelectorAll(".gap")) gap.remove();
    let row = this.box.firstElementChild;
    let before;
    for (const line of lines) {
      const gap = this.gap(before, line);
      if (gap) this.box.insertBefore(gap, row);
      const here = row ?? this.box.appendChild(newRow());
      this.fill(here, line, before);
      row = here.nextElementSibling;
      before = line;
    }
    while (row) {
      const next = row.nextElementSibling;
      row.remove();
      row = next;
    }
    this.lines = [...lines];
  }

  /** Remove lines at the start so that at most `most` remain; return the number of removed lines. */
  trimTop(most) {
    const surplus = this.lines.length - most;
    if (surplus <= 0) return 0;
    this.lines.splice(0, surplus);
    const kept = String(this.lines[0].n);
    while (this.box.firstElementChild.dataset.n !== kept) this.box.firstElementChild.remove();
    return surplus;
  }

  /** Remove lines at the end so that at most `most` remain; return the number of removed lines. */
  trimEnd(most) {
    const surplus = this.lines.length - most;
    if (surplus <= 0) return 0;
    this.lines.length = most;
    const kept = String(this.last);
    while (this.box.lastElementChild.dataset.n !== kept) this.box.lastElementChild.remove();
    return surplus;
  }

  /** Return the row of line `n` or of the next line in the window; undefined if there is none. */
  rowAt(n) {
    const line = this.lines.find((one) => one.n >= n);
    return line && this.box.querySelector(`[data-n="${line.n}"]`);
  }

  /** Update only the times of the rows. */
  retime() {
    let before;
    for (const line of this.lines) {
      const cell = this.box.querySelector(`[data-n="${line.n}"] .t`);
      if (cell) cell.textContent = timeText(line, before, this.look);
      before = line;
    }
  }

  /** Return the number of the first line visible at scroll position `top`, in pixels; null if there are no rows. */
  lineAt(top) {
    const rows = this.box.children;
    let low = 0;
    let high = rows.length - 1;
    if (high < 0) return null;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (rows[middle].offsetTop <= top) low = middle;
      else high = middle - 1;
    }
    for (let row = rows[low]; row; row = row.nextElementSibling) if (row.dataset.n) return Number(row.dataset.n);
    return null;
  }
}
