// Where the reader was on each page of the history: Back leads there again.

const WAIT_MS = 3000; // for content that a page loads above the position
const BY_READER = ["wheel", "touchmove", "keydown", "pointerdown"];

const view = () => document.querySelector(".view"); // scrolls on a phone, where the window does not
const position = () => scrollY + (view()?.scrollTop ?? 0);
const keep = () => history.replaceState({ ...history.state, top: position() }, "");

function scrollBoth(top) {
  scrollTo(0, top);
  view()?.scrollTo(0, top);
}

let timer = 0;
addEventListener(
  "scroll",
  () => {
    clearTimeout(timer);
    timer = setTimeout(keep, 100);
  },
  { passive: true, capture: true },
);
// A pending position belongs to the entry before.
addEventListener("popstate", () => clearTimeout(timer));
// Before the address changes: a link was pressed.
addEventListener("click", (event) => event.target.closest?.("a[href^='#/']") && keep(), { capture: true });

/** Scroll to the position of this entry of the history, or to the top of a new one; gives what ends the waiting. */
export function comeTo() {
  clearTimeout(timer);
  const top = history.state?.top ?? 0;
  scrollBoth(top);
  if (!top) return undefined;
  const observer = new ResizeObserver(() => scrollBoth(top));
  const stop = () => {
    observer.disconnect();
    for (const kind of BY_READER) removeEventListener(kind, stop);
    clearTimeout(limit);
  };
  const limit = setTimeout(stop, WAIT_MS);
  for (const kind of BY_READER) addEventListener(kind, stop, { passive: true });
  observer.observe(document.getElementById("main"));
  return stop;
}
