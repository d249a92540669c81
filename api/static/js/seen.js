// Whether the page is visible. A hidden page closes its streams: browsers have six connections for a host, and
// all tabs share them.
import { signal } from "../vendor/preact.js";
import { remembered } from "./taste.js";

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

/** Whether this browser is to notify somebody who does not look: then one of its hidden pages goes on listening. */
export const notifying = signal(remembered("notify", "no") === "yes");
/** Whether this is that page. */
export const listens = signal(false);

let release = null;

notifying.subscribe((on) => {
  if (on && !release) {
    const wish = new AbortController();
    release = () => wish.abort();
    navigator.locks
      ?.request("ringward-notifications", { signal: wish.signal }, () => {
        listens.value = true;
        return new Promise((done) => {
          release = done;
        });
      })
      .catch(() => {}); // not wanted any more
  } else if (!on && release) {
    release();
    release = null;
    listens.value = false;
  }
});
