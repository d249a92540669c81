// The server's time, learned from its pings, because the clocks of browsers are often wrong.

const MOST_AHEAD_MS = 60_000; // a larger difference means that the server's clock was set back

let ahead = null; // server time minus the page's clock, in milliseconds; that clock is monotonic

/** Learn the time from a ping sent at `at` (ISO 8601). The ping with the least delay gives the most accurate time. */
export function learnTime(at) {
  const found = Date.parse(at) - performance.now();
  if (ahead === null || found > ahead || ahead - found > MOST_AHEAD_MS) ahead = found;
}

/** The server's time in milliseconds since the epoch; null before the first ping. */
export const serverTime = () => (ahead === null ? null : ahead + performance.now());

/** The current time in milliseconds since the epoch, by the server's clock once a ping has arrived. */
export const currentMs = () => serverTime() ?? Date.now();
