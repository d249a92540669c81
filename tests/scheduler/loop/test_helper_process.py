"""A child process of the scheduler."""

import os
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import psutil
import pytest

from supervisor.ipc.helper_messages import HelperMessage
from supervisor.ipc.log_line import Log
from supervisor.scheduler.loop.helper_process import HelperClient, HelperProcess
from supervisor.scheduler.loop.loop import Loop
from tests.scheduler.fake_clock import FakeClock
from tests.support.waiting import until

TELLS = """
import os, socket, sys
from supervisor.ipc.messages import Decoder, encode, receive_all
sock = socket.socket(fileno=int(sys.argv[-1]))
decoder = Decoder()
while messages := receive_all(sock, decoder):
    for message in messages:
        sock.sendall(encode({**message, "pid": os.getpid()}))
        if message["word"] == "exit":
            sys.exit(3)
"""
"""A helper that returns each message with its pid."""


@dataclass(frozen=True)
class Echoed(HelperMessage, op="echoed"):
    """A message that the helper returns with its pid."""

    word: str = ""
    pid: int = 0


class _Client(HelperClient):
    answers = (Echoed,)

    def __init__(self, loop: Loop, *, gives_up: bool = False) -> None:
        self.gives_up = gives_up
        self.process = HelperProcess(loop, Log("test", "error"), "none", self)
        self.starts = 0
        self.told: list[Echoed] = []
        self.failures: list[str] = []

    def helper_started(self) -> None:
        self.starts += 1

    def helper_sent(self, message: Echoed) -> None:
        self.told.append(message)

    def helper_failed(self, reason: str) -> None:
        self.failures.append(reason)
        if self.gives_up:
            self.process.close()


def wait(loop: Loop, until_true: Callable[[], object], what: str) -> None:
    def met() -> object:
        loop.round(0)
        return until_true()

    until(met, what)


@pytest.mark.parametrize(
    ("module", "name"),
    [(socket, "socketpair"), (subprocess, "Popen"), (os, "pidfd_open")],
    ids=("channel", "process", "pidfd"),
)
def test_failing_starts_back_off(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> None:
    """Failing starts are repeated with growing delays, however long the host has been up, and leave no descriptors."""
    tried: list[float] = []

    def cannot(*_: object, **__: object) -> None:
        tried.append(clock.monotonic)
        raise OSError(24, "Too many open files")

    clock = FakeClock()
    loop = Loop(clock)
    descriptors = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(module, name, cannot)
    _Client(loop).process.request("key", Echoed())
    for _ in range(300):
        clock.advance(0.05)
        loop.round(0)
    assert len(tried) == 7, "in 15 s: at once twice, then after 0.1, 0.5, 1, 5 and 5"
    assert set(os.listdir("/proc/self/fd")) <= descriptors


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        ("raise SystemExit(3)", "the none exited with code 3"),
        ("import os; os.kill(os.getpid(), 9)", "the none was killed by SIGKILL"),
    ],
)
def test_reason_of_an_exit(monkeypatch: pytest.MonkeyPatch, ends: str, reason: str) -> None:
    """The owner gets the exit code of a helper, or the name of the signal that killed it."""
    monkeypatch.setattr("supervisor.scheduler.loop.helper_process.RINGWARD", ("-c", ends))
    loop = Loop(FakeClock())
    client = _Client(loop, gives_up=True)
    client.process.request("key", Echoed())
    wait(loop, lambda: client.failures, "the exit of the helper")
    assert client.failures == [reason]


def test_open_requests_get_a_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A helper that replaces another one receives the requests that are still open, and none starts without any."""
    monkeypatch.setattr("supervisor.scheduler.loop.helper_process.RINGWARD", ("-c", TELLS))
    loop = Loop(FakeClock())
    client = _Client(loop)
    process = client.process

    def hear(number: int) -> list[str]:
        wait(loop, lambda: len(client.told) >= number, "the answers of the helper")
        return [message.word for message in client.told]

    process.request("1", Echoed("one"))
    process.request("2", Echoed("two"))
    process.send(Echoed("once"))
    assert hear(3) == ["one", "two", "once"]
    process.forget("1")
    process.send(Echoed("exit"))  # a failure
    assert hear(5)[3:] == ["exit", "two"]
    process.replace()
    process.request("3", Echoed("three"))
    assert hear(7)[5:] == ["two", "three"]
    pids = {message.pid: None for message in client.told}
    process.close()
    wait(loop, lambda: not any(map(psutil.pid_exists, pids)), "the exit of the helper")
    assert (len(client.told), client.starts, process.running) == (7, 3, False)
    assert (len(pids), len(client.failures)) == (3, 1)
