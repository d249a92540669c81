// The public page of states keeps itself up to date in place, so that focus and position stay.

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
    // The daemon is away; the next turn tries again.
  }
}

setInterval(refresh, AGAIN_MS);
