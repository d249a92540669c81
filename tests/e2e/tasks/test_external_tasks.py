"""Jobs that run elsewhere and report their runs, through the real daemon."""

import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.support.client import Answer, UnixConnection
from tests.support.daemon import Daemon

pytestmark = pytest.mark.lent

TOKEN = "c0ffee-c0ffee-c0ffee"
CONFIG = """
[tasks.offsite]
external = true
token_file = "token"
cron = "0 0 1 1 *"
"""


def start(daemon: Daemon) -> None:
    daemon.write(CONFIG)
    (daemon.directory / "token").write_text(f"{TOKEN}\n")
    daemon.start()


def ping(daemon: Daemon, event: str = "", body: bytes = b"", token: str = TOKEN) -> Answer:
    """Report as a job does, without credentials."""
    headers: Mapping[str, str] = {"Content-Type": "application/x-www-form-urlencoded"}  # as curl sends it
    connection = UnixConnection(daemon.socket)
    try:
        connection.request("POST", f"/api/pings/{token}{event}", body, dict(headers))
        return Answer(connection.getresponse())
    finally:
        connection.close()


def wrap(daemon: Daemon, token_file: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """Execute a command under ``ringward wrap``."""
    options = ["--config", str(daemon.config), "wrap", "--token-file", str(daemon.directory / token_file)]
    command = [*daemon.client_command(), *options, "--", *argv]
    return subprocess.run(command, capture_output=True, text=True, env=daemon.environment(), timeout=120)


def test_reported_run(daemon: Daemon) -> None:
    """A job reports the beginning and the end of its run; the run survives a killed scheduler, and has a log."""
    start(daemon)
    assert ping(daemon, "/start").status == 204
    (run,) = daemon.runs("offsite")
    assert run["status"] == "running"
    daemon.kill_helper("ringward scheduler")
    assert daemon.run(run["id"])["status"] == "running"
    assert ping(daemon, "/7", b"one\ntwo").status == 204
    ended = daemon.ended(run["id"])
    assert (ended["endReason"], ended["exitCode"], ended["triggeredBy"]) == ("failed", 7, "api")
    assert daemon.texts(run["id"]) == ["one", "two"]
    assert ping(daemon).status == 204
    assert [one["endReason"] for one in daemon.runs("offsite")] == ["failed", "succeeded"]


def test_refused_reports(daemon: Daemon) -> None:
    """Wrong addresses, output with a beginning, and too much output are refused; the token is in no log."""
    start(daemon)
    assert ping(daemon, token="another-token-000").status == 404
    assert ping(daemon, "/256").status == 422
    assert ping(daemon, "/start", b"output").status == 422
    assert ping(daemon, "", b"x" * 65_537).status == 413
    assert daemon.runs("offsite") == []
    assert daemon.request("POST", "/api/tasks/offsite/run").status == 409
    assert TOKEN not in daemon.own_output()
    assert TOKEN not in daemon.cli("audit").stdout
    assert TOKEN not in daemon.get("/api/tasks").body.decode()


def test_wrapped_command(daemon: Daemon) -> None:
    """``ringward wrap`` passes on the output and the exit code of a command, and reports both."""
    start(daemon)
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    wrapped = wrap(daemon, "token", sys.executable, "-c", script)
    assert (wrapped.returncode, wrapped.stdout, wrapped.stderr) == (3, "out\n", "err\n")
    (run,) = daemon.runs("offsite")
    assert (run["endReason"], run["exitCode"]) == ("failed", 3)
    assert sorted(daemon.texts(run["id"])) == ["err", "out"]
    missing = wrap(daemon, "token", "/nonexistent")
    assert missing.returncode == 127
    assert "No such file or directory" in missing.stderr


def test_unreachable_daemon(daemon: Daemon) -> None:
    """A wrapped command runs even if its beginning cannot be reported."""
    start(daemon)
    (daemon.directory / "wrong").write_text("another-token-000")
    wrapped = wrap(daemon, "wrong", "echo", "hello")
    assert (wrapped.returncode, wrapped.stdout) == (0, "hello\n")
    assert "cannot report" in wrapped.stderr
    (daemon.directory / "wrong").write_text("two words")
    assert wrap(daemon, "wrong", "echo", "hello").returncode == 64
