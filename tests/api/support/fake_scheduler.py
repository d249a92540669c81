"""A scheduler whose decisions are the test's."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from store import accounts, audit, sessions, tokens
from store.audit import AuditEntry
from store.database import Database
from store.runs import writes as runs
from supervisor.ipc.messages import DaemonSettings, Decoder, encode
from tests.api.support.records import make_run, now_ms

_LATE = ("audit", "login_succeeded", "session_touch", "token_touch")
_UNRECORDED = ("stop", "units", "bulk_delete", "bulk_stop", "bulk_rerun")
"""Operations that answer before their effect is stored, or whose audit entry has a text of the real scheduler."""
_ENDING_S = 30.0


class Refusal(Exception):
    """What an operation of the fake scheduler answers instead of doing it."""

    def __init__(self, status: int, detail: str, errors: list[dict[str, Any]] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.errors = errors or []


class Scheduler:
    """Answers ``control.sock`` the way a test says."""

    def __init__(self, settings: DaemonSettings, db: Database, lock: threading.Lock) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        """The requests, except those after the answer to a request, perhaps in the next test."""
        self.touched: list[str] = []
        """Hashes of sessions and tokens of which it was told that they are used."""
        self.audit: list[AuditEntry] = []
        self.operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}
        self.failures: dict[str, int] = {}
        self.hooks: dict[str, dict[str, Any]] = {}
        self._path = settings.control_socket
        self._token = settings.token
        self._db = db
        self._lock = lock
        self._listener: socket.socket | None = None
        self._accepting = threading.Thread()
        self._serving: dict[socket.socket, threading.Thread] = {}
        self.defaults()
        self.start()

    def defaults(self) -> None:
        self.failures.clear()
        self.hooks.clear()
        self.operations = {
            "trigger": self._trigger,
            "stop": lambda _args: {},
            "runs_wait": lambda _args: {"runs": {}},
            "slots": lambda _args: {"slots": [], "max_running": {"limit": None, "running": 0}},
            "session_create": self._session_create,
            "session_delete": lambda args: self._with_db(sessions.delete, args["hash"]),
            "session_touch": lambda args: self._touch(sessions.touch, args["hash"]),
            "login_succeeded": lambda _args: {},
            "account_create": self._account_create,
            "account_password": lambda args: self._found(accounts.set_password, *args.values(), now_ms()),
            "account_delete": lambda args: self._found(accounts.delete, args["name"]),
            "login_attempt": lambda args: {
                "allowed": self.failures.get(args["client"], 0) < 10,
                "retry_after_s": 42,
            },
            "login_failed": self._login_failed,
            "hook": lambda args: {"hook": self.hooks.get(args["name"])},
            "notification_mark": lambda _args: {},
            "notifications_read": lambda _args: {},
            "notifiers": lambda _args: {"items": []},
            "notifier_test": lambda _args: {"error": None},
            "schedule": lambda _args: {"items": []},
            "calendars": lambda _args: {"calendars": []},
            "upcoming": lambda _args: {"items": [], "windows": [], "pause": None, "clock_changes": [], "next": None},
            "windows": lambda _args: {"windows": []},
            "window_start": lambda _args: {},
            "window_end": lambda _args: {},
            "daemon_resume": lambda _args: {},
            "service_start": lambda _args: {},
            "service_stop": lambda _args: {},
            "service_restart": lambda _args: {},
            "task_pause": lambda _args: {},
            "acknowledge": lambda _args: {},
            "unacknowledge": lambda _args: {},
            "task_resume": lambda _args: {},
            "units": lambda args: {"units": [[name, "started", []] for name in args["names"] or ()]},
            "clock_trust": lambda _args: {},
            "reload": lambda _args: {"added": [], "changed": [], "removed": [], "warnings": []},
            "database_damaged": lambda _args: {},
            "token_create": self._token_create,
            "token_delete": self._token_delete,
            "token_touch": lambda args: self._touch(tokens.touch, args["hash"]),
            "audit": self._audit,
            "info": lambda _args: {
                "pid": os.getpid(),
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

    def _touch(self, function: Callable[[Database, str, int], Any], digest: str) -> dict[str, Any]:
        self.touched.append(digest)
        return self._with_db(function, digest, now_ms())

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
                raise Refusal(409, "A token with this name already exists")
        return {}

    def _token_delete(self, args: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            return {"found": tokens.delete(self._db, args["name"])}

    def _account_create(self, args: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            if accounts.create(self._db, accounts.Account(**args)):
                raise Refusal(409, "An account with this name already exists")
        return {}

    def _found(self, function: Callable[..., bool], *args: Any) -> dict[str, Any]:
        with self._lock:
            return {"found": function(self._db, *args)}

    def _audit(self, args: dict[str, Any]) -> dict[str, Any]:
        by_key = {key: AuditEntry(*entry) for key, entry in args["entries"].items()}
        answer = self._with_db(audit.append, by_key)
        self.audit += by_key.values()
        return answer

    def _login_failed(self, args: dict[str, Any]) -> dict[str, Any]:
        self.failures[args["client"]] = self.failures.get(args["client"], 0) + 1
        return {}

    def start(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._path)
        self._listener.listen(64)
        self._accepting = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        self._accepting.start()

    def stop(self) -> None:
        """Be away."""
        assert self._listener is not None
        os.unlink(self._path)
        # Closing alone would not wake the thread that waits in accept.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._listener = None
        for sock in list(self._serving):
            self._hang_up(sock)

    @staticmethod
    def _hang_up(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):  # its thread has just closed it
            sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Be away for good, and carry out nothing any more."""
        self.stop()
        self._accepting.join()
        for thread in list(self._serving.values()):
            thread.join(_ENDING_S)

    def die_after(self, name: str) -> None:
        """Carry out the next operation of that name, and be away before it is answered."""
        plain = self.operations[name]

        def store_and_die(args: dict[str, Any]) -> dict[str, Any]:
            self.operations[name] = plain
            plain(args)
            self.stop()
            raise ConnectionAbortedError

        self.operations[name] = store_and_die

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            thread = self._serving[sock] = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            if self._listener is not listener:  # it went away meanwhile, and did not know of this one
                self._hang_up(sock)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            self._converse(sock)
        finally:
            del self._serving[sock]

    def _converse(self, sock: socket.socket) -> None:
        decoder = Decoder()
        with sock, contextlib.suppress(ConnectionResetError):
            while data := sock.recv(65536):
                for frame in decoder.feed(data):
                    if frame["op"] == "hello":
                        assert frame["token"] == self._token
                        continue
                    if frame["op"] not in _LATE:
                        self.calls.append((frame["op"], frame["args"]))
                    # An operation that aborts, or an answer that comes too late, ends the connection.
                    try:
                        sock.sendall(encode({"id": frame["id"], **self._answer(frame)}))
                    except ConnectionError:
                        return

    def _answer(self, frame: dict[str, Any]) -> dict[str, Any]:
        entry = frame.get("audit")
        try:
            result = self.operations[frame["op"]](frame["args"])
            if entry is None or frame["op"] in _UNRECORDED or not result.get("found", True):
                return {"ok": True, "result": result}
            self._audit({"entries": dict([entry])})
            return {"ok": True, "result": result, "recorded": True}
        except Refusal as err:
            return {"ok": False, "status": err.status, "detail": str(err), "errors": err.errors}
