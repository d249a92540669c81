"""System calls of the root's threads that fail for lack of a resource, once or always."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import Daemon
from tests.support.host_features import require
from tests.support.waiting import until

CALLS = {
    "control": {
        "epoll_wait": "ENOMEM",
        "epoll_ctl": "ENOMEM",
        "read": "EAGAIN",
        "write": "EAGAIN",
        "recvfrom": "ENOMEM",
        "sendto": "ENOBUFS",
        "sendmsg": "ENOMEM",
        "openat": "EMFILE",
        "pipe2": "ENFILE",
        "fcntl": "EAGAIN",
        "vfork": "EAGAIN",
        "clone": "EAGAIN",
        "clone3": "ENOMEM",
        "pidfd_open": "EMFILE",
        "mmap": "ENOMEM",
        "socketpair": "EMFILE",
        "accept4": "ENFILE",
        "waitid": "EAGAIN",
        "wait4": "EAGAIN",
        "mkdir": "ENOMEM",
        "rmdir": "ENOMEM",
        "kill": "EAGAIN",
        "ioctl": "ENOMEM",
    },
    "pump": {
        "epoll_wait": "ENOMEM",
        "epoll_ctl": "ENOMEM",
        "read": "EAGAIN",
        "readv": "ENOMEM",
        "write": "EAGAIN",
        "openat": "EMFILE",
        "mmap": "ENOMEM",
        "fallocate": "ENOMEM",
        "ftruncate": "ENOMEM",
        "statfs": "ENOMEM",
        "sendto": "ENOBUFS",
        "fcntl": "ENOMEM",
        "ioctl": "ENOMEM",
    },
    "file": {
        "openat": "EMFILE",
        "pwritev": "ENOMEM",
        "pwrite64": "ENOMEM",
        "ftruncate": "ENOMEM",
        "fallocate": "ENOMEM",
        "fstat": "ENOMEM",
        "newfstatat": "ENOMEM",
        "statfs": "ENOMEM",
        "unlink": "ENOMEM",
        "mkdir": "ENOMEM",
        "write": "EAGAIN",
        "poll": "ENOMEM",
    },
}
"""The system calls of each thread during a run, each with an error for lack of a resource."""

CASES = [(thread, call, code) for thread, calls in CALLS.items() for call, code in calls.items()]
MOST_IN_A_SECOND = 100
"""Ten rounds, each with a few such calls."""
LINES = [str(number) for number in range(20)]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    require("strace")
    new_daemon = Daemon(tmp_path_factory.mktemp("calls"))
    new_daemon.write('[tasks.t]\nrun = "for i in $(seq 0 19); do echo $i; done"\nmax_concurrent = 100\n')
    new_daemon.start()
    yield new_daemon
    new_daemon.clean()


def thread_of(daemon: Daemon, name: str) -> int:
    """Return the id of a thread of the root; the threads start in this order."""
    return sorted(map(int, os.listdir(f"/proc/{daemon.pid}/task")))[["control", "file", "pump"].index(name)]


class Failures:
    """The traced calls of a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def met(self) -> int:
        return self._path.read_text().count("(INJECTED)")

    @property
    def stopped(self) -> bool:
        """Whether the thread has stopped outside a call."""
        return "--- stopped by SIGSTOP ---" in self._path.read_text()

    @property
    def most_in_a_second(self) -> int:
        """The most calls that failed within one second."""
        times = [float(line.split()[0]) for line in self._path.read_text().splitlines() if "(INJECTED)" in line]
        return max((sum(at <= instant < at + 1 for instant in times) for at in times), default=0)


@contextlib.contextmanager
def failing(daemon: Daemon, thread: str, call: str, code: str, path: Path, *, once: bool) -> Iterator[Failures]:
    """Let the first such call of a thread fail, or each one, inside the block."""
    inject = f"inject={call}:error={code}" + (":when=1" if once else "")
    argv = [
        "strace",
        "-ttt",
        "-o",
        str(path),
        "-p",
        str(thread_of(daemon, thread)),
        "-e",
        inject,
        "-e",
        f"trace={call}",
    ]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        line = tracer.stderr.readline()
        if "attached" not in line:
            pytest.skip(f"strace cannot trace that here: {line}")
        failures = Failures(path)
        try:
            yield failures
        finally:
            # A tracer that detaches during an injected call turns its error into ENOSYS: detach from a stopped thread.
            os.kill(daemon.pid, signal.SIGSTOP)
            until(lambda: failures.stopped or tracer.poll() is not None, "the thread to stop")
            tracer.terminate()
            tracer.communicate()
            os.kill(daemon.pid, signal.SIGCONT)


MAKING_A_RING = {"openat", "fcntl", "mmap", "fallocate", "ftruncate", "statfs"}


def check(daemon: Daemon, run: str, call: str = "") -> None:
    """Check that a run succeeds with all of its output, or with none if its ring could not be created."""
    ended = daemon.ended(run)
    if call == "pidfd_open" and ended["endReason"] == "start_failed":
        assert "could not be tracked" in daemon.lines(run)[0]["text"]  # it had begun
    else:
        assert ended["endReason"] == "succeeded"
        assert daemon.texts(run) == LINES or (call in MAKING_A_RING and daemon.texts(run) == [])


@pytest.mark.parametrize(("thread", "call", "code"), CASES)
def test_call_fails_once(daemon: Daemon, tmp_path: Path, thread: str, call: str, code: str) -> None:
    """A single failing call does not end the root, and a run started meanwhile succeeds."""
    with failing(daemon, thread, call, code, tmp_path / "calls", once=True):
        check(daemon, until(lambda: accepted(daemon), "a run to be accepted"), call)
    assert daemon.process is not None
    assert daemon.process.poll() is None


@pytest.mark.parametrize(("thread", "call", "code"), CASES)
def test_call_always_fails(daemon: Daemon, tmp_path: Path, thread: str, call: str, code: str) -> None:
    """A call that always fails neither ends the root nor makes it spin; afterwards the root recovers."""
    pid = daemon.pid
    with failing(daemon, thread, call, code, tmp_path / "calls", once=False) as failures:
        answer = daemon.request("POST", "/api/tasks/t/run")
        seen = failures.met
        until(lambda: failures.met > seen + 2 or answer.status != 201 or is_over(daemon, answer.json()), "it to fail")
        assert failures.most_in_a_second < MOST_IN_A_SECOND
    check(daemon, until(lambda: accepted(daemon), "a run to be accepted"))
    assert daemon.pid == pid


def accepted(daemon: Daemon) -> str | None:
    """Trigger a run; return None while no scheduler works, as after the root has replaced it for lost messages."""
    answer = daemon.request("POST", "/api/tasks/t/run")
    return str(answer.json()["id"]) if answer.status == 201 else None


def is_over(daemon: Daemon, run: dict[str, str]) -> bool:
    return bool(daemon.run(run["id"])["status"] == "ended")
