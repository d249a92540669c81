"""The real API server as a child process, between a fake root and a fake scheduler.

Everything that the server talks to is real (sockets, frames, rings, database); only the decisions behind it are the
test's.
"""

import fcntl
import http.client
import json
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any, ClassVar

from logring.layout import STDOUT, RingShape
from logring.log_paths import ring_path
from logring.ring.writer import RingWriter
from store.database import open_writer
from store.runs import writes as runs
from store.runs.ids import new_ulid
from store.runs.writes import Run
from supervisor.ipc.child_process import SOCKET_FD, rights
from supervisor.ipc.messages import DaemonSettings, hello
from tests.api.support.bells import Bells
from tests.api.support.client import DEADLINE_S, Answer, Stream
from tests.api.support.fake_scheduler import Scheduler
from tests.api.support.records import Log, now_ms
from tests.api.support.schema_check import check_answer
from tests.api.support.starting import PATIENCE, program
from tests.support.client import UnixConnection
from tests.support.daemon import PYTHON
from tests.support.waiting import until

PASSWORD = "correct horse battery"
TOKEN = "token-of-this-start"
FILE_BLOCKS = 64


class Daemon:
    """The place where the server runs, and the server."""

    constants: ClassVar = PATIENCE
    """Of the server, by module, as tests need them; what there is not is as it is."""

    def __init__(self, path: Path, **settings: Any) -> None:
        runtime, data = path / "run", path / "data"
        runtime.mkdir(mode=0o700)
        data.mkdir(mode=0o700)
        self.tcp = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self.tcp.getsockname()[1]
        self.settings = DaemonSettings(
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
                **settings,
            }
        )
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(self.settings.http_socket)
        self.unix.listen(512)
        self.proxied: socket.socket | None = None
        if self.settings.proxy_socket is not None:
            self.proxied = socket.socket(socket.AF_UNIX)
            self.proxied.bind(self.settings.proxy_socket)
            self.proxied.listen(512)
        self.db = open_writer(self.settings.database)
        self.lock = threading.Lock()
        self.bells = Bells(self.settings)
        self.scheduler = Scheduler(self.settings, self.db, self.lock)
        self.events = RingWriter.new(ring_path(str(runtime), "events"), "events", RingShape(0))
        self.event_count = 0
        self.log = path / "api.log"
        self.pid = 0
        self.hello: socket.socket | None = None
        self.start()

    def start(self) -> None:
        """Start the server as the root does, but with its log in a file."""
        ours, theirs = socket.socketpair()
        high = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, 200)
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        moves = ((output, 1), (output, 2), (high, SOCKET_FD))
        self.pid = os.posix_spawn(
            PYTHON,
            [str(PYTHON), "-I", *self.program(), "--fd", str(SOCKET_FD)],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, source, target) for source, target in moves],
            setsid=True,
        )
        for fd in (high, output):
            os.close(fd)
        theirs.close()
        listeners = [listener.fileno() for listener in (self.tcp, self.unix, self.proxied) if listener is not None]
        ours.sendmsg([hello(self.settings, 1)], rights(listeners))
        self.hello = ours

    def program(self) -> tuple[str, ...]:
        """Arguments for Python that run the server."""
        return program(self.constants)

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
        self.scheduler.close()
        self.events.close()
        self.db.close()
        self.tcp.close()
        self.unix.close()
        if self.proxied is not None:
            self.proxied.close()

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

    def log_of(self, run: Run, *, file_blocks: int = FILE_BLOCKS, block_size: int = 65536, blocks: int = 8) -> Log:
        return Log(self.settings, self.bells, run, file_blocks, block_size, blocks)

    # HTTP

    def connect(self, *, unix: bool = False) -> http.client.HTTPConnection:
        if unix:
            return UnixConnection(self.settings.http_socket, DEADLINE_S)
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
        check_answer(method, path.partition("?")[0], answer)
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

    def stream(self, path: str, headers: dict[str, str] | None = None, *, unix: bool = True) -> Stream:
        return Stream(self.connect(unix=unix), path, headers or {})
