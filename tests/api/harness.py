"""The real API server as a child process, between a fake root and a fake scheduler.

Everything that the server talks to is real (sockets, frames, rings, database); only the decisions behind it are the
test's.
"""

import contextlib
import fcntl
import http.client
import json
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logring.layout import STDOUT
from logring.logfile import LogFileWriter
from logring.paths import log_path, ring_path
from logring.writer import RingWriter
from store import audit, runs, sessions, tokens
from store.audit import Entry
from store.database import Database, open_writer
from store.ids import new_ulid
from store.runs import Run
from supervisor.doorbell import DoorbellServer
from supervisor.messages import PROTOCOL, Boot, Decoder, encode
from tests.api.schema_check import check, check_answer, event_schema
from tests.waiting import until

PASSWORD = "correct horse battery"
TOKEN = "token-of-this-start"
FILE_BLOCKS = 64
DEADLINE_S = 30.0
CHECKED_LINES = 100


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Refusal(Exception):
    """What an operation of the fake scheduler answers instead of doing it."""

    def __init__(self, status: int, detail: str, errors: list[dict[str, Any]] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.errors = errors or []


class Scheduler:
    """Answers ``control.sock`` the way a test says."""

    def __init__(self, path: str, db: Database, lock: threading.Lock) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        """What was asked, apart from what it was told for the audit."""
        self.audit: list[Entry] = []
        self.operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}
        self.failures: dict[str, int] = {}
        self._path = path
        self._db = db
        self._lock = lock
        self._listener: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self.defaults()
        self.start()

    def defaults(self) -> None:
        self.failures.clear()
        self.operations = {
            "trigger": self._trigger,
            "stop": lambda _args: {},
            "session_create": self._session_create,
            "session_delete": lambda args: self._with_db(sessions.delete, args["hash"]),
            "session_touch": lambda args: self._with_db(sessions.touch, args["hash"], now_ms()),
            "login_attempt": lambda args: {
                "allowed": self.failures.get(args["client"], 0) < 10,
                "retry_after_s": 42,
            },
            "login_failed": self._login_failed,
            "notification_mark": lambda _args: {},
            "notifications_read": lambda _args: {},
            "notifiers": lambda _args: {"items": []},
            "notifier_test": lambda _args: {"error": None},
            "schedule": lambda _args: {"items": []},
            "service_start": lambda _args: {},
            "service_stop": lambda _args: {},
            "service_restart": lambda _args: {},
            "task_pause": lambda _args: {},
            "task_resume": lambda _args: {},
            "reload": lambda _args: {"added": [], "changed": [], "removed": [], "warnings": []},
            "token_create": self._token_create,
            "token_delete": self._token_delete,
            "token_touch": lambda args: self._with_db(tokens.touch, args["hash"], now_ms()),
            "audit": self._audit,
            "info": lambda _args: {
                "config_path": "/etc/ringward.toml",
                "config_loaded_at": 1_700_000_000_000,
                "config_warnings": ["a warning"],
                "timezone": "Europe/Berlin",
                "tasks": 2,
                "services": 1,
            },
        }

    def _with_db(self, function: Callable[..., Any], *args: Any) -> dict[str, Any]:
        with self._lock:
            function(self._db, *args)
        return {}

    def _trigger(self, args: dict[str, Any]) -> dict[str, Any]:
        if args["task"] == "unknown":
            raise Refusal(404, "There is no task unknown")
        if args["task"] == "web":
            raise Refusal(409, "web is a service")
        if args["task"] == "locked":
            raise Refusal(403, "locked may not be triggered")
        trigger, by = args["triggered_by"], args["by"]
        run = make_run(args["run"], args["task"], triggered_by=trigger, requested_by=by)
        return self._with_db(runs.insert_run, run)

    def _session_create(self, args: dict[str, Any]) -> dict[str, Any]:
        return self._with_db(sessions.create, args["hash"], args["password_tag"], now_ms())

    def _token_create(self, args: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            if tokens.create(self._db, tokens.Token(**args)):
                raise Refusal(409, "There is a token of this name already")
        return {}

    def _token_delete(self, args: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            return {"found": tokens.delete(self._db, args["name"])}

    def _audit(self, args: dict[str, Any]) -> dict[str, Any]:
        found = {key: Entry(*entry) for key, entry in args["entries"].items()}
        self.audit += found.values()
        return self._with_db(audit.append, found)

    def _login_failed(self, args: dict[str, Any]) -> dict[str, Any]:
        self.failures[args["client"]] = self.failures.get(args["client"], 0) + 1
        return {}

    def start(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._path)
        self._listener.listen(64)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def stop(self) -> None:
        """Be away."""
        assert self._listener is not None
        os.unlink(self._path)
        # Closing alone would not wake the thread that waits in accept.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._listener = None
        for sock in list(self._connections):
            with contextlib.suppress(OSError):  # its thread has just closed it
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            self._connections.add(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            self._converse(sock)
        finally:
            self._connections.discard(sock)

    def _converse(self, sock: socket.socket) -> None:
        decoder = Decoder()
        with sock, contextlib.suppress(ConnectionResetError):
            while data := sock.recv(65536):
                for frame in decoder.feed(data):
                    if frame["op"] == "hello":
                        assert frame["token"] == TOKEN
                        continue
                    if frame["op"] != "audit":
                        self.calls.append((frame["op"], frame["args"]))
                    # An operation that aborts, or an answer that comes too late: the connection is over.
                    try:
                        sock.sendall(encode({"id": frame["id"], **self._answer(frame)}))
                    except ConnectionError:
                        return

    def _answer(self, frame: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"ok": True, "result": self.operations[frame["op"]](frame["args"])}
        except Refusal as err:
            return {"ok": False, "status": err.status, "detail": str(err), "errors": err.errors}


class Bells:
    """Both doorbells, in one thread."""

    def __init__(self, boot: Boot) -> None:
        self._root = DoorbellServer(boot.root_bell, TOKEN)
        self._scheduler = DoorbellServer(boot.scheduler_bell, TOKEN)
        self._selector = selectors.DefaultSelector()
        self._closing = False
        self.muted = False
        self._wake_r, self._wake_w = os.pipe()
        self._selector.register(self._wake_r, selectors.EVENT_READ, None)
        for bell in (self._root, self._scheduler):
            self._selector.register(bell.listener, selectors.EVENT_READ, (bell, True))
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def ring(self, name: str) -> None:
        if not self.muted:
            bell = self._scheduler if name == "events" else self._root
            bell.ring([name], time.monotonic())
            os.write(self._wake_w, b".")

    def _loop(self) -> None:
        while not self._closing:
            due = [at for bell in (self._root, self._scheduler) if (at := bell.due_s()) is not None]
            wait_s = max(0.0, min(due) - time.monotonic()) if due else None
            for key, _mask in self._selector.select(wait_s):
                if key.data is None:
                    os.read(self._wake_r, 4096)
                    continue
                bell, listening = key.data
                if listening:
                    sock = bell.accept()
                    if sock is not None:
                        self._selector.register(sock.fileno(), selectors.EVENT_READ, (bell, False))
                else:
                    self._selector.unregister(key.fd)
                    if bell.readable(key.fd):
                        self._selector.register(key.fd, selectors.EVENT_READ, key.data)
            for bell in (self._root, self._scheduler):
                bell.ring([], time.monotonic())

    def close(self) -> None:
        self._closing = True
        os.write(self._wake_w, b".")
        self._thread.join()
        self._root.close()
        self._scheduler.close()
        self._selector.close()
        os.close(self._wake_r)
        os.close(self._wake_w)


def make_run(run_id: str | None = None, task: str = "job", **columns: Any) -> Run:
    """A run with everything that a row needs."""
    values: dict[str, Any] = {
        "kind": "task",
        "status": "pending",
        "end_reason": None,
        "exit_code": -1,
        "instance_index": 0,
        "retry_attempt": 0,
        "retry_of_run_id": None,
        "triggered_by": "cron",
        "created_at": now_ms(),
        **columns,
    }
    return Run(id=run_id or new_ulid(), task_name=task, **values)


@dataclass
class Answer:
    """A response, read whole."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def media_type(self) -> str:
        return self.headers.get_content_type() if "Content-Type" in self.headers else ""


class Daemon:
    """The place where the server runs, and the server."""

    def __init__(self, path: Path, **boot: Any) -> None:
        runtime, data = path / "run", path / "data"
        runtime.mkdir(mode=0o700)
        data.mkdir(mode=0o700)
        self.tcp = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self.tcp.getsockname()[1]
        self.boot = Boot(
            **{
                "daemon_id": new_ulid(),
                "data_dir": str(data),
                "runtime_dir": str(runtime),
                "config_path": "/etc/ringward.toml",
                "listen": [("127.0.0.1", self.port)],
                "http_socket": str(data / "ringward.sock"),
                "workers": 1,
                "shutdown_timeout_ms": 8000,
                "log_level": "info",
                "password": PASSWORD,
                "password_ephemeral": True,
                "token": TOKEN,
                "started_at": now_ms(),
                **boot,
            }
        )
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(self.boot.http_socket)
        self.unix.listen(512)
        self.db = open_writer(self.boot.database)
        self.lock = threading.Lock()
        self.bells = Bells(self.boot)
        self.scheduler = Scheduler(self.boot.control_socket, self.db, self.lock)
        self.events = RingWriter(ring_path(str(runtime), "events"), "events", file_blocks=0)
        self.event_count = 0
        self.log = path / "api.log"
        self.pid = 0
        self.hello: socket.socket | None = None
        self.start()

    def start(self) -> None:
        """Start the server as the root does: listeners from descriptor 3 on, then the socket for ``hello``."""
        ours, theirs = socket.socketpair()
        inherited = [self.tcp, self.unix, theirs]
        high = [fcntl.fcntl(sock, fcntl.F_DUPFD_CLOEXEC, 200) for sock in inherited]
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        actions: list[Any] = [(os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)]
        actions += [(os.POSIX_SPAWN_DUP2, fd, 3 + index) for index, fd in enumerate(high)]
        self.pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-m", "api.serve", "--fd", "5"],
            {**os.environ, "LISTEN_FDS": "2"},
            file_actions=actions,
            setsid=True,
        )
        for fd in (*high, output):
            os.close(fd)
        theirs.close()
        ours.sendall(encode({"op": "hello", "protocol": PROTOCOL, "epoch": 1, "boot": self.boot.to_dict()}))
        self.hello = ours

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def workers(self) -> list[int]:
        """Pids of the server's workers."""
        text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    def wait(self) -> int:
        """Wait for the server's end and return its status as waitpid gives it."""
        ended: list[int] = []

        def over() -> bool:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                ended.append(status)
            return bool(pid)

        until(over, "the API server to end")
        self.pid = 0
        assert self.hello is not None
        self.hello.close()
        return ended[0]

    def close(self) -> None:
        if self.pid:
            self.signal(signal.SIGTERM)
            self.wait()
        self.bells.close()
        self.scheduler.stop()
        self.events.close()
        self.db.close()
        self.tcp.close()
        self.unix.close()

    # Runs and logs

    def insert(self, run: Run) -> Run:
        with self.lock:
            runs.insert_run(self.db, run)
        return run

    def update(self, run_id: str, **columns: Any) -> None:
        with self.lock:
            runs.update_run(self.db, run_id, **columns)

    def delete(self, run_id: str) -> None:
        """Mark a run as deleted, whatever it is doing."""
        with self.lock:
            self.db.execute("INSERT INTO deleted_runs (run, deleted_at) SELECT seq, 1 FROM runs WHERE id = ?", [run_id])

    def end(self, run_id: str, reason: str = "succeeded", **columns: Any) -> None:
        """Store the end of a run, then announce it."""
        values = {"exit_code": 0, "started_at": now_ms(), "ended_at": now_ms(), **columns}
        self.update(run_id, status="ended", end_reason=reason, **values)
        self.announce("run.ended", runId=run_id)

    def announce(self, kind: str, **body: Any) -> None:
        self.event_count += 1
        text = json.dumps({"seq": self.event_count, "kind": kind, **body}, separators=(",", ":"))
        self.events.append(STDOUT, text.encode() + b"\n", now_ms())
        self.bells.ring("events")

    def log_of(self, run: Run, *, file_blocks: int = FILE_BLOCKS, block_size: int = 65536, blocks: int = 8) -> "Log":
        return Log(self, run, file_blocks, block_size, blocks)

    # HTTP

    def connect(self, *, unix: bool = False) -> http.client.HTTPConnection:
        if unix:
            return UnixConnection(self.boot.http_socket)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: dict[str, str] | None = None,
        *,
        unix: bool = True,
    ) -> Answer:
        """One request on a connection of its own, its answer held against the document."""
        answer = self.ask_raw(method, path, headers, body, unix=unix)
        checked = None if method == "HEAD" else answer.json if answer.media_type.endswith("json") else answer.body
        check_answer(method, path.partition("?")[0], answer.status, answer.media_type, checked)
        return answer

    def ask_raw(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        body: bytes | str | None = None,
        *,
        unix: bool = True,
    ) -> Answer:
        """One request on a connection of its own, its answer as it comes."""
        connection = self.connect(unix=unix)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def get(self, path: str, headers: dict[str, str] | None = None, *, unix: bool = True) -> Answer:
        return self.ask("GET", path, None, headers, unix=unix)

    def stream(self, path: str, headers: dict[str, str] | None = None, *, unix: bool = True) -> "Stream":
        return Stream(self.connect(unix=unix), path, headers or {})


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=DEADLINE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE_S)
        self.sock.connect(self._path)


class Log:
    """A log as the root writes it: the pump's part and the file thread's part."""

    def __init__(self, daemon: Daemon, run: Run, file_blocks: int, block_size: int, blocks: int) -> None:
        self._daemon = daemon
        self._run = run
        self.ring = RingWriter(
            ring_path(daemon.boot.runtime_dir, run.id),
            run.id,
            blocks=blocks,
            block_size=block_size,
            file_blocks=file_blocks,
        )
        self.file = LogFileWriter(log_path(daemon.boot.data_dir, run.task_name, run.id), self.ring, file_blocks)

    def write(self, data: bytes, stream: int = STDOUT, at_ms: int | None = None) -> None:
        """Lines or parts of lines, then the bell."""
        self.ring.append(stream, data, now_ms() if at_ms is None else at_ms)
        while not self.ring.settle():
            self.file.write_closed()
        self.file.write_closed()
        self.ring.mirror_pending()
        self._daemon.bells.ring(self._run.id)

    def finish(self) -> None:
        self.ring.seal(now_ms())
        self.file.finish()
        self._daemon.bells.ring(self._run.id)


@dataclass
class Event:
    """One server-sent event."""

    name: str
    data: Any
    id: int | None
    retry: int | None


class Stream:
    """A response that is a stream of events, read as it arrives."""

    def __init__(self, connection: http.client.HTTPConnection, path: str, headers: dict[str, str]) -> None:
        self.connection = connection
        self._path = path.partition("?")[0]
        connection.request("GET", path, headers=headers)
        self.response = connection.getresponse()
        self.status = self.response.status
        self.comments = 0
        self._checked = 0

    def events(self) -> Iterator[Event]:
        """Events until the server ends the stream."""
        fields: dict[str, str] = {}
        while line := self.response.readline():
            text = line.decode().rstrip("\n")
            if text.startswith(":"):
                self.comments += 1
            elif text:
                name, _, value = text.partition(": ")
                fields[name] = value
            elif "data" in fields:
                event = Event(
                    fields["event"],
                    json.loads(fields["data"]),
                    int(fields["id"]) if "id" in fields else None,
                    int(fields["retry"]) if "retry" in fields else None,
                )
                # Lines are many and alike.
                if self._path.endswith("/log/stream") and (event.name != "line" or self._checked < CHECKED_LINES):
                    check(event.data, event_schema(self._path, event.name))
                    self._checked += 1
                fields = {}
                yield event
            else:
                fields = {}

    def take(self, count: int) -> list[Event]:
        """The next `count` events."""
        found = []
        for event in self.events():
            found.append(event)
            if len(found) == count:
                break
        return found

    def close(self) -> None:
        self.response.close()
        self.connection.close()
