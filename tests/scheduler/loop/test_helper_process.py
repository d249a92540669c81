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


class _Client(HelperClient):
    def helper_wanted(self) -> bool:
        return True

    def helper_started(self) -> None:
        pass


def partner_of(loop: Loop) -> HelperProcess:
    return HelperProcess(loop, Log("test", "error"), "none", _Client())


@pytest.mark.parametrize(
    ("module", "name"),
    [(socket, "socketpair"), (subprocess, "Popen"), (os, "pidfd_open")],
    ids=("channel", "process", "pidfd"),
)
def test_failing_starts_back_off(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> None:
    """Failing starts are repeated with growing delays, however long the host has been up, and leave no descriptors."""
    tried: list[float] = []

    def cannot(*_: object, **__: object) -> None:
        tried.append(clock.boot)
        raise OSError(24, "Too many open files")

    clock = FakeClock()
    loop = Loop(clock)
    descriptors = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(module, name, cannot)
    partner_of(loop).ensure_started()
    for _ in range(300):
        clock.advance(0.05)
        loop.round(0)
    assert len(tried) == 7, "in 15 s: at once twice, then after 0.1, 0.5, 1, 5 and 5"
    assert set(os.listdir("/proc/self/fd")) <= descriptors
