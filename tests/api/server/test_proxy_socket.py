"""The Unix socket for proxies, and proxies on the socket that is for programs of this host."""

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.api.support.client import Answer
from tests.api.support.credentials import basic
from tests.api.support.harness import PASSWORD, Daemon
from tests.support.client import UnixConnection
from tests.support.waiting import until

CLIENT = "203.0.113.7"
FORWARDED = {"Host": "jobs.example.com", "X-Forwarded-For": CLIENT, "X-Forwarded-Proto": "https"}
ONLY_FROM_PROXIES = (
    "CDN-Loop",
    "CF-Connecting-IP",
    "CF-Ray",
    "CF-Visitor",
    "Client-IP",
    "Fastly-Client-IP",
    "Fly-Client-IP",
    "Forwarded",
    "Remote-User",
    "SSL-Client-Verify",
    "True-Client-IP",
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
    "X-Varnish",
)


@pytest.mark.parametrize("name", ONLY_FROM_PROXIES)
def test_proxy_header_removes_trust(daemon: Daemon, name: str) -> None:
    """On the trusting socket, a request with a proxy's header needs credentials and learns no identity."""
    headers = {name: "192.0.2.1"}
    assert daemon.get("/api/runs", headers).status == 401
    assert daemon.get("/api/runs", headers | basic(PASSWORD)).status == 200
    assert daemon.get("/api/daemon/identity", headers | basic(PASSWORD)).status == 403


@pytest.mark.parametrize("host", ["d", "localhost", "anything.example", "-"])
def test_any_host_on_the_unix_socket(daemon: Daemon, host: str) -> None:
    """`curl --unix-socket … http://d/` is trusted with any host."""
    headers = {"Host": host, "User-Agent": "curl/8.0", "Accept": "*/*", "X-Request-Id": "1", "traceparent": "00-1"}
    assert daemon.get("/api/runs", headers).status == 200


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
    assert daemon.boot.proxy_socket is not None
    connection = UnixConnection(daemon.boot.proxy_socket)
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
