// A small view of tasks, runs and one live log. Text from outside is only ever set as text.
const SHOWN_LINES = 5000;
const byId = (id) => document.getElementById(id);
let source = null;

async function call(path, options = {}) {
  const response = await fetch(path, options);
  if (response.status === 401) { show(false); throw new Error("Not logged in"); }
  if (!response.ok) throw new Error((await response.json()).detail);
  return response.status === 204 ? null : response.json();
}

function show(loggedIn) {
  byId("login").hidden = loggedIn;
  byId("app").hidden = byId("logout").hidden = !loggedIn;
  if (loggedIn) refresh();
}

function row(cells, ...buttons) {
  const line = document.createElement("tr");
  for (const text of cells) line.insertCell().textContent = text ?? "";
  const last = line.insertCell();
  for (const [label, action] of buttons) {
    const button = document.createElement("button");
    button.textContent = label;
    button.onclick = () => action().catch((error) => alert(error.message));
    last.append(button, " ");
  }
  return line;
}

const time = (text) => (text ? new Date(text).toLocaleString() : "");
const state = (run) => (run ? run.endReason ?? run.status : "");

async function refresh() {
  const [tasks, runs] = await Promise.all([call("api/tasks"), call("api/runs?naming=camel&limit=30")]);
  byId("tasks").replaceChildren(...tasks.items.map((task) => {
    const active = task.active.running + task.active.pending;
    const now = task.kind === "service" ? task.state : active ? `${active} active` : "";
    const buttons = task.kind === "task" ? [["Run", () => run(task.name)]] : [];
    return row([task.name, now, state(task.lastRun), time(task.nextRunAt)], ...buttons);
  }));
  byId("runs").replaceChildren(...runs.runs.map((one) => {
    const buttons = [["Log", () => follow(one.id)]];
    if (one.status !== "ended") buttons.push(["Stop", () => call(`api/runs/${one.id}/stop`, { method: "POST" })]);
    const code = one.status === "ended" ? String(one.exitCode) : "";
    return row([one.id, one.taskName, state(one), code, time(one.createdAt)], ...buttons);
  }));
}

async function run(name) {
  const started = await call(`api/tasks/${encodeURIComponent(name)}/run`, { method: "POST" });
  await follow(started.id);
}

async function follow(id) {
  source?.close();
  const log = byId("log");
  log.replaceChildren();
  log.hidden = byId("log-title").hidden = false;
  byId("log-title").textContent = `Log of ${id}`;
  const write = (text, kind) => {
    const line = document.createElement("div");
    line.className = kind;
    line.textContent = text || " ";
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    log.append(line, ...drawn.values());
    while (log.childElementCount > SHOWN_LINES) log.firstChild.remove();
    if (atEnd) log.scrollTop = log.scrollHeight;
  };
  const drawn = new Map();
  const draw = ({ stream, rows }) => {
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    drawn.get(stream)?.remove();
    drawn.delete(stream);
    if (rows.length) {
      const block = document.createElement("div");
      block.className = `${stream} drawn`;
      block.textContent = rows.join("\n");
      drawn.set(stream, block);
      log.append(block);
    }
    if (atEnd) log.scrollTop = log.scrollHeight;
  };
  source = new EventSource(`api/runs/${id}/log/stream`);
  source.addEventListener("line", (event) => {
    const line = JSON.parse(event.data);
    write(line.text, line.stream);
  });
  source.addEventListener("region", (event) => draw(JSON.parse(event.data)));
  source.addEventListener("dropped", (event) => write(`${JSON.parse(event.data).count} lines are not shown`, "system"));
  source.addEventListener("done", (event) => {
    for (const stream of [...drawn.keys()]) draw({ stream, rows: [] });
    write(`The run has ${JSON.parse(event.data).status}.`, "system");
    event.target.close();
    refresh();
  });
}

function listen() {
  const events = new EventSource("api/events/stream");
  let due = null;
  const later = () => { due ??= setTimeout(() => { due = null; refresh(); }, 300); };
  for (const kind of ["run.created", "run.started", "run.ended", "service.state"]) events.addEventListener(kind, later);
}

byId("login").onsubmit = async (event) => {
  event.preventDefault();
  const body = JSON.stringify({ password: byId("password").value });
  const headers = { "Content-Type": "application/json" };
  const response = await fetch("api/auth/login", { method: "POST", body, headers });
  byId("problem").textContent = response.ok ? "" : (await response.json()).detail;
  if (response.ok) { byId("password").value = ""; show(true); listen(); }
};
byId("logout").onclick = async () => { await call("api/auth/logout", { method: "POST" }); location.reload(); };

const status = await call("api/auth/status");
show(status.authenticated);
if (status.authenticated) listen();
