// Requests to the HTTP API. Paths are relative, so the dashboard works under any path prefix.

/** A refusal: `status` is that of HTTP (0: the daemon was not reached), `errors` names what was wrong where. */
export class Refused extends Error {
  constructor(status, message, errors = []) {
    super(message);
    this.status = status;
    this.errors = errors;
  }
}

let onLoggedOut = () => {};
let onUnavailable = () => {};

/** Call `listener` whenever an answer says that nobody is logged in. */
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
  const text = details || problem.detail || problem.title || `The server answered ${response.status}`;
  return new Refused(response.status, text, problem.errors ?? []);
}

/** Send a request; gives the decoded body, or null when there is none. Throws `Refused`. */
export async function call(path, { method = "GET", body, query, signal } = {}) {
  const options = { method, signal, headers: { Accept: "application/json" } };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let response;
  try {
    response = await fetch(withQuery(path, query), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The daemon cannot be reached");
  }
  if (response.status === 401 && !path.startsWith("api/auth/")) onLoggedOut();
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
export const post = (path, body, query) => call(path, { method: "POST", body, query });
export const remove = (path) => call(path, { method: "DELETE" });

/** Path of a task or service, or of what is below it. */
export const taskPath = (name, below = "") => `api/tasks/${encodeURIComponent(name)}${below && `/${below}`}`;

/** Path of a run, or of what is below it. */
export const runPath = (id, below = "") => `api/runs/${encodeURIComponent(id)}${below && `/${below}`}`;
