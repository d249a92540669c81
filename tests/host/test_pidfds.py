"""Exit statuses of processes that are not children."""

import errno
import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.host.pidfds import exit_status, is_pidfd
from supervisor.host.procfs import find_process
from supervisor.ipc.messages import Exited
from supervisor.scheduler.runs.end_reason import verdict_of

_KERNEL = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])


class ExitingProcess:
    """A process that exits on the test's command."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(["/bin/sh", "-c", "read x; exit $x"], stdin=subprocess.PIPE)
        self.pidfd = os.pidfd_open(self.process.pid)
        process = find_process(self.process.pid)
        assert process is not None
        self.start = process.start

    def status(self) -> int | None:
        return exit_status(self.pidfd, self.process.pid, self.start)

    def end(self, code: int) -> None:
        """Let the process exit and become a zombie."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{code}\n".encode())
        self.process.stdin.flush()
        os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOWAIT)


@pytest.fixture
def ending() -> Iterator[ExitingProcess]:
    process = ExitingProcess()
    yield process
    process.process.kill()
    process.process.communicate()
    os.close(process.pidfd)


@pytest.fixture
def _older(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a kernel without exit statuses in pidfds."""

    def ioctl(_fd: int, _request: int, _argument: bytes) -> bytes:
        raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))

    monkeypatch.setattr(fcntl, "ioctl", ioctl)


@pytest.mark.skipif(_KERNEL < (6, 15), reason="the kernel keeps no exit status before Linux 6.15")
@pytest.mark.parametrize("code", [0, 7, 255])
def test_exit_status(ending: ExitingProcess, code: int) -> None:
    """A zombie has an exit status, even after another process has waited for it, and a living process has none."""
    assert ending.status() is None
    ending.end(code)
    assert ending.status() == code << 8
    ending.process.wait()
    assert ending.status() == code << 8


@pytest.mark.skipif(_KERNEL < (6, 15), reason="the kernel keeps no exit status before Linux 6.15")
def test_signal(ending: ExitingProcess) -> None:
    """The signal that ended a process is known."""
    ending.process.send_signal(signal.SIGUSR1)
    ending.process.wait()
    assert os.WTERMSIG(ending.status() or 0) == signal.SIGUSR1


@pytest.mark.usefixtures("_older")
def test_older_kernel(ending: ExitingProcess) -> None:
    """On an older kernel the status is known until a process waits for it, and that of a recycled id is not read."""
    ending.end(7)
    assert ending.status() == 7 << 8
    ending.start += 1
    assert ending.status() is None
    ending.start -= 1
    ending.process.wait()
    assert ending.status() is None


def test_unknown_exit_status() -> None:
    """A run with an unknown exit status is shown as crashed, even if it was being stopped."""
    for cause in (None, "stop", "timeout"):
        verdict = verdict_of(Exited(run="R", status=None, unknown=True, cause=cause, ended_at=1), (0,))
        assert (verdict.reason, verdict.exit_code) == ("crashed", -2)


def test_is_pidfd(ending: ExitingProcess, tmp_path: Path) -> None:
    """Pipes and memory files are not taken for pidfds."""
    assert is_pidfd(ending.pidfd)
    fds = [*os.pipe(), os.memfd_create("pidfd:"), os.open(tmp_path / "pidfd:[1]", os.O_CREAT)]
    try:
        assert not any(map(is_pidfd, fds))
    finally:
        for fd in fds:
            os.close(fd)
