"""A child process of the scheduler."""

import os
import socket
import subprocess
from types import ModuleType

import pytest

from supervisor.ipc.log_line import Log
from supervisor.scheduler.loop.helper_process import HelperClient, HelperProcess
from supervisor.scheduler.loop.loop import Loop
from tests.scheduler.fake_clock import FakeClock
from tests.support.waiting import until


class _Client(HelperClient):
    def helper_wanted(self) -> bool:
        return True

    def helper_started(self) -> None:
        pass


class _Once(_Client):
    def __init__(self) -> None:
        self.failures: list[str] = []

    def helper_wanted(self) -> bool:
        return not self.failures

    def helper_failed(self, reason: str) -> None:
        self.failures.append(reason)


def partner_of(loop: Loop, client: HelperClient) -> HelperProcess:
    return HelperProcess(loop, Log("test", "error"), "none", client)


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
    partner_of(loop, _Client()).ensure_started()
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
    loop, client = Loop(FakeClock()), _Once()
    partner_of(loop, client).ensure_started()

    def failures() -> list[str]:
        loop.round(0)
        return client.failures

    until(failures, "the exit of the helper")
    assert client.failures == [reason]
