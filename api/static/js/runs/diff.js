// Compares two lists of lines. Lines that both lists have once anchor the comparison (a patience diff); Myers' algorithm
// compares what is between them. Its effort is limited, so that the time for long logs grows with their length.

const MOST_EDITS = 1000; // of one search by Myers' algorithm, which then continues from the farthest point

/** What a comparison can ignore: by name, its pattern. Their order matters: an id or a time contains numbers. */
const IGNORED = {
  times: /\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?|\b\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?/g,
  ids: /\b(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|0x[0-9a-f]+|(?=[a-z]*\d)[0-9a-f]{7,}|[0-9A-HJKMNP-TV-Z]{26})\b/gi,
  numbers: /\d+/g,
};

/** Return the text of a line for the comparison. ignore: some of "times", "ids" and "numbers". */
export function keyOf(text, ignore) {
  let key = text;
  for (const [name, pattern] of Object.entries(IGNORED)) if (ignore.includes(name)) key = key.replace(pattern, "\0");
  return key;
}

/** Return the equal parts of two lists as [[index in a, index in b, length]], ascending. */
export function matches(a, b) {
  const numbers = new Map();
  const numbered = (list) => Int32Array.from(list, (key) => numbers.get(key) ?? (numbers.set(key, numbers.size), numbers.size - 1));
  const found = [];
  between(numbered(a), 0, a.length, numbered(b), 0, b.length, found);
  const joined = [];
  for (const [from, to, length] of found) {
    const last = joined.at(-1);
    if (last && last[0] + last[2] === from && last[1] + last[2] === to) last[2] += length;
    else joined.push([from, to, length]);
  }
  return joined;
}

/** Compare a[low…high) with b[from…to), and append the equal parts to `found`. */
function between(a, low, high, b, from, to, found) {
  let same = 0;
  while (low + same < high && from + same < to && a[low + same] === b[from + same]) same += 1;
  if (same) found.push([low, from, same]);
  low += same;
  from += same;
  let tail = 0;
  while (high - tail > low && to - tail > from && a[high - tail - 1] === b[to - tail - 1]) tail += 1;
  high -= tail;
  to -= tail;
  if (low < high && from < to) {
    const anchors = unique(a, low, high, b, from, to);
    if (!anchors.length) edits(a, low, high, b, from, to, found);
    for (const [x, y] of anchors) {
      if (x < low || y < from) continue; // the part before has reached it already
      between(a, low, x, b, from, y, found);
      found.push([x, y, 1]);
      low = x + 1;
      from = y + 1;
    }
    if (anchors.length) between(a, low, high, b, from, to, found);
  }
  if (tail) found.push([high, to, tail]);
}

/** Return [index in a, index in b] of the lines that each part has once: the most that are in the same order in both. */
function unique(a, low, high, b, from, to) {
  const places = new Map(); // by line: [count in a, index in a, count in b, index in b]
  for (let x = low; x < high; x += 1) {
    const place = places.get(a[x]);
    if (place) place[0] += 1;
    else places.set(a[x], [1, x, 0, 0]);
  }
  for (let y = from; y < to; y += 1) {
    const place = places.get(b[y]);
    if (!place) continue;
    place[2] += 1;
    place[3] = y;
  }
  // The longest ascending sequence of indexes in b, with the pairs in the order of a.
  const piles = [];
  for (const [inA, x, inB, y] of places.values()) {
    if (inA !== 1 || inB !== 1) continue;
    let [first, last] = [0, piles.length];
    while (first < last) {
      const middle = (first + last) >> 1;
      if (piles[middle].y < y) first = middle + 1;
      else last = middle;
    }
    piles[first] = { x, y, before: piles[first - 1] };
  }
  const pairs = [];
  for (let one = piles.at(-1); one; one = one.before) pairs.push([one.x, one.y]);
  return pairs.reverse();
}

/** Append the equal parts of a shortest edit script, or of one that is nearly as short if it is long. */
function edits(a, low, high, b, from, to, found) {
  while (low < high && from < to) {
    const [width, height] = [high - low, to - from];
    const most = Math.min(width + height, MOST_EDITS);
    const ends = new Int32Array(2 * most + 3); // by diagonal: how far the search has come in a
    const history = [];
    const middle = most + 1;
    let [x, y, at] = [0, 0, 0];
    let best = null;
    for (let cost = 0; cost <= most && !best; cost += 1) {
      history.push(ends.slice(middle - cost - 1, middle + cost + 2));
      let farthest = -1;
      for (let diagonal = -cost; diagonal <= cost; diagonal += 2) {
        const down = diagonal === -cost || (diagonal !== cost && ends[middle + diagonal - 1] < ends[middle + diagonal + 1]);
        x = down ? ends[middle + diagonal + 1] : ends[middle + diagonal - 1] + 1;
        y = x - diagonal;
        while (x < width && y < height && a[low + x] === b[from + y]) {
          x += 1;
          y += 1;
        }
        ends[middle + diagonal] = x;
        const inside = x <= width && y <= height;
        if (inside && x + y > farthest) [farthest, at] = [x + y, diagonal];
        if (x >= width && y >= height) best = { cost, diagonal };
        if (best) break;
      }
      if (cost === most) best ??= { cost, diagonal: at };
    }
    x = ends[middle + best.diagonal];
    y = x - best.diagonal;
    const [reachedX, reachedY] = [Math.min(x, width), Math.min(y, height)];
    const parts = [];
    let { diagonal } = best;
    for (let { cost } = best; cost >= 0; cost -= 1) {
      const row = history[cost];
      const end = (one) => row[one + cost + 1];
      const down = diagonal === -cost || (diagonal !== cost && end(diagonal - 1) < end(diagonal + 1));
      const before = down ? diagonal + 1 : diagonal - 1;
      const start = cost === 0 ? 0 : down ? end(before) : end(before) + 1;
      if (x > start) parts.push([low + start, from + start - diagonal, x - start]);
      if (cost === 0) break;
      x = end(before);
      diagonal = before;
    }
    for (const part of parts.reverse()) found.push(part);
    low += reachedX;
    from += reachedY;
    if (!reachedX && !reachedY) return;
  }
}
