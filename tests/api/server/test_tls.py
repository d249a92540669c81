"""TLS on all TCP addresses, and none on the Unix socket."""

import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.api.support.client import DEADLINE_S, Stream
from tests.api.support.credentials import basic
from tests.api.support.harness import PASSWORD, Daemon
from tests.api.support.records import make_run
from tests.support.paths import TLS
from tests.support.waiting import until

CERT, KEY = str(TLS / "cert.pem"), str(TLS / "key.pem")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    daemon = Daemon(
        tmp_path_factory.mktemp("tls"), tls_cert=CERT, tls_key=KEY, hosts=["ringward.test", "*.example.test"]
    )
    yield daemon
    daemon.close()


def connect(daemon: Daemon) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cafile=CERT)
    return http.client.HTTPSConnection("127.0.0.1", daemon.port, timeout=DEADLINE_S, context=context)


def ask(daemon: Daemon, method: str, path: str, headers: dict[str, str], body: str | None = None) -> tuple[int, str]:
    """Status, and the header that matters in these tests."""
    connection = connect(daemon)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        text = response.read().decode()
        return response.status, response.headers.get("Set-Cookie") or text
    finally:
        connection.close()


def test_requests(secure: Daemon) -> None:
    """Requests under the certificate's names are answered, with https links."""
    for host in ("127.0.0.1", "ringward.test", "jobs.example.test"):
        status, text = ask(secure, "GET", "/api/tasks", {"Host": host, **basic(PASSWORD)})
        assert status == 200
        assert f"https://{host}/schemas/Tasks.json" in text
    for host in ("example.test", "a.b.example.test", "evil.example"):
        assert ask(secure, "GET", "/api/tasks", {"Host": host, **basic(PASSWORD)})[0] == 421


def test_cookies_are_secure(secure: Daemon) -> None:
    """A session cookie from TLS is never sent without it."""
    body = f'{{"password": "{PASSWORD}"}}'
    headers = {"Content-Type": "application/json", "Origin": f"https://127.0.0.1:{secure.port}"}
    status, cookie = ask(secure, "POST", "/api/auth/login", headers, body)
    assert status == 204
    assert "Secure" in cookie.split("; ")
    headers["Origin"] = headers["Origin"].replace("https", "http")
    assert ask(secure, "POST", "/api/auth/login", headers, body)[0] == 403


def test_streams(secure: Daemon) -> None:
    """A run's log arrives line by line, to its end."""
    run = secure.insert(make_run())
    log = secure.log_of(run)
    stream = Stream(connect(secure), f"/api/runs/{run.id}/log/stream", basic(PASSWORD))
    log.write(b"one\n")
    (event,) = stream.take(1)
    assert event.data["text"] == "one"
    log.finish()
    secure.end(run.id)
    assert [event.name for event in stream.events()] == ["done"]
    stream.close()


def test_disconnect_is_noticed(secure: Daemon) -> None:
    """An idle stream ends when its client closes the TLS session, as without TLS."""
    run = secure.insert(make_run())
    (worker,) = secure.workers()

    def clients() -> int:
        connections = psutil.Process(worker).net_connections("tcp")
        return sum(connection.laddr.port == secure.port and bool(connection.raddr) for connection in connections)

    headers = basic(PASSWORD)
    first = Stream(connect(secure), f"/api/runs/{run.id}/log/stream", headers)
    until(lambda: clients() == 1, "connections of other tests to end")
    streams = [Stream(connect(secure), f"/api/runs/{run.id}/log/stream", headers) for _ in range(10)]
    assert clients() == 11
    for stream in streams:
        stream.close()
    until(lambda: clients() == 1, "the streams' sockets to be closed")
    first.close()


def test_renewed_certificate(tmp_path: Path) -> None:
    """New connections get the new certificate; while its files are being replaced, the old one is used."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    shutil.copy(CERT, cert)
    shutil.copy(KEY, key)
    daemon = Daemon(tmp_path, tls_cert=str(cert), tls_key=str(key))

    def shown() -> bytes:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        plain = socket.create_connection(("127.0.0.1", daemon.port))
        with context.wrap_socket(plain) as sock:
            return sock.getpeercert(binary_form=True) or b""

    try:
        first = shown()
        os.replace(shutil.copy(TLS / "other_key.pem", tmp_path / "new"), key)
        assert shown() == first
        cert.unlink()
        assert shown() == first
        os.replace(shutil.copy(TLS / "other_cert.pem", tmp_path / "new"), cert)
        assert shown() not in (first, b"")
    finally:
        daemon.close()


def test_unusable_renewed_certificate(tmp_path: Path) -> None:
    """The log names the error once and asks for no passphrase; a correction needs no restart."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    shutil.copy(CERT, cert)
    shutil.copy(KEY, key)
    daemon = Daemon(tmp_path, tls_cert=str(cert), tls_key=str(key))
    try:
        assert ask(daemon, "GET", "/healthz", {})[0] == 200
        (before,) = daemon.workers()
        locked = ["openssl", "pkey", "-in", KEY, "-aes128", "-passout", "pass:passphrase", "-out", str(key)]
        subprocess.run(locked, check=True, capture_output=True)
        os.kill(before, signal.SIGKILL)
        until(lambda: daemon.get("/healthz").status == 200 and daemon.workers() != [before], "another worker")
        for _ in range(3):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                ask(daemon, "GET", "/healthz", {})
        assert daemon.log.read_text().count("the certificate cannot be used: [Errno 22] tls_key is locked") == 1
        assert "Enter PEM" not in daemon.log.read_text()
        shutil.copy(KEY, key)
        assert ask(daemon, "GET", "/healthz", {})[0] == 200
    finally:
        daemon.close()


def test_unix_socket_without_tls(secure: Daemon) -> None:
    """The Unix socket needs no TLS, and its requests do not count as https."""
    answer = secure.get("/api/tasks")
    assert answer.status == 200
    assert answer.json["$schema"].startswith("http://")


def test_plain_http_on_a_tls_port(secure: Daemon) -> None:
    """A client without TLS gets an error for any request, and delays no other."""
    with socket.create_connection(("127.0.0.1", secure.port)) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        response = http.client.HTTPResponse(sock)
        response.begin()
        assert response.status == 400
        assert "https://" in json.loads(response.read())["detail"]
    assert ask(secure, "GET", "/healthz", {})[0] == 200


def test_stalled_handshake_does_not_delay_others(secure: Daemon) -> None:
    """Other clients are served during a stalled handshake."""
    with socket.create_connection(("127.0.0.1", secure.port)) as silent:
        silent.sendall(b"\x16\x03\x01")
        assert ask(secure, "GET", "/healthz", {})[0] == 200


def test_http_2_is_not_offered(secure: Daemon) -> None:
    """HTTP/2 is not offered, because one stream would delay all others on its connection."""
    context = ssl.create_default_context(cafile=CERT)
    context.set_alpn_protocols(["h2", "http/1.1"])
    plain = socket.create_connection(("127.0.0.1", secure.port))
    with context.wrap_socket(plain, server_hostname="ringward.test") as sock:
        assert sock.selected_alpn_protocol() != "h2"
        assert sock.version() in ("TLSv1.2", "TLSv1.3")
