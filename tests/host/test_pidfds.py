"""How a process ended that is not our child."""

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


class Ending:
    """A process that waits for its end."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(["/bin/sh", "-c", "read x; exit $x"], stdin=subprocess.PIPE)
        self.pidfd = os.pidfd_open(self.process.pid)
        found = find_process(self.process.pid)
        assert found is not None
        self.start = found.start

    def status(self) -> int | None:
        return exit_status(self.pidfd, self.process.pid, self.start)

    def end(self, code: int) -> None:
        """It becomes a zombie."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{code}\n".encode())
        self.process.stdin.flush()
        os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOWAIT)


@pytest.fixture
def ending() -> Iterator[Ending]:
    one = Ending()
    yield one
    one.process.kill()
    one.process.communicate()
    os.close(one.pidfd)


@pytest.fixture
def _older(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that knows no such question."""

    def ioctl(_fd: int, _request: int, _argument: bytes) -> bytes:
        raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))

    monkeypatch.setattr(fcntl, "ioctl", ioctl)


@pytest.mark.skipif(_KERNEL < (6, 15), reason="the kernel keeps no exit status before Linux 6.15")
@pytest.mark.parametrize("code", [0, 7, 255])
def test_the_exit_status_is_exact(ending: Ending, code: int) -> None:
    """It is known for a zombie, and after another process has waited for it; a living process has none."""
    assert ending.status() is None
    ending.end(code)
    assert ending.status() == code << 8
    ending.process.wait()
    assert ending.status() == code << 8


@pytest.mark.skipif(_KERNEL < (6, 15), reason="the kernel keeps no exit status before Linux 6.15")
def test_a_signal(ending: Ending) -> None:
    """The signal that ended it is known, too."""
    ending.process.send_signal(signal.SIGUSR1)
    ending.process.wait()
    assert os.WTERMSIG(ending.status() or 0) == signal.SIGUSR1


@pytest.mark.usefixtures("_older")
def test_an_older_kernel(ending: Ending) -> None:
    """There the status is known only until a process waits for it; a process that reused the id is not read."""
    ending.end(7)
    assert ending.status() == 7 << 8
    ending.start += 1
    assert ending.status() is None
    ending.start -= 1
    ending.process.wait()
    assert ending.status() is None


def test_the_verdict_on_an_end_that_nobody_knows() -> None:
    """The run shows as crashed, whatever it was ended for."""
    for cause in (None, "stop", "timeout"):
        verdict = verdict_of(Exited(run="R", status=None, unknown=True, cause=cause, ended_at=1), (0,))
        assert (verdict.reason, verdict.exit_code) == ("crashed", -2)


def test_what_is_a_pidfd(ending: Ending, tmp_path: Path) -> None:
    """Pipes, memory and files are no pidfds, whatever their names."""
    assert is_pidfd(ending.pidfd)
    fds = [*os.pipe(), os.memfd_create("pidfd:"), os.open(tmp_path / "pidfd:[1]", os.O_CREAT)]
    try:
        assert not any(map(is_pidfd, fds))
    finally:
        for fd in fds:
            os.close(fd)
