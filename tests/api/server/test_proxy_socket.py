"""The Unix socket for proxies, and proxies on the socket that is for programs of this host."""

import json
import socket
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.api.support.client import Answer
from tests.api.support.credentials import basic
from tests.api.support.harness import PASSWORD, Daemon
from tests.support.client import TIMEOUT_S, UnixConnection
from tests.support.waiting import until

CLIENT = "203.0.113.7"
FORWARDED = {"Host": "jobs.example.com", "X-Forwarded-For": CLIENT, "X-Forwarded-Proto": "https"}
NOT_FROM_PROGRAMS = (
    "Accept-Language",
    "CDN-Loop",
    "CF-Connecting-IP",
    "CF-Ray",
    "CF-Visitor",
    "Client-IP",
    "Fastly-Client-IP",
    "Fly-Client-IP",
    "Forwarded",
    "Front-End-Https",
    "Proxy-Connection",
    "Referer",
    "Remote-User",
    "SSL-Client-Verify",
    "True-Client-IP",
    "Unlisted",
    "Via",
    "X-ARR-LOG-ID",
    "X-Amzn-Trace-Id",
    "X-Auth-Request-Email",
    "X-Azure-ClientIP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "X-Envoy-External-Address",
    "X-Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Original-Forwarded-For",
    "X-Original-URI",
    "X-Real-IP",
    "X-Request-Id",
    "X-Varnish",
    "traceparent",
)
FROM_PROGRAMS = {
    "curl": {"User-Agent": "curl/8.0", "Accept": "*/*"},
    "curl with --http2": {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQ"},
    "curl with --tr-encoding and -r": {"Connection": "TE", "TE": "gzip", "Range": "bytes=0-1"},
    "httpx": {"Accept-Encoding": "identity", "Connection": "keep-alive", "User-Agent": "python-httpx/0.27"},
    "ours": {"Accept": "text/event-stream", "Last-Event-ID": "1", "Ringward-Deadline": "2100-01-01T00:00:00Z"},
}


@pytest.mark.parametrize("name", NOT_FROM_PROGRAMS)
def test_unusual_header_removes_trust(daemon: Daemon, name: str) -> None:
    """A local proxy does not lend its uid to its clients: a header that curl would not add revokes its trust."""
    assert_distrusted(daemon, {name: "192.0.2.1"}, f"the header {name.title()}")


@pytest.mark.parametrize("host", ["d", "evil.example", "localhost:7464", "localhost.evil.example", "127.0.0.1", "-"])
def test_foreign_host_removes_trust(daemon: Daemon, host: str) -> None:
    """A proxy that adds no header still forwards the Host, so only `localhost` or none is trusted."""
    assert_distrusted(daemon, {"Host": host}, "a Host other than localhost")


def test_foreign_absolute_target_removes_trust(daemon: Daemon) -> None:
    """A host in the request target replaces the Host header."""
    assert daemon.get("http://localhost/api/runs").status == 200
    assert daemon.get("http://evil.example/api/runs").status == 401


@pytest.mark.parametrize(("version", "status"), [("1.0", 401), ("1.1", 200)])
def test_old_http_version_removes_trust(daemon: Daemon, version: str, status: int) -> None:
    """A request such as nginx forwards by default is not trusted."""
    response = raw(daemon, f"GET /api/runs HTTP/{version}\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert response.startswith(f"HTTP/{version} {status} ")


def assert_distrusted(daemon: Daemon, headers: dict[str, str], sign: str) -> None:
    refusal = daemon.get("/api/runs", headers)
    assert refusal.status == 401
    assert refusal.json["detail"] == (
        "Not authenticated: the request may be for a client of a proxy or browser, because it has "
        f"{sign}. Send a token or a password; a proxy must connect to proxy_socket in [http]"
    )
    assert daemon.get("/api/local/credentials", headers).status == 403
    assert daemon.get("/api/runs", headers | basic(PASSWORD)).status == 200
    assert daemon.get("/api/daemon/identity", headers | basic(PASSWORD)).status == 403


@pytest.mark.parametrize("client", FROM_PROGRAMS)
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", ""])
def test_programs_are_trusted(daemon: Daemon, client: str, host: str) -> None:
    """Requests as curl, HTTP libraries and Ringward's own commands send them are trusted, with the Host localhost."""
    assert daemon.get("/api/runs", {"Host": host, **FROM_PROGRAMS[client]}).status == 200


def test_request_without_a_host_is_trusted(daemon: Daemon) -> None:
    """A request without a Host header is not for another host."""
    assert raw(daemon, "GET /api/runs HTTP/1.1\r\nConnection: close\r\n\r\n").startswith("HTTP/1.1 200 ")


def raw(daemon: Daemon, request: str) -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(TIMEOUT_S)
        sock.connect(daemon.settings.http_socket)
        sock.sendall(request.encode())
        return sock.makefile("rb").read().decode()


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    path = tmp_path_factory.mktemp("proxied")
    daemon = Daemon(
        path,
        proxy_socket=str(path / "proxy.sock"),
        hosts=["jobs.example.com"],
        external_url="https://jobs.example.com",
        behind_proxy=["10.0.0.0/8"],
    )
    yield daemon
    daemon.close()


def ask(daemon: Daemon, path: str, headers: dict[str, str], method: str = "GET", body: str | None = None) -> Answer:
    assert daemon.settings.proxy_socket is not None
    connection = UnixConnection(daemon.settings.proxy_socket)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())
    finally:
        connection.close()


def test_no_peer_is_trusted(behind: Daemon) -> None:
    """On the proxy socket, even the daemon's own user needs credentials, with and without a proxy's headers."""
    for headers in ({"Host": "localhost"}, FORWARDED):
        assert ask(behind, "/api/runs", headers).status == 401
        assert ask(behind, "/api/runs", headers | basic(PASSWORD)).status == 200
        assert ask(behind, "/api/local/credentials", headers | basic(PASSWORD)).status == 403
        assert ask(behind, "/api/daemon/identity", headers | basic(PASSWORD)).status == 403
    assert behind.get("/api/runs").status == 200


def test_hosts_are_checked(behind: Daemon) -> None:
    """The proxy socket accepts only the daemon's hosts, except for probes."""
    for host, status in (("jobs.example.com", 200), ("localhost", 200), ("d", 421), ("evil.example", 421)):
        assert ask(behind, "/api/runs", {"Host": host, **basic(PASSWORD)}).status == status
        assert ask(behind, "/healthz", {"Host": host}).status == 200
    headers = {**FORWARDED, "X-Forwarded-Host": "evil.example", **basic(PASSWORD)}
    assert ask(behind, "/api/runs", headers).status == 421


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [(CLIENT, CLIENT), (f"6.6.6.6, {CLIENT}, 10.1.2.3", CLIENT), ("nonsense", "proxy"), (None, "proxy")],
)
def test_proxy_names_the_client(behind: Daemon, forwarded: str | None, client: str) -> None:
    """Wrong passwords are counted and audited by client; clients without an address share one count."""
    behind.scheduler.failures.clear()

    def audited() -> Counter[str | None]:
        return Counter(entry.address for entry in behind.scheduler.audit)

    before = audited()[client]
    headers = {"Host": "localhost", **basic("wrong")} | ({} if forwarded is None else {"X-Forwarded-For": forwarded})
    assert ask(behind, "/api/runs", headers).status == 401
    assert behind.scheduler.failures == {client: 1}
    until(lambda: audited()[client] > before, "the audit")  # entries of earlier tests may follow


def test_guessing_is_limited(behind: Daemon) -> None:
    """After ten wrong passwords a client is refused, as over TCP."""
    headers = {**FORWARDED, "X-Forwarded-For": "203.0.113.99", **basic("wrong")}
    assert [ask(behind, "/api/runs", headers).status for _ in range(11)] == [401] * 10 + [429]


def test_cookies_are_secure_behind_a_tls_proxy(behind: Daemon) -> None:
    """The proxy says which scheme the client uses."""
    body = json.dumps({"password": PASSWORD})
    headers = {**FORWARDED, "Content-Type": "application/json"}
    answer = ask(behind, "/api/auth/login", headers, "POST", body)
    assert answer.status == 204
    assert "Secure" in answer.headers["Set-Cookie"].split("; ")
