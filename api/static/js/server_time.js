// The time by the clock of the server, from its pings: clocks of browsers are often wrong.

const MOST_AHEAD_MS = 60_000; // beyond that the server's clock was set back

let ahead = null; // of the page's monotonic clock, which cannot be set

/** A ping said that it is `at` (text). The one that came fastest knows best. */
export function learnTime(at) {
  const found = Date.parse(at) - performance.now();
  if (ahead === null || found > ahead || ahead - found > MOST_AHEAD_MS) ahead = found;
}

/** Milliseconds since the epoch; null before the first ping. */
export const serverTime = () => (ahead === null ? null : ahead + performance.now());
