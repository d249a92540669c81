"""The daemon behind a real nginx and a real Caddy, configured by the samples of deploy/."""

import gzip
import http.client
import json
import os
import re
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import watched
from tests.deploy.proxies import CADDY, NGINX, Proxy, http_settings
from tests.support.client import Answer, Stream
from tests.support.daemon import PASSWORD, Daemon
from tests.support.waiting import until

CLIENTS = {"nginx": "127.0.0.2", "caddy": "127.0.0.3"}
"""Source addresses of requests through each proxy, different from the proxy's own."""


class ProxiedDaemon(Daemon):
    """A daemon with a task that prints the input of its pipe."""

    def begin(self) -> None:
        self.pipe = self.directory / "pipe"
        os.mkfifo(self.pipe)
        http = f'{http_settings(NGINX)}\nproxy_socket = "proxy.sock"'
        self.write(f'[tasks.talks]\nrun = "cat {self.pipe}"\n', http=http)
        self.start()

    @property
    def address(self) -> str:
        match = re.search(r'^listen = \["(.*)"\]$', self.config.read_text(), re.MULTILINE)
        assert match
        return match[1]

    def upstream(self, proxy: str, way: str) -> str:
        """The address of the daemon for the proxy's configuration."""
        if way == "tcp":
            return self.address
        path = self.directory / "proxy.sock"
        return f"unix:{path}" if proxy == "nginx" else f"unix/{path}"


class Client:
    """A client that has logged in through a proxy and claims another identity."""

    def __init__(self, port: int, address: str) -> None:
        self.port = port
        self.address = address
        self.login = self.ask("POST", "/ringward/api/auth/login", {"password": PASSWORD})
        assert self.login.status == 204, self.login.body
        self.cookie = self.login.headers["Set-Cookie"].partition(";")[0]

    def _send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> http.client.HTTPSConnection:
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=60, source_address=(self.address, 0), context=context
        )
        sent = {"Host": f"localhost:{self.port}", "X-Forwarded-For": "6.6.6.6", "X-Forwarded-Proto": "http", **headers}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body)
        if body is not None:
            sent["Content-Type"] = "application/json"
        if hasattr(self, "cookie"):
            sent["Cookie"] = self.cookie
        connection.request(method, path, data, sent)
        return connection

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        connection = self._send(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
        try:
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def stream(self, path: str, **headers: str) -> Stream:
        connection = self._send("GET", path, None, {"Accept-Encoding": "gzip", **headers})
        return Stream(connection, connection.getresponse())

    def run(self) -> str:
        answer = self.ask("POST", "/ringward/api/tasks/talks/run")
        assert answer.status == 201, answer.body
        run = str(answer.json()["id"])
        assert answer.headers["Location"] == f"/ringward/api/runs/{run}"
        return run


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedDaemon]:
    new_daemon = ProxiedDaemon(tmp_path_factory.mktemp("behind"))
    try:
        new_daemon.begin()
        yield new_daemon
    finally:
        new_daemon.clean()


WAYS = [(proxy, way) for proxy in CLIENTS for way in ("tcp", "proxy_socket")]


@pytest.fixture(scope="module", params=WAYS, ids="-".join)
def proxy(
    request: pytest.FixtureRequest, daemon: ProxiedDaemon, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    name, way = request.param
    new_proxy = Proxy(name, tmp_path_factory.mktemp(name), daemon.upstream(name, way))
    yield new_proxy
    new_proxy.end()


@pytest.fixture(scope="module")
def client(proxy: Proxy) -> Client:
    return Client(proxy.port, CLIENTS[proxy.name])


def test_both_samples_need_the_same_settings() -> None:
    """One configuration of Ringward works behind either proxy."""
    assert http_settings(NGINX) == http_settings(CADDY)


def test_audit_has_the_client_address(daemon: ProxiedDaemon, client: Client) -> None:
    """The audit has the address of the proxy's client, whatever the client claims; cookies are for https only."""
    assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/ringward"} <= set(
        client.login.headers["Set-Cookie"].split("; ")
    )

    def logins() -> set[str]:
        return {item["from"] for item in daemon.get("/api/audit").json()["items"] if item["operation"] == "login"}

    until(lambda: client.address in logins(), "the log-in")
    assert logins() <= {*CLIENTS.values(), "127.0.0.1"}  # the last one: the browser


def test_compression_errors_and_metrics(client: Client) -> None:
    """The daemon compresses answers once, its errors arrive unchanged, and /metrics is not reachable."""
    plain = client.ask("GET", "/ringward/static/js/main.js", Accept_Encoding="identity")
    packed = client.ask("GET", "/ringward/static/js/main.js", Accept_Encoding="gzip")
    assert packed.headers.get_all("Content-Encoding") == ["gzip"]
    assert gzip.decompress(packed.body) == plain.body
    large = client.ask("POST", "/ringward/api/auth/login", b'{"password": "%b"}' % (b"x" * (1 << 20)))
    assert (large.status, large.headers["Content-Type"]) == (413, "application/problem+json")
    assert client.ask("GET", "/ringward/metrics").status == 404


def test_stream_through_a_proxy(daemon: ProxiedDaemon, proxy: Proxy, client: Client) -> None:
    """Each line arrives when it is printed, even during a reload of nginx; the stream resumes by its number."""
    run = client.run()
    path = f"/ringward/api/runs/{run}/log/stream"
    with daemon.pipe.open("w") as pipe:

        def sends(text: str, events: Iterator[Any]) -> Any:
            pipe.write(f"{text}\n")
            pipe.flush()
            line = next(event for event in events if event.kind == "line")
            assert line.data["text"] == text
            return line.id

        stream = client.stream(path)
        assert (stream.status, stream.headers["Content-Encoding"]) == (200, None)
        events = iter(stream)
        first = sends("one", events)
        if proxy.workers():
            proxy.reload()
        sends("two", events)
        stream.close()
        again = client.stream(path, **{"Last-Event-ID": first})
        resumed = iter(again)
        assert next(event for event in resumed if event.kind == "line").data["text"] == "two"
        sends("three", resumed)
    assert [event.kind for event in resumed][-1] == "done"
    again.close()


def test_dashboard_through_a_proxy(
    daemon: ProxiedDaemon, proxy: Proxy, client: Client, browser: Browser, complaints: list[str]
) -> None:
    """A browser logs in below the path, even without the slash, and follows a log."""
    context = browser.new_context(ignore_https_errors=True)
    page = watched(context, complaints)
    page.goto(f"{proxy.url}/ringward")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("navigation", name="Pages", exact=True)).to_be_visible()
    assert page.url.startswith(f"{proxy.url}/ringward/")
    page.goto(f"{proxy.url}/ringward/#/run/{client.run()}")
    with daemon.pipe.open("w") as pipe:
        pipe.write("before one's eyes\n")
        pipe.flush()
        expect(page.get_by_role("log")).to_contain_text("before one's eyes")
    expect(page.get_by_role("region", name="Verdict")).to_contain_text("Succeeded")
    context.close()
    complaints[:] = [complaint for complaint in complaints if "401" not in complaint]
