"""Text from outside that tries to look like lines of the daemon's log, or like entries of the audit."""

import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from api.auth.auditor import Auditor
from api.read_threads import DatabaseReads
from api.server.log_format import MessageLimitFilter
from logring.log_paths import log_path
from store.audit import AuditEntry
from store.errors import ServerUnreachable
from supervisor.ipc.control_client import ControlClient
from tests.api.support.credentials import basic, login
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run
from tests.support.waiting import until

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) api: ")
FORGED = "2026-11-21T00:00:00.000Z ERROR api: forged"


@pytest.fixture
def talkative(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A server that logs every refusal."""
    daemon = Daemon(tmp_path_factory.mktemp("talkative"), log_level="debug")
    yield daemon
    daemon.close()


def test_clients_cannot_forge_log_lines(talkative: Daemon) -> None:
    """Paths, headers, queries and bodies cannot forge a line of the log: each line begins as ours do."""
    forged = FORGED.replace(" ", "%20")
    for target in (f"/x%0a{forged}", f"/x%0d{forged}", f"/api/runs?limit=%0a{forged}", f"/api/tasks/%0a{forged}"):
        talkative.get(target)
        talkative.get(target, {"User-Agent": f"x\t{FORGED}", "Referer": FORGED}, unix=False)
    login(talkative, f"wrong\\n{FORGED}")
    talkative.get("/api/runs", basic(f"wrong\n{FORGED}", f"user\n{FORGED}"), unix=False)
    for request in (f"GET /\n{FORGED} HTTP/1.1", f"BAD\x85{FORGED}", f"GET /{FORGED}\r{FORGED} HTTP/9"):
        with socket.create_connection(("127.0.0.1", talkative.port)) as sock:
            sock.sendall(request.encode("latin-1") + b"\r\n\r\n")
            sock.recv(65536)
    text = talkative.log.read_bytes().decode()
    lines = text.split("\n")
    assert len(lines) > 5
    assert [line for line in lines if line and not LINE.match(line)] == []
    assert not any(line.startswith(FORGED) for line in lines)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


def test_clients_cannot_forge_audit_entries(own: Daemon) -> None:
    """No field of an audit entry contains a line break, a control character or a direction mark."""
    own.scheduler.audit.clear()
    auditor = Auditor(ControlClient(own.settings.control_socket, own.settings.token), own.settings.audit_dir)
    evil = "a\nb\rc\x1b[2Jd\u202ee\u2028f\x00" + "x" * 10_000
    auditor.record(auditor.entry("login", who=evil, address=evil, status=200, target=evil, reason=evil))

    def arrived() -> bool:
        auditor.flush()
        return bool(own.scheduler.audit)

    until(arrived, "the entry")
    (entry,) = own.scheduler.audit
    assert isinstance(entry, AuditEntry)
    for text in (entry.who, entry.address, entry.target, entry.reason):
        assert text.isprintable()
        assert len(text) <= 300


@pytest.mark.parametrize(
    "data",
    [
        b'POST /api/auth/login HTTP/1.1\r\nHost: localhost\r\n\r\n{"password": "pass-word"}\r\n',
        b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization Bearer pass-word\r\n\r\n",
        b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer pass-word",
    ],
    ids=["no-length", "no-colon", "half"],
)
def test_invalid_requests_are_not_quoted(talkative: Daemon, data: bytes) -> None:
    """The log does not quote an unparsable request, because it may contain a credential."""
    with socket.create_connection(("127.0.0.1", talkative.port)) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            pass
    until(lambda: re.search("Invalid request|disconnected within", talkative.log.read_text()), "the log to tell of it")
    assert "pass-word" not in talkative.log.read_text()


def test_impossible_requests_are_not_logged(own: Daemon) -> None:
    """Requests that cannot be served are no errors of ours: if each were logged, anybody could flush the log."""
    for _ in range(30):
        with socket.create_connection(("127.0.0.1", own.port)) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: new\r\n\r\n")
            assert sock.recv(65536).startswith(b"HTTP/1.1 501 ")
    assert " ERROR " not in own.log.read_text()


def test_unreadable_database_does_not_flood_the_log(own: Daemon) -> None:
    """While credentials cannot be looked up, the log says why and how often, but has no line per request."""
    with open(own.settings.database, "r+b") as file:
        file.write(bytes(4096))
    for suffix in ("-wal", "-shm"):
        Path(f"{own.settings.database}{suffix}").unlink(missing_ok=True)
    for _ in range(30):
        answer = own.get("/api/runs", {"Authorization": f"Bearer rw_{'A' * 43}"}, unix=False)
        assert answer.status == 503
    assert 1 <= own.log.read_text().count("cannot read the database") <= 10


def test_streams_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Streams retry a missing database every few seconds, and log that as rarely as requests do."""
    reads = DatabaseReads("", lambda _error: None)
    for subject in ("rows of watched runs", "a token", "the newest sample") * 10:
        reads.log_unreadable(subject, ServerUnreachable())
    assert len(caplog.records) == 1


def test_unreadable_run_log_does_not_flood_the_log(own: Daemon) -> None:
    """Repeated requests for an unreadable log do not fill the daemon's log."""
    run = own.insert(make_run(task="log", status="ended", end_reason="failed", exit_code=1, started_at=1, ended_at=2))
    path = Path(log_path(own.settings.data_dir, run.task_name, run.id))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"something else" * 1000)
    for _ in range(30):
        assert own.get(f"/api/runs/{run.id}/log").status == 500
    assert own.log.read_text().count("cannot be read") == 10


def test_suppressed_lines_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next line of the same kind has the number of suppressed lines; other kinds are logged meanwhile."""
    now_s = 0.0
    monkeypatch.setattr("api.server.log_format.time", SimpleNamespace(monotonic=lambda: now_s))
    bounded = MessageLimitFilter()

    def logged(text: str, level: int = logging.WARNING) -> str | None:
        record = logging.LogRecord("api", level, "", 0, text, ("50%",), None)
        return record.getMessage() if bounded.filter(record) else None

    assert [logged("%s full") for _ in range(12)] == ["50% full"] * 10 + [None] * 2
    assert logged("%s empty") == "50% empty"
    assert [logged("%s is well", logging.INFO) for _ in range(12)] == ["50% is well"] * 12
    now_s = 60.0
    assert logged("%s full") == "50% full (and 2 earlier ones, not logged)"
    assert logged("%s full") == "50% full"


def test_kinds_of_lines_are_bounded() -> None:
    """An endless number of kinds of lines takes a bounded amount of memory."""
    bounded = MessageLimitFilter()
    for number in range(5000):
        assert bounded.filter(logging.LogRecord("api", logging.ERROR, "", 0, str(number), (), None))
    assert len(bounded._kinds) <= 1000
