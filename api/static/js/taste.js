// What the browser remembers of the reader's taste. One that keeps nothing of a site, cookies neither, refuses even to be
// asked; the page works all the same, as a token that a proxy sends lets people in without a cookie.

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
