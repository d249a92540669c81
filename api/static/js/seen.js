// Whether the page is visible. A hidden page closes its streams: browsers have six connections for a host, and
// all tabs share them.
import { signal } from "../vendor/preact.js";

const AWAY_MS = 5000;

/** True once the page has been hidden for a while, and as long as nobody has seen it yet. */
export const away = signal(document.hidden);

let timer = null;

document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (!document.hidden) away.value = false;
  else {
    timer = setTimeout(() => {
      away.value = true;
    }, AWAY_MS);
  }
});
