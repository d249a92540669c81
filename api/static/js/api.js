// Requests to the HTTP API. Paths are relative, so the dashboard works under any path prefix.
import { serverTime } from "./server_time.js";

const READ_MS = 60_000;
const COMMAND_MS = 10_000;

/**
 * A refusal: `status` is that of HTTP (0: no answer), `errors` names what was wrong where. unknown: why it is not known
 * whether the command was carried out; null if it was not.
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

/** Send the commands again that were refused because the session had ended. */
export function loggedIn() {
  for (const send of waiting.splice(0)) send();
}

/** Call `listener(waiting)` whenever an answer says that nobody is logged in; waiting: a command waits for that. */
export function whenLoggedOut(listener) {
  onLoggedOut = listener;
}

/** Call `listener` whenever an answer says that something is away at the moment. */
export function whenUnavailable(listener) {
  onUnavailable = listener;
}

async function refusal(response) {
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // A proxy's own page: the status has to do.
  }
  const details = (problem.errors ?? []).map((one) => `${one.location}: ${one.message}`).join("; ");
  const text = details || problem.detail || problem.title || `The server responded with status ${response.status}`;
  return new Refused(response.status, text, { errors: problem.errors });
}

/** No answer: it was cut off, or did not come within `limitMs`. */
function noAnswer(error, method, limitMs) {
  const late = error.name === "TimeoutError";
  if (method === "GET") return new Refused(0, late ? `No answer within ${limitMs / 1000} s` : "Cannot reach the daemon");
  const cause = late ? `No answer within ${limitMs / 1000} s.` : "Cannot reach the daemon.";
  return new Refused(0, `${cause} The command may have taken effect`, { unknown: cause });
}

/**
 * Send a request; gives the decoded body, or null when there is none. Throws `Refused`. A command that reaches the
 * daemon only after its time limit, because the network was away, is not carried out.
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

/** `path` with the parameters of `query` that have a value. */
export function withQuery(path, query = {}) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return pairs.length ? `${path}?${new URLSearchParams(pairs)}` : path;
}

export const get = (path, query, signal) => call(path, { query, signal });
export const post = (path, body, query, limitMs) => call(path, { method: "POST", body, query, limitMs });
export const remove = (path) => call(path, { method: "DELETE" });

/** Path of a task or service, or of what is below it. */
export const taskPath = (name, below = "") => `api/tasks/${encodeURIComponent(name)}${below && `/${below}`}`;

/** Path of a run, or of what is below it. */
export const runPath = (id, below = "") => `api/runs/${encodeURIComponent(id)}${below && `/${below}`}`;
