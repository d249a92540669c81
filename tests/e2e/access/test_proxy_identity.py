"""Users that a real nginx authenticates with ``auth_request``, through the real daemon."""

import http.client
import http.server
import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon
from tests.support.host_features import require
from tests.support.ports import free_port
from tests.support.waiting import until

SECRET = "0123456789abcdef0123456789abcdef"
GROUPS = {"alice": "staff,ops", "bob": "staff", "root": "admins"}
"""Users of the login service, by cookie, with their groups."""
FORGED = {"Remote-User": "root", "Remote-Groups": "admins"}
NGINX = """
daemon off;
{user}
pid {place}/nginx.pid;
error_log {place}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
    underscores_in_headers on;
    server {{
        listen 127.0.0.1:{port};
        location = /login-service {{
            internal;
            proxy_pass http://127.0.0.1:{login};
            proxy_pass_request_body off;
            proxy_set_header Content-Length "";
        }}
        location / {{
            auth_request /login-service;
            auth_request_set $user $upstream_http_remote_user;
            auth_request_set $groups $upstream_http_remote_groups;
            proxy_pass http://{upstream};
            proxy_set_header Remote-User $user;
            proxy_set_header Remote-Groups $groups;
            proxy_set_header Ringward-Proxy-Secret "{secret}";
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host $http_host;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""


class LoginService(http.server.BaseHTTPRequestHandler):
    """A login service that identifies users by the cookie ``person``."""

    def do_GET(self) -> None:
        person = self.headers.get("Cookie", "").removeprefix("person=")
        self.send_response(200 if person in GROUPS else 401)
        if person in GROUPS:
            self.send_header("Remote-User", person)
            self.send_header("Remote-Groups", GROUPS[person])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Write no log."""


@pytest.fixture
def login() -> Iterator[int]:
    """The port of a login service."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), LoginService)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def behind(daemon: Daemon) -> Daemon:
    """A daemon with a proxy on this host."""
    secret = daemon.directory / "proxy-secret"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    identity = 'secret_file = "proxy-secret"\nroles = { admins = "admin", ops = "operator" }\n'
    daemon.write(
        f"[http.identity]\n{identity}[tasks.job]\nrun = 'true'\n[tasks.fails]\nrun = 'exit 3'\n[tasks.long]\n"
        "run = 'sleep 1000'\n",
        http='behind_proxy = ["127.0.0.1"]\nproxy_socket = "proxy.sock"',
    )
    daemon.start()
    return daemon


def address(daemon: Daemon) -> tuple[str, int]:
    line = next(line for line in daemon.config.read_text().splitlines() if line.startswith("listen"))
    host, _, port = line.partition('["')[2].partition('"]')[0].partition(":")
    return host, int(port)


@pytest.fixture
def nginx(behind: Daemon, login: int, tmp_path: Path) -> Iterator[int]:
    """The port of a real nginx in front of the daemon."""
    program = require("nginx")
    place = tmp_path / "nginx"
    place.mkdir()
    port = free_port()
    host, upstream = address(behind)
    user = "user root;" if os.geteuid() == 0 else ""
    text = NGINX.format(place=place, port=port, login=login, upstream=f"{host}:{upstream}", secret=SECRET, user=user)
    (place / "config").write_text(text)
    process = subprocess.Popen([program, "-c", str(place / "config")], stderr=subprocess.DEVNULL)

    def listens() -> bool:
        assert process.poll() is None, (place / "error.log").read_text()
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(listens, "nginx to listen")
        yield port
    finally:
        process.terminate()
        process.wait(60)


def ask(
    port: int, method: str, path: str, headers: dict[str, str] | None = None, person: str | None = None
) -> tuple[int, Any]:
    """Send a request over TCP, as this person if the port is that of the proxy."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    cookie = {} if person is None else {"Cookie": f"person={person}"}
    try:
        connection.request(method, path, headers={**cookie, **(headers or {})})
        response = connection.getresponse()
        body = response.read()
        return response.status, json.loads(body) if "json" in str(response.getheader("Content-Type")) else body
    finally:
        connection.close()


def test_users_behind_nginx(behind: Daemon, nginx: int) -> None:
    """A user that nginx authenticated has the role of the group, even after helpers were killed.

    Runs and the audit name the user. Headers from the client have no effect.
    """
    assert ask(nginx, "GET", "/api/runs")[0] == 401
    assert ask(nginx, "GET", "/api/runs", FORGED | {"Ringward-Proxy-Secret": SECRET})[0] == 401
    for forged in ({}, FORGED, {"Remote_User": "root", "Remote_Groups": "admins"}, {"REMOTE-groups": "admins"}):
        status, identity = ask(nginx, "GET", "/api/auth/status", forged, "alice")
        assert (status, identity["method"], identity["user"], identity["role"]) == (200, "proxy", "alice", "operator")
        assert ask(nginx, "GET", "/api/tokens", forged, "alice")[0] == 403
    behind.kill_helper("ringward gunicorn")
    status, run = ask(nginx, "POST", "/api/tasks/long/run", person="alice")
    assert status == 201
    behind.kill_helper("ringward scheduler")
    assert ask(nginx, "POST", f"/api/runs/{run['id']}/stop", person="alice")[0] == 204
    assert behind.ended(run["id"])["endReason"] == "stopped"
    assert behind.run(run["id"])["triggeredBy"] == "api"
    assert behind.get(f"/api/runs/{run['id']}/ending").json()["requestedBy"] == "proxy user alice"
    foreign = {"Origin": "http://evil.example"}
    assert ask(nginx, "POST", "/api/tasks/job/run", foreign, "alice")[0] == 403
    status, refused = ask(nginx, "GET", "/api/runs", person="bob")
    assert (status, '"staff"' in refused["detail"]) == (403, True)
    assert ask(nginx, "GET", "/api/tokens", person="root")[0] == 200

    def audited() -> list[tuple[str, str, str]]:
        items = behind.get("/api/audit").json()["items"]
        return [(item["who"], item["from"], item["operation"]) for item in reversed(items)]

    person = ("proxy user alice", "127.0.0.1")
    expected = [(*person, "runTask"), (*person, "stopRun"), (*person, "runTask")]
    until(lambda: audited() == expected, "the audit")
    assert SECRET not in behind.output.read_text()


def test_forged_headers(behind: Daemon) -> None:
    """Requests that bypass the proxy have no user without the secret, on every listener."""
    _, port = address(behind)
    sent = FORGED | {"X-Forwarded-For": "127.0.0.1"}
    for secret in ({}, {"Ringward-Proxy-Secret": "0" * 32}, {"Ringward_Proxy_Secret": SECRET}):
        assert ask(port, "GET", "/api/runs", sent | secret)[0] == 401
    assert behind.request("GET", "/api/runs").status == 200
    assert behind.request("GET", "/api/runs", headers=FORGED).status == 401
    assert behind.request("GET", "/api/runs", headers=FORGED | {"Ringward-Proxy-Secret": SECRET}).status == 401


def test_new_secret_after_a_reload(behind: Daemon) -> None:
    """A reload reads the secret and the roles again, and refuses a file without a secret by name."""
    _, port = address(behind)
    sent = {"Remote-User": "alice", "Remote-Groups": "ops"}
    old, new = ({**sent, "Ringward-Proxy-Secret": sent_secret} for sent_secret in (SECRET, "f" * 32))
    assert [ask(port, "GET", "/api/runs", headers)[0] for headers in (old, new)] == [200, 401]
    secret = behind.directory / "proxy-secret"
    secret.write_text("short")
    refused = behind.request("POST", "/api/daemon/reload")
    assert refused.status == 422
    assert b"is shorter than 32 characters" in refused.body
    assert ask(port, "GET", "/api/runs", old)[0] == 200
    secret.write_text("f" * 32)
    assert behind.request("POST", "/api/daemon/reload").status == 200
    until(lambda: ask(port, "GET", "/api/runs", new)[0] == 200, "workers with the new secret")
    until(lambda: ask(port, "GET", "/api/runs", old)[0] == 401, "the old secret to be refused")
