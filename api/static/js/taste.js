// The reader's preferences, in the browser's storage. If the browser blocks storage for the site, even a read throws.
// The dashboard works without storage: with a token that a proxy adds, it needs no cookie either.

/** Return the stored value of a key, or the fallback. */
export function remembered(key, fallback) {
  try {
    return localStorage.getItem(`ringward-${key}`) ?? fallback;
  } catch {
    return fallback;
  }
}

/** Store a value, unless the browser blocks it. */
export function remember(key, value) {
  try {
    localStorage.setItem(`ringward-${key}`, value);
  } catch {
    // storage is blocked; the preference lasts until the page is closed
  }
}
