// The lines of a log that are on the page, and their rows: each line has one, between two that are not neighbours stands
// a row that says so.
import { PLAIN, styleAfter } from "./escapes.js";
import { fillRow, gapRow, newRow, timeText } from "./rows.js";

/** Give each line the style with which it begins: that with which the line before it of the same stream ended. */
function carry(lines, styles) {
  for (const line of lines) {
    line.begin = styles.get(line.stream) ?? PLAIN;
    styles.set(line.stream, styleAfter(line.text, line.begin));
  }
}

export class LineWindow {
  /** box: the element of the rows. look: see rows.js. */
  constructor(box, look) {
    this.box = box;
    this.look = look;
    this.lines = [];
    this.target = null; // [first, last]: numbers of the lines that are meant
    this.some = false; // only some of the lines are wanted: what lies between them is not missed
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

  /** The style with which the last line of each stream ends, by stream. Before the window nothing is known. */
  styles() {
    const found = new Map();
    for (const line of this.lines.toReversed()) if (!found.has(line.stream)) found.set(line.stream, styleAfter(line.text, line.begin));
    return found;
  }

  /** The same after further lines, which get no rows. */
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

  /** Draw the first lines anew that begin otherwise, now that the styles before them are known. */
  restyle(styles) {
    let before;
    for (const line of this.lines) {
      const style = styles.get(line.stream);
      if (style && JSON.stringify(style) === JSON.stringify(line.begin)) styles.delete(line.stream);
      else if (style) {
        line.begin = style;
        styles.set(line.stream, styleAfter(line.text, style));
        this.fill(this.rowAt(line.n), line, before);
      }
      if (!styles.size) return;
      before = line;
    }
  }

  /** Have these lines instead; if they follow those that are here, `styles` says how these ended. */
  replace(lines, styles = new Map()) {
    carry(lines, styles);
    this.draw(lines);
  }

  /** Have rows for these lines. Rows that are there are filled anew: that is cheaper than new ones. */
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

  /** Leave the first lines out, so that `most` remain; gives how many went. */
  trimTop(most) {
    const surplus = this.lines.length - most;
    if (surplus <= 0) return 0;
    this.lines.splice(0, surplus);
    const kept = String(this.lines[0].n);
    while (this.box.firstElementChild.dataset.n !== kept) this.box.firstElementChild.remove();
    return surplus;
  }

  /** Leave the last lines out, so that `most` remain; gives how many went. */
  trimEnd(most) {
    const surplus = this.lines.length - most;
    if (surplus <= 0) return 0;
    this.lines.length = most;
    const kept = String(this.last);
    while (this.box.lastElementChild.dataset.n !== kept) this.box.lastElementChild.remove();
    return surplus;
  }

  /** The row of line `n`, or of the first one after it that is here. */
  rowAt(n) {
    const line = this.lines.find((one) => one.n >= n);
    return line && this.box.querySelector(`[data-n="${line.n}"]`);
  }

  /** Only the times of the rows. */
  retime() {
    let before;
    for (const line of this.lines) {
      const cell = this.box.querySelector(`[data-n="${line.n}"] .t`);
      if (cell) cell.textContent = timeText(line, before, this.look);
      before = line;
    }
  }

  /** Number of the first line that is seen when `top` pixels of the rows are above; null when there is none. */
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
