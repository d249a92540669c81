// Preferences of the reader that the browser stores. A browser that stores nothing for a site raises an error even on a
// read. The page works without, since a token that a proxy sends needs no cookie either.

/** What was remembered under a key, or the fallback. */
export function remembered(key, fallback) {
  try {
    return localStorage.getItem(`ringward-${key}`) ?? fallback;
  } catch {
    return fallback;
  }
}

/** Remember a value for the next time, where that can be. */
export function remember(key, value) {
  try {
    localStorage.setItem(`ringward-${key}`, value);
  } catch {
    // it holds until the page is left
  }
}
