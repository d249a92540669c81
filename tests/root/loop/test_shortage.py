"""Descriptors run out, or something may not be looked at: the root goes on and leaves nothing open."""

import errno
import gc
import os
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.host import procfs
from supervisor.host.nofile import Descriptors
from supervisor.host.osport import UnixListener
from supervisor.ipc.messages import Boot
from supervisor.root.helper_processes import Helper
from supervisor.root.spawn import posix_spawn
from tests.root.spawn.test_posix_spawn import wanted

BOOT = Boot(
    daemon_id="D",
    data_dir="",
    runtime_dir="",
    config_path="",
    listen=[],
    http_socket="",
    workers=1,
    shutdown_timeout_ms=1,
    log_level="error",
    password="",
    password_ephemeral=False,
    token="",
    started_at=1,
)


class Shortage:
    """Descriptors that are taken by nobody in particular."""

    def __init__(self) -> None:
        self._held: list[int] = []

    def leave(self, count: int) -> None:
        """Let only so many more be opened."""
        try:
            while True:
                self._held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        for _ in range(count):
            os.close(self._held.pop())

    def end(self) -> None:
        for fd in self._held:
            os.close(fd)
        self._held.clear()


@pytest.fixture
def shortage() -> Iterator[Shortage]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
    gc.collect()  # nothing that earlier tests left may close a descriptor meanwhile
    one = Shortage()
    yield one
    one.end()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_that_cannot_be_held_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was started and then cannot be watched does not go on unseen, and no descriptor stays."""
    tried = []

    def no_pidfd(pid: int) -> int:
        tried.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", no_pidfd)
    gc.collect()  # as above
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="Too many"):
        posix_spawn.start(wanted(["/bin/sh", "-c", "exec >&- 2>&-; exec sleep 1000"]), {}, None)
    (pid,) = tried
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    assert set(os.listdir("/proc/self/fd")) <= before


def no_process(*_: object, **__: object) -> int:
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


def test_no_process_is_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that the kernel refuses (a limit of processes, no memory) says why, and leaves no descriptor."""
    gc.collect()  # as above
    before = set(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_spawn", no_process)
        with pytest.raises(OSError, match="Resource temporarily unavailable"):
            posix_spawn.start(wanted(["true"]), {}, None)
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("count", range(5))
def test_a_helper_that_cannot_be_started_leaves_nothing(count: int, shortage: Shortage) -> None:
    """However few descriptors are left, all that was opened for a helper that cannot start is closed again."""
    with socket.socket() as one, socket.socket() as two:
        helper = Helper("x", "no.such.module", BOOT, [one, two])
        shortage.leave(count)
        before = {fd for fd in range(400) if is_open(fd)}
        with pytest.raises(OSError, match="Too many"):
            helper.start({}, 0.0)
        assert {fd for fd in range(400) if is_open(fd)} == before
        assert helper.sock is None


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_a_connection_without_a_descriptor_is_hung_up_on(tmp_path: Path, shortage: Shortage) -> None:
    """Nobody is left in the backlog, where a connection would wake its loop for ever; later ones are taken."""
    listener = UnixListener(str(tmp_path / "sock"), socket.SOCK_STREAM, 5)
    client, later = (socket.socket(socket.AF_UNIX) for _ in range(2))
    client.connect(str(tmp_path / "sock"))
    shortage.leave(0)
    assert listener.accept() is None
    assert client.recv(1) == b""
    assert listener.accept() is None
    shortage.end()
    later.connect(str(tmp_path / "sock"))
    taken = listener.accept()
    assert taken is not None
    for sock in (client, later, taken):
        sock.close()
    listener.close()


def test_somebody_takes_the_descriptor_in_reserve(
    tmp_path: Path, shortage: Shortage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may, or with ENFILE another process; that ends nobody's loop, and closes nothing of theirs."""
    path = str(tmp_path / "sock")
    listener = UnixListener(path, socket.SOCK_STREAM, 5)
    clients = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for client in clients:
        client.connect(path)
    shortage.leave(0)
    really, taken = os.close, []

    def close(fd: int) -> None:
        really(fd)
        taken.append(os.dup(0))

    monkeypatch.setattr("supervisor.host.osport.os.close", close)
    assert listener.accept() is None
    assert listener.accept() is None
    monkeypatch.undo()
    assert all(is_open(fd) for fd in taken)
    for fd in taken:
        os.close(fd)
    shortage.end()
    sock = listener.accept()
    assert sock is not None
    for one in (sock, *clients):
        one.close()
    listener.close()


def test_hidden_processes_stay_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hidepid=1 other users' processes cannot be read: they are taken for nobody's, nothing else."""
    really = os.open

    def hidden(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path) == "/proc/1/stat":
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return really(path, *arguments, **options)

    monkeypatch.setattr(os, "open", hidden)
    assert procfs.look(1) is None
    assert procfs.look(os.getpid()) is not None


def test_descriptors_that_are_needed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that prints nothing yet has neither ring nor log file: with these, too, 64 are left for other things."""
    monkeypatch.setattr("resource.getrlimit", lambda _which: (256, 256))
    is_open = ["0"] * (256 - 64 - 2 * 20)
    monkeypatch.setattr(os, "listdir", lambda _path: is_open)
    descriptors = Descriptors()
    assert descriptors.reserve(20)
    is_open.append("0")
    assert not descriptors.reserve(20)
