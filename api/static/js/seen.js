// Whether the page is visible. A hidden page closes its streams, because browsers allow six connections per host and
// all tabs share them.
import { signal } from "../vendor/preact.js";
import { remembered } from "./taste.js";

const AWAY_MS = 5000;

/** True once the page has been hidden for AWAY_MS, and in a background tab until it is first visible. */
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

/** Whether the browser shows notifications for hidden pages; one of these pages then keeps its event stream open. */
export const notifying = signal(remembered("notify", "no") === "yes");
/** Whether this page is the one that keeps its event stream open. */
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
      .catch(() => {}); // aborted, since notifications were turned off
  } else if (!on && release) {
    release();
    release = null;
    listens.value = false;
  }
});
