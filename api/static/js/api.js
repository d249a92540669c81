// Requests to the HTTP API. Paths are relative, so the dashboard works under any path prefix.
import { serverTime } from "./server_time.js";

const READ_MS = 60_000;
const COMMAND_MS = 10_000;

/**
 * A failed request. status: the HTTP status, or 0 without a response. errors: invalid fields, [{location, message}].
 * unknown: the cause if the daemon may have executed the command nevertheless; null if it has not.
 */
export class Refused extends Error {
  constructor(status, message, { errors = [], unknown = null } = {}) {
    super(message);
    this.status = status;
    this.errors = errors;
    this.unknown = unknown;
  }
}

let onLoggedOut = () => {};
let onUnavailable = () => {};

const waiting = [];

/** Send the commands again that failed because the session had ended. */
export function loggedIn() {
  for (const send of waiting.splice(0)) send();
}

/** Call `listener(waiting)` on each response with status 401. waiting: whether a command waits for the login. */
export function whenLoggedOut(listener) {
  onLoggedOut = listener;
}

/** Call `listener` on each response with status 503: a part of the daemon is unavailable. */
export function whenUnavailable(listener) {
  onUnavailable = listener;
}

/** Return the name of a field in words: "body.expiresInMs" is "expires in". */
const fieldOf = (location) =>
  location
    .replace(/^.*\./, "")
    .replace(/Ms$/, "")
    .replace(/(?<=[a-z])(?=[A-Z])|_/g, " ")
    .toLowerCase();

async function refusal(response) {
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // The response is a page of a proxy, not JSON; the message is made of the status alone.
  }
  const details = (problem.errors ?? []).map((one) => `${fieldOf(one.location)}: ${one.message}`).join("; ");
  const text = details || problem.detail || problem.title || `The server responded with status ${response.status}`;
  return new Refused(response.status, text, { errors: problem.errors });
}

/** Return the error for a request that was cut off or received no response within `limitMs`. */
function noAnswer(error, method, limitMs) {
  const late = error.name === "TimeoutError";
  if (method === "GET") return new Refused(0, late ? `No answer within ${limitMs / 1000} s` : "Cannot reach the daemon");
  const cause = late ? `No answer within ${limitMs / 1000} s.` : "Cannot reach the daemon.";
  return new Refused(0, `${cause} The command may have taken effect`, { unknown: cause });
}

/**
 * Send a request. Return the decoded body, or null for an empty response; throw `Refused` if the request fails.
 * The header Ringward-Deadline makes the daemon reject a command that arrives after its time limit.
 */
export async function call(path, { method = "GET", body, query, signal, limitMs = method === "GET" ? READ_MS : COMMAND_MS } = {}) {
  const limit = new AbortController();
  const options = { method, signal: AbortSignal.any([limit.signal, ...(signal ? [signal] : [])]), headers: { Accept: "application/json" } };
  if (method !== "GET") {
    const now = serverTime();
    if (now !== null) options.headers["Ringward-Deadline"] = new Date(now + limitMs).toISOString();
  }
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  const timer = setTimeout(() => limit.abort(new DOMException("", "TimeoutError")), limitMs);
  try {
    return await answered(await fetch(withQuery(path, query), options));
  } catch (error) {
    if (error.status === 401 && !path.startsWith("api/auth/")) {
      onLoggedOut(method !== "GET");
      if (method !== "GET") {
        await new Promise((resolve) => waiting.push(resolve));
        return await call(path, { method, body, query, signal, limitMs });
      }
    }
    if (error.name === "AbortError" || error instanceof Refused) throw error;
    throw noAnswer(error, method, limitMs);
  } finally {
    clearTimeout(timer);
  }
}

async function answered(response) {
  if (response.status === 503) onUnavailable();
  if (!response.ok) throw await refusal(response);
  return response.status === 204 ? null : response.json();
}

/** Return `path` with the parameters of `query`, except those that are undefined, null or "". */
export function withQuery(path, query = {}) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return pairs.length ? `${path}?${new URLSearchParams(pairs)}` : path;
}

export const get = (path, query, signal) => call(path, { query, signal });
export const post = (path, body, query, limitMs) => call(path, { method: "POST", body, query, limitMs });
export const remove = (path) => call(path, { method: "DELETE" });

/** The path of a task or service, or of a resource below it. */
export const taskPath = (name, below = "") => `api/tasks/${encodeURIComponent(name)}${below && `/${below}`}`;

/** The path of a run, or of a resource below it. */
export const runPath = (id, below = "") => `api/runs/${encodeURIComponent(id)}${below && `/${below}`}`;
