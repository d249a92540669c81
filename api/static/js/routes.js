// Where the reader is: the part of the address behind "#". It has a path and parameters: #/runs?status=failed
import { computed, signal } from "../vendor/preact.js";

const hash = signal(location.hash);
// Pages load after the browser would restore the position, see position.js.
history.scrollRestoration = "manual";
addEventListener("hashchange", () => {
  hash.value = location.hash;
});

/** {path: ["run", "01M…"], query: URLSearchParams} */
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

/** The address of a page: link("run", id), with parameters link("runs", {status: "failed"}). */
export function link(...parts) {
  const query = typeof parts.at(-1) === "object" ? parts.pop() : {};
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const path = parts.map((part) => encodeURIComponent(part)).join("/");
  return `#/${path}${pairs.length ? `?${new URLSearchParams(pairs)}` : ""}`;
}

/** Go to an address made by `link`. */
export function go(address, { replace = false } = {}) {
  if (!replace) {
    location.hash = address;
    return;
  }
  history.replaceState(history.state, "", address);
  hash.value = location.hash;
}
