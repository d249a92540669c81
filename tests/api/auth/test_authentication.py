"""Who may call what."""

import base64
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from store import sessions
from tests.api.support.credentials import basic, cookie, login
from tests.api.support.harness import PASSWORD, Daemon
from tests.api.support.records import make_run
from tests.support.waiting import until

PRIVATE = (
    "/api/tasks",
    "/api/tasks/job",
    "/api/tasks/job/runs",
    "/api/runs",
    "/api/runs/01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "/api/runs/01ARZ3NDEKTSV4RRFFQ69G5FAV/log",
    "/api/runs/01ARZ3NDEKTSV4RRFFQ69G5FAV/log/raw",
    "/api/runs/01ARZ3NDEKTSV4RRFFQ69G5FAV/log/stream",
    "/api/daemon",
    "/api/daemon/log/stream",
    "/api/events/stream",
)


@pytest.mark.parametrize("path", PRIVATE)
def test_tcp_requires_authentication(daemon: Daemon, path: str) -> None:
    """TCP clients without a credential get 401 with WWW-Authenticate, on loopback too."""
    answer = daemon.get(path, unix=False)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"].startswith("Basic ")


def test_commands_need_authentication(daemon: Daemon) -> None:
    """A trigger without a credential gets 401, and the scheduler is not asked."""
    assert daemon.ask("POST", "/api/tasks/job/run", unix=False).status == 401
    assert daemon.scheduler.calls == []


def test_pages_get_no_password_dialog(daemon: Daemon) -> None:
    """Requests of pages get no WWW-Authenticate, because the browser would open its own dialog."""
    answer = daemon.get("/api/runs", {"Sec-Fetch-Mode": "cors"}, unix=False)
    assert answer.status == 401
    assert "WWW-Authenticate" not in answer.headers


@pytest.mark.parametrize(
    "path", ["/", "/static/js/main.js", "/openapi.json", "/api/auth/status", "/healthz", "/readyz"]
)
def test_public_resources(daemon: Daemon, path: str) -> None:
    """Without authentication, only static files, the API document, the login state and probes are available."""
    assert daemon.get(path, unix=False).status == 200


def test_basic(daemon: Daemon) -> None:
    """HTTP Basic with the password works."""
    assert daemon.get("/api/runs", basic(PASSWORD), unix=False).status == 200
    assert daemon.get("/api/runs", basic(PASSWORD, ""), unix=False).status == 200
    assert daemon.get("/api/auth/status", basic(PASSWORD), unix=False).json["method"] == "password"


@pytest.mark.parametrize("header", ["Basic", "Basic !!!", "Basic " + base64.b64encode(b"nocolon").decode(), "Bearer x"])
def test_invalid_basic_credentials(daemon: Daemon, header: str) -> None:
    """Invalid Basic credentials get 401, but do not count as a wrong password."""
    assert daemon.get("/api/runs", {"Authorization": header}, unix=False).status == 401
    assert daemon.scheduler.failures == {}


def test_hung_scheduler_delays_a_login_by_a_second(real: Daemon) -> None:
    """After a second, the worker checks the password without the scheduler; logins in the next second do not wait."""
    release = threading.Event()
    real.scheduler.operations["login_attempt"] = lambda _args: {"allowed": release.wait()}
    begin_s = time.monotonic()
    try:
        assert [real.get("/api/runs", basic(PASSWORD), unix=False).status for _ in range(5)] == [200] * 5
        attempts = [name for name, _ in real.scheduler.calls].count("login_attempt")
        assert 1 <= attempts <= (time.monotonic() - begin_s) / 2 + 1
    finally:
        release.set()


def test_a_connection_proves_the_password_once(daemon: Daemon) -> None:
    """Further requests on a connection do not ask the scheduler again; another password on it is checked."""
    connection = daemon.connect()
    statuses = []
    for password in (PASSWORD, PASSWORD, "wrong", PASSWORD):
        connection.request("GET", "/api/auth/status", headers=basic(password))
        response = connection.getresponse()
        statuses.append(b'"authenticated":true' in response.read())
    connection.close()
    assert statuses == [True, True, False, True]
    assert [op for op, _ in daemon.scheduler.calls] == ["login_attempt", "login_attempt", "login_failed"]


def test_session(daemon: Daemon) -> None:
    """A login returns a cookie that is valid until the logout; its name contains the daemon's id."""
    answer = login(daemon)
    assert answer.status == 204
    parts = answer.headers["Set-Cookie"].split("; ")
    assert parts[0].startswith(f"ringward_{daemon.settings.daemon_id.lower()}=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(parts)
    assert "Secure" not in parts
    session = cookie(answer)
    assert daemon.get("/api/auth/status", session, unix=False).json["method"] == "session"
    assert daemon.get("/api/runs", session, unix=False).status == 200
    ended = daemon.ask("POST", "/api/auth/logout", headers=session, unix=False)
    assert ended.status == 204
    (expires,) = re.findall("expires=([^;]+)", ended.headers["Set-Cookie"])
    assert parsedate_to_datetime(expires) < datetime.now(UTC)  # it is to be forgotten
    assert daemon.get("/api/runs", session, unix=False).status == 401
    assert daemon.get("/api/auth/status", session, unix=False).json["authenticated"] is False


def test_sessions_are_stored_hashed(daemon: Daemon) -> None:
    """The store contains neither the session's token nor the password."""
    token = cookie(login(daemon))["Cookie"].partition("=")[2]
    _, created = next(call for call in daemon.scheduler.calls if call[0] == "session_create")
    assert token not in str(created)
    assert PASSWORD not in str(created)
    with daemon.lock:
        assert sessions.get(daemon.db, created["hash"], 0) is not None


def test_forged_cookie(daemon: Daemon) -> None:
    """A forged cookie gets 401."""
    name = f"ringward_{daemon.settings.daemon_id.lower()}"
    assert daemon.get("/api/runs", {"Cookie": f"{name}=guess"}, unix=False).status == 401


def test_only_a_few_cookies_are_checked(daemon: Daemon) -> None:
    """Only a few cookies with the name are checked; a logout without a session makes no request."""
    name, _, token = cookie(login(daemon))["Cookie"].partition("=")
    daemon.scheduler.calls.clear()
    for forged, status in ((3, 200), (100, 401)):
        header = "; ".join([f"{name}=guess{number}" for number in range(forged)] + [f"{name}={token}"])
        assert daemon.get("/api/runs", {"Cookie": header}, unix=False).status == status
    assert daemon.ask("POST", "/api/auth/logout", headers={"Cookie": f"{name}=guess"}, unix=False).status == 204
    assert daemon.scheduler.calls == []


def test_session_without_a_database(own: Daemon) -> None:
    """Without a database, a session gets 503, since the failure is temporary and not the client's."""
    session = cookie(login(own))
    until(lambda: own.scheduler.audit, "the audit")  # it is written after the answer
    os.rename(own.settings.database, f"{own.settings.database}.away")
    os.mkdir(own.settings.database)  # else the writer puts the file back
    try:
        answer = own.get("/api/runs", session, unix=False)
        assert answer.status == 503
        assert "Retry-After" in answer.headers
    finally:
        os.rmdir(own.settings.database)
        os.rename(f"{own.settings.database}.away", own.settings.database)
    assert own.get("/api/runs", session, unix=False).status == 200


def test_password_change_ends_sessions(daemon: Daemon) -> None:
    """Sessions of an old password are refused."""
    answer = login(daemon)
    _, created = next(call for call in daemon.scheduler.calls if call[0] == "session_create")
    with daemon.lock:
        sessions.delete(daemon.db, created["hash"])
        sessions.create(daemon.db, created["hash"], "0" * 32, time.time_ns() // 1_000_000)
    assert daemon.get("/api/runs", cookie(answer), unix=False).status == 401


def test_logout_ends_streams(daemon: Daemon) -> None:
    """A logout ends the streams of its session, without ``done``."""
    session = cookie(login(daemon))
    run = daemon.insert(make_run(task="watched"))
    stream = daemon.stream(f"/api/runs/{run.id}/log/stream", session, unix=False)
    assert daemon.ask("POST", "/api/auth/logout", headers=session, unix=False).status == 204
    assert list(stream.events()) == []
    stream.close()


_AS_OTHER = """
import http.client, os, socket, sys
os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(sys.argv[1])
connection.request("GET", "/api/runs")
print(connection.getresponse().read().decode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user")
@pytest.mark.parametrize(
    ("uid", "reason"),
    [
        (12345, "the Unix socket trusts only root and the daemon's user, and the client is user 12345"),
        (65534, "user 65534 is never trusted, because it stands for all users that a user namespace cannot map"),
    ],
)
def test_other_user_on_the_unix_socket(tmp_path: Path, uid: int, reason: str) -> None:
    """Another user on the Unix socket, or the overflow uid, needs a credential; the answer says why."""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        os.chmod(folder, 0o711)
        path = f"{folder}/http.sock"
        daemon = Daemon(tmp_path, http_socket=path)
        try:
            os.chmod(path, 0o666)
            result = subprocess.run(
                [sys.executable, "-I", "-c", _AS_OTHER, path, str(uid)], capture_output=True, text=True
            )
        finally:
            daemon.close()
    refusal = json.loads(result.stdout)
    assert (refusal["status"], refusal["detail"]) == (401, f"Not authenticated: {reason}"), result.stderr


@pytest.mark.parametrize("name", [b"\0\xff\xfe", b"10.1.2.3"])
def test_names_of_unix_clients(daemon: Daemon, tmp_path: Path, name: bytes) -> None:
    """The address that a Unix client has bound is neither trusted nor shown, and may be invalid text."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(name + str(daemon.port).encode() if name.startswith(b"\0") else bytes(tmp_path / name.decode()))
        sock.connect(daemon.settings.http_socket)
        (header,) = basic(PASSWORD).values()
        sock.sendall(
            b"POST /api/tasks/job/run HTTP/1.1\r\nHost: x\r\nCookie: x=y\r\nConnection: close\r\n"
            b"Authorization: %b\r\n\r\n" % header.encode()
        )
        assert sock.recv(4096).startswith(b"HTTP/1.1 201 ")
    assert daemon.scheduler.calls[-1][1]["by"] == "user admin"


def test_local_credentials(daemon: Daemon) -> None:
    """Only a trusted peer of the Unix socket gets the generated password."""
    assert daemon.get("/api/local/credentials").json["password"] == PASSWORD
    assert daemon.get("/api/local/credentials").json["ephemeral"] is True
    assert daemon.get("/api/local/credentials", unix=False).status == 403
    assert daemon.get("/api/local/credentials", basic(PASSWORD), unix=False).status == 403


def test_a_configured_password_is_not_shown(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A configured password gets 404."""
    daemon = Daemon(tmp_path_factory.mktemp("configured"), password_ephemeral=False)
    try:
        assert daemon.get("/api/local/credentials").status == 404
    finally:
        daemon.close()


def test_sessions_report_their_use(daemon: Daemon) -> None:
    """The API reports to the scheduler at intervals that a session is in use, which keeps the session valid."""
    answer = login(daemon)
    _, created = next(call for call in daemon.scheduler.calls if call[0] == "session_create")
    with daemon.lock:
        sessions.touch(daemon.db, created["hash"], time.time_ns() // 1_000_000 - 3_600_000)
    assert daemon.get("/api/runs", cookie(answer), unix=False).status == 200
    until(lambda: created["hash"] in daemon.scheduler.touched, "the session to be touched")
