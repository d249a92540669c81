// The current page: the part of the address after "#", with a path and parameters, such as #/runs?status=failed
import { computed, signal } from "../vendor/preact.js";

const hash = signal(location.hash);
// The browser would restore the scroll position before the page has loaded; position.js restores it instead.
history.scrollRestoration = "manual";
addEventListener("hashchange", () => {
  hash.value = location.hash;
});

/** The current page: {path: ["run", "01M…"], query: URLSearchParams}. */
export const route = computed(() => {
  const [path, query = ""] = hash.value.replace(/^#\/?/, "").split(/\?(.*)/s);
  const parts = path.split("/").filter(Boolean).map(decode);
  return { path: parts, query: new URLSearchParams(query) };
});

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Return the address of a page: link("run", id), or link("runs", {status: "failed"}) with parameters. */
export function link(...parts) {
  const query = typeof parts.at(-1) === "object" ? parts.pop() : {};
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const path = parts.map((part) => encodeURIComponent(part)).join("/");
  return `#/${path}${pairs.length ? `?${new URLSearchParams(pairs)}` : ""}`;
}

/** Go to an address that `link` returned. replace: do so without a new history entry. */
export function go(address, { replace = false } = {}) {
  if (!replace) {
    location.hash = address;
    return;
  }
  history.replaceState(history.state, "", address);
  hash.value = location.hash;
}
