// Updates the public status page in place, so that focus and scroll position stay.

const AGAIN_MS = 60_000;

async function refresh() {
  if (document.hidden) return;
  try {
    const response = await fetch(location.href);
    if (!response.ok) return;
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    document.title = fresh.title;
    document.querySelector("main").replaceWith(fresh.querySelector("main"));
  } catch {
    // The daemon is unreachable; the next interval tries again.
  }
}

setInterval(refresh, AGAIN_MS);
