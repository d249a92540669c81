"""The API server that ``ringward up`` starts before anything else."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.cli import exit_codes
from supervisor.ipc import child_process
from supervisor.ipc.child_process import ChildProcess
from supervisor.startup import early_api_server
from tests.cli.commands.test_up import Up, shared_memory, up
from tests.root.loop.test_shortage import BOOT
from tests.support.waiting import until

__all__ = ["shared_memory", "up"]  # fixtures


@contextlib.contextmanager
def starting() -> Iterator[ChildProcess]:
    with early_api_server.starting(["up"], {**os.environ, "RINGWARD_PASSWORD": "secret"}):
        server = early_api_server.started()
        assert server is not None
        yield server
    assert early_api_server.started() is None


def descriptors(pid: int) -> set[str]:
    """Return the targets of a process's open descriptors."""
    targets = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed after the listing
            targets.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return targets


def test_failed_start() -> None:
    """When a start fails, the API server is ended and reaped, and no descriptor stays open."""
    before = set(os.listdir("/proc/self/fd"))
    with starting() as server:
        pass
    assert not Path(f"/proc/{server.pid}").exists()
    assert set(os.listdir("/proc/self/fd")) <= before  # descriptors of earlier tests may be closed meanwhile


def test_failed_start_by_a_caller_that_ignores_its_children(tmp_path: Path) -> None:
    """A start that fails says why and exits with its status, even if the caller has set SIGCHLD to be ignored."""
    (tmp_path / "ringward.toml").write_text("[tasks.a]\n")
    command = [sys.executable, "-m", "ringward", "up", "--config", str(tmp_path / "ringward.toml")]
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    result = subprocess.run([sys.executable, "-c", ignoring, *command], capture_output=True, text=True)
    assert "Traceback" not in result.stderr
    assert (result.returncode, "tasks.a" in result.stderr) == (exit_codes.CONFIG, True)


def test_killed_start() -> None:
    """The API server of a killed start ends without a traceback."""
    with starting() as server:
        server.sock.shutdown(socket.SHUT_RDWR)
        assert select.select([server.pidfd], [], [], 30)[0]
        assert b"Traceback" not in os.read(server.output, 65536)


def test_environment_and_descriptors_are_withheld() -> None:
    """The API server gets neither secrets of the environment nor descriptors of the starting process."""
    theirs, ours = os.pipe()
    os.set_inheritable(theirs, True)
    pipe = os.readlink(f"/proc/self/fd/{theirs}")
    with starting() as server:
        until(lambda: pipe not in descriptors(server.pid), "it to close them")
        assert b"secret" not in Path(f"/proc/{server.pid}/environ").read_bytes()
    os.close(theirs)
    os.close(ours)


def test_hello_to_an_ended_server() -> None:
    """A hello to an API server that has ended is not an error."""
    with starting() as server:
        os.kill(server.pid, signal.SIGKILL)
        assert select.select([server.pidfd], [], [], 30)[0]
        early_api_server.say_hello(server, BOOT, [])


@pytest.mark.parametrize("arguments", [["ps"], ["up", "--help"], []])
def test_other_commands(arguments: list[str]) -> None:
    """Other commands start no API server."""
    with early_api_server.starting(arguments, os.environ):
        assert early_api_server.started() is None


def test_server_cannot_be_started(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the API server cannot be started ahead, the start continues, and the root must start the server."""

    def refuse(*_: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(child_process, "start", refuse)
    with early_api_server.starting(["up"], os.environ):
        outcome = up()
    assert outcome.executed
    assert outcome.executed.api is None
