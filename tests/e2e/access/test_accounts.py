"""User accounts, through the real daemon, whose API server and scheduler are killed in between."""

import base64
import contextlib
import http.client
import json
import re
import subprocess
from typing import Any

from store.daemon_values import get_meta
from store.database import open_reader
from supervisor.scheduler.control.access_operations import FAMILIAR
from tests.support.client import Answer
from tests.support.daemon import PASSWORD, Daemon
from tests.support.waiting import until

SECRET = "open-sesame-1"
OTHER = "open-sesame-2"
FORWARDED = {"Via": "test"}
"""A header of a proxy, so that the user id of the client is not trusted."""


def ringward(daemon: Daemon, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with a standard input."""
    command = [*daemon.client_command(), *arguments, "--config", str(daemon.config)]
    return subprocess.run(command, input=text, capture_output=True, text=True, env=daemon.environment(), timeout=120)


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode(), **FORWARDED}


def login(daemon: Daemon, user: str, password: str) -> dict[str, str]:
    """Log in and return the headers of the session."""
    body = {"username": user, "password": password}
    answer = daemon.request("POST", "/api/auth/login", body, FORWARDED)
    assert answer.status == 204, answer.body
    return {"Cookie": str(answer.headers["Set-Cookie"]).partition(";")[0], **FORWARDED}


def audited(daemon: Daemon) -> list[tuple[Any, ...]]:
    items = json.loads(daemon.cli("audit", "--json").stdout)["items"]
    return [(item.get("who"), item["operation"], item.get("target"), item["status"]) for item in reversed(items)]


def test_account_lifecycle(daemon: Daemon) -> None:
    """An account survives killed helpers and a restart, its actions have its name, and its removal ends its access."""
    daemon.write("[tasks.web-a]\nrun = 'sleep 1000'\n[tasks.other]\nrun = 'true'\n")
    daemon.start()
    added = ringward(daemon, f"{SECRET}\n", "user", "add", "alice", "--role", "operator", "--task", "web-*")
    assert (added.returncode, added.stdout, added.stderr) == (0, "", "")
    session = login(daemon, "alice", SECRET)
    daemon.kill_helper("ringward gunicorn")
    run = daemon.request("POST", "/api/tasks/web-a/run", headers=session).json()["id"]
    until(lambda: daemon.run(run)["status"] == "running", "the run to start")
    daemon.kill_helper("ringward scheduler")
    assert daemon.request("POST", f"/api/runs/{run}/stop", headers=basic("alice", SECRET)).status == 204
    assert daemon.ended(run)["endReason"] == "stopped"
    assert daemon.run(run)["triggeredBy"] == "api"
    ending = daemon.get(f"/api/runs/{run}/ending").json()
    assert ending["requestedBy"] == "user alice"
    assert daemon.request("POST", "/api/tasks/other/run", headers=session).status == 404
    assert daemon.request("GET", "/api/users", headers=session).status == 403
    assert "alice" in daemon.cli("user", "list").stdout
    daemon.stop()
    daemon.start()
    assert daemon.request("GET", "/api/runs", headers=session).status == 200
    assert ringward(daemon, OTHER, "user", "passwd", "alice").returncode == 0
    assert daemon.request("GET", "/api/runs", headers=session).status == 401
    assert daemon.request("GET", "/api/runs", headers=basic("alice", SECRET)).status == 401
    session = login(daemon, "alice", OTHER)
    daemon.kill_helper("ringward scheduler")
    assert daemon.request("GET", "/api/runs", headers=session).status == 200
    assert daemon.cli("user", "rm", "alice").returncode == 0
    daemon.kill_helper("ringward gunicorn")
    for headers in (session, basic("alice", OTHER)):
        assert daemon.request("GET", "/api/runs", headers=headers).status == 401
    until(lambda: audited(daemon)[-1][1:] == ("login", None, 401), "the audit")
    peer = audited(daemon)[0][0]
    assert audited(daemon) == [
        (peer, "createUser", "alice", 201),
        ("user alice", "login", None, 204),
        ("user alice", "runTask", "web-a", 201),
        ("user alice", "stopRun", run, 204),
        ("user alice", "runTask", "other", 404),
        (peer, "setUserPassword", "alice", 204),
        (None, "login", "alice", 401),
        ("user alice", "login", None, 204),
        (peer, "removeUser", "alice", 204),
        (None, "login", None, 401),
    ]
    daemon.stop()
    contents = [path.read_bytes() for path in daemon.directory.rglob("*") if path.is_file()]
    assert not [data for data in contents if SECRET.encode() in data or OTHER.encode() in data]


def test_daemon_password_is_the_admin_account(daemon: Daemon) -> None:
    """The daemon's password works without a name and with the name admin; other names are refused."""
    daemon.write("")
    daemon.start()
    for user, status in (("", 200), ("admin", 200), ("ringward", 401)):
        assert daemon.request("GET", "/api/runs", headers=basic(user, PASSWORD)).status == status
    refused = ringward(daemon, SECRET, "user", "add", "admin", "--role", "viewer")
    assert refused.returncode == 64
    assert "the daemon's own password" in " ".join(refused.stderr.split())


def test_known_client_logs_in_during_an_attack(daemon: Daemon) -> None:
    """Wrong passwords from many addresses do not lock out an address of an earlier login, after a restart either.

    Another address learns how long it must wait.
    """
    daemon.write("", http='behind_proxy = ["127.0.0.1"]')
    daemon.start()
    address = next(line for line in daemon.config.read_text().splitlines() if line.startswith("listen")).split('"')[1]

    def log_in(client: str, password: str = PASSWORD) -> tuple[int, str]:
        connection = http.client.HTTPConnection(address)
        connection.request("GET", "/api/runs", headers={**basic("admin", password), "X-Forwarded-For": client})
        answer = Answer(connection.getresponse())
        connection.close()
        return answer.status, answer.json().get("detail", "")

    def remembered() -> bool:
        with contextlib.closing(open_reader(str(daemon.data / "ringward.db"), limit_s=None)) as reader:
            return get_meta(reader, FAMILIAR) is not None

    assert log_in("192.0.2.1")[0] == 200
    until(remembered, "the login to be stored")
    daemon.kill_helper("ringward scheduler")
    for number in range(100):
        assert log_in(f"10.0.0.{number}", "wrong")[0] == 401
    assert log_in("192.0.2.1")[0] == 200
    status, detail = log_in("192.0.2.2")
    assert status == 429
    assert re.fullmatch("Too many wrong passwords; try again in [0-9]+ s", detail)
