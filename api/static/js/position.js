// Stores the scroll position of each history entry, so that Back returns to it.

const WAIT_MS = 3000; // how long the position is kept at least, while content above it loads
const BY_READER = ["wheel", "touchmove", "keydown", "pointerdown"];

const view = () => document.querySelector(".view"); // on phones, this element scrolls instead of the window
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
// A pending call of `keep` would store the position of the previous entry in this one.
addEventListener("popstate", () => clearTimeout(timer));
// Store the position when a link is pressed, before the address changes.
addEventListener("click", (event) => event.target.closest?.("a[href^='#/']") && keep(), { capture: true });

/**
 * Scroll to the stored position of the current history entry, or to the top.
 * While content above the position loads, scroll to it again. Return a function that stops this, if there is one.
 */
export function comeTo() {
  clearTimeout(timer);
  const top = history.state?.top ?? 0;
  scrollBoth(top);
  if (!top) return undefined;
  let late = false; // the page may be too short for the position until a slow answer arrives
  const observer = new ResizeObserver(() => {
    scrollBoth(top);
    if (late) stopThere();
  });
  const stop = () => {
    observer.disconnect();
    for (const kind of BY_READER) removeEventListener(kind, stop);
    clearTimeout(limit);
  };
  const stopThere = () => position() > top - 1 && stop();
  const limit = setTimeout(() => {
    late = true;
    stopThere();
  }, WAIT_MS);
  for (const kind of BY_READER) addEventListener(kind, stop, { passive: true });
  observer.observe(document.getElementById("main"));
  return stop;
}
