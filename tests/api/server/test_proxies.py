"""Behind proxies: who is believed what."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from api.auth.passwords import client_key
from api.server.client_address import Exposure, parse_address
from store.audit import AuditEntry
from tests.api.support.credentials import basic, cookie, login
from tests.api.support.harness import PASSWORD, Daemon
from tests.support.waiting import until

CLIENT = "203.0.113.7"


@pytest.fixture
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Behind a proxy on this host, which says who its clients are."""
    daemon = Daemon(
        tmp_path_factory.mktemp("behind"),
        behind_proxy=["127.0.0.1/32", "10.0.0.0/8"],
        hosts=["jobs.example.com"],
        external_url="https://jobs.example.com/ring",
        base_path="/ring",
    )
    yield daemon
    daemon.close()


FORWARDED = {"X-Forwarded-For": CLIENT, "X-Forwarded-Proto": "https", "X-Forwarded-Host": "jobs.example.com"}


def wrong(daemon: Daemon, forwarded_for: str | None) -> int:
    headers = basic("wrong") | ({} if forwarded_for is None else {"X-Forwarded-For": forwarded_for})
    return daemon.get("/api/runs", headers, unix=False).status


CLIENTS: list[tuple[str | None, str]] = [
    (None, "127.0.0.1"),
    (CLIENT, CLIENT),
    (f"6.6.6.6, {CLIENT}", CLIENT),
    (f"6.6.6.6, {CLIENT}, 10.1.2.3", CLIENT),
    (f"{CLIENT}:4711, 10.1.2.3:80", CLIENT),
    ("6.6.6.6, nonsense, 10.1.2.3", "10.1.2.3"),
    ("nonsense", "127.0.0.1"),
    ("", "127.0.0.1"),
    ("10.1.1.1, 10.2.2.2", "10.1.1.1"),
    ("[2001:db8:1:2:3::4]:99", "2001:db8:1:2::/64"),
    ('"[2001:db8:1:2:3::4]"', "2001:db8:1:2::/64"),
    (f"::ffff:{CLIENT}", CLIENT),
]


def test_client_is_the_rightmost_untrusted_hop(behind: Daemon) -> None:
    """A client may invent hops to its left; wrong passwords are counted and audited by this address."""
    for number, (forwarded_for, client) in enumerate(CLIENTS):
        behind.scheduler.failures.clear()
        assert wrong(behind, forwarded_for) == 401, forwarded_for
        assert behind.scheduler.failures == {client: 1}, forwarded_for
        assert client_key(audited(behind, number).address) == client, forwarded_for


def audited(daemon: Daemon, number: int) -> AuditEntry:
    """That entry, as soon as it is there; the first one is number 0."""
    until(lambda: len(daemon.scheduler.audit) > number, "the audit")
    return daemon.scheduler.audit[number]


def test_secure_client(behind: Daemon) -> None:
    """A cookie over https is Secure, is valid below the base path only, and requires the external origin."""
    answer = login(behind, headers={**FORWARDED, "Origin": "https://jobs.example.com"})
    assert answer.status == 204
    assert {"Secure", "Path=/ring"} <= set(answer.headers["Set-Cookie"].split("; "))
    assert "Secure" not in login(behind).headers["Set-Cookie"].split("; ")
    assert login(behind, headers={**FORWARDED, "Origin": "https://evil.example"}).status == 403


def test_links_lead_to_the_external_address(behind: Daemon) -> None:
    """Links and Location have the external address, whether the proxy removes the base path or not."""
    session = cookie(login(behind, headers=FORWARDED))
    for path in ("/api/tasks", "/ring/api/tasks"):
        answer = behind.get(path, {**FORWARDED, **session}, unix=False)
        assert answer.json["$schema"] == "https://jobs.example.com/ring/schemas/Tasks.json"
    answer = behind.ask("POST", "/ring/api/tasks/job/run", headers={**FORWARDED, **session}, unix=False)
    assert answer.headers["Location"] == f"/ring/api/runs/{answer.json['id']}"


def test_document_has_the_external_address(behind: Daemon) -> None:
    """Generated clients put the document's server before each path, so it includes the base path."""
    for headers in (FORWARDED, {}):
        assert behind.get("/ring/openapi.json", headers, unix=False).json["servers"] == [
            {"url": "https://jobs.example.com/ring"}
        ]


def test_site_below_its_base_path(behind: Daemon) -> None:
    """The page is served with a final slash and redirects without one, since its links are relative.

    Look-alikes get 404.
    """
    assert behind.get("/ring/", unix=False).status == 200
    assert behind.get("/ring/static/js/main.js", unix=False).status == 200
    assert behind.get("/", unix=False).status == 200
    answer = behind.get("/ring", unix=False)
    assert (answer.status, answer.headers["Location"]) == (308, "/ring/")
    for path in ("/ringapi/tasks", "/ring/ring/", "/Ring/", "/ring//api/tasks"):
        assert behind.get(path, unix=False).status == 404


def test_headers_with_underscores_are_dropped(behind: Daemon) -> None:
    """A proxy may pass them on, and they would look the same as names with hyphens."""
    headers = basic("wrong") | {"X_Forwarded_For": "6.6.6.6", "X-Forwarded-For": CLIENT}
    assert behind.get("/api/runs", headers, unix=False).status == 401
    assert behind.scheduler.failures == {CLIENT: 1}


def test_forwarded_host_is_checked(behind: Daemon) -> None:
    """A forwarded host is checked like any other."""
    forged = {**FORWARDED, "X-Forwarded-Host": "evil.example"}
    assert behind.get("/api/runs", {**forged, **basic(PASSWORD)}, unix=False).status == 421


def test_other_peers_are_closed_before_parsing(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A peer that is neither local nor a trusted proxy gets no byte."""
    daemon = Daemon(tmp_path_factory.mktemp("closed"), behind_proxy=["10.0.0.0/8"])
    try:
        assert daemon.get("/healthz", unix=False).status == 200
        exposure = Exposure(daemon.settings)
        admitted = {peer: exposure.admits(peer) for peer in ("127.0.0.1", "::1", "10.9.9.9", "11.0.0.1", "::2", "")}
    finally:
        daemon.close()
    assert admitted == {
        "127.0.0.1": True,
        "::1": True,
        "10.9.9.9": True,
        "11.0.0.1": False,
        "::2": False,
        "": False,
    }


@pytest.mark.parametrize(
    "text", ["", "x", "1.2.3", "1.2.3.4.5", "[", "[]", "::g", "1.2.3.4, 5.6.7.8", "\x00", "१.2.3.4"]
)
def test_invalid_addresses(text: str) -> None:
    """An invalid address gives None, never an exception."""
    assert parse_address(text) is None


_STRANGER = """
import json, socket, sys
from api.server.worker import Worker
from api.server.client_address import Exposure
from supervisor.ipc.messages import DaemonSettings

server = socket.create_server(("127.0.0.1", 0))
stranger = socket.create_connection(server.getsockname())
client, _ = server.accept()
worker = object.__new__(Worker)
worker.exposure = Exposure(DaemonSettings.from_dict(json.loads(sys.argv[1])))
stranger.sendall(b"GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
worker.handle(server, client, ("198.51.100.1", 4711))
try:
    print(stranger.recv(1))
except ConnectionResetError:
    print(b"")
"""


def test_untrusted_peer_is_not_read(behind: Daemon) -> None:
    """A connection from outside of the trusted networks is closed without an answer."""
    command = [sys.executable, "-I", "-c", _STRANGER, json.dumps(behind.settings.to_dict())]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.stdout == "b''\n", result.stderr
