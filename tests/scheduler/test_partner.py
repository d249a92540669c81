"""A child process of the scheduler."""

import subprocess

import pytest

from supervisor.logline import Log
from supervisor.scheduler.loop import Clock, Loop
from supervisor.scheduler.partner import Partner


class _HandClock(Clock):
    """Its seconds pass when the test says so."""

    now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s


def test_what_cannot_be_started_is_tried_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the host has been up: a start that fails is no time of health."""
    tried: list[float] = []

    def no_memory(*_: object, **__: object) -> None:
        tried.append(clock.now_s)
        raise OSError(12, "Cannot allocate memory")

    clock = _HandClock()
    loop = Loop(clock)
    monkeypatch.setattr(subprocess, "Popen", no_memory)
    partner = Partner(
        loop, Log("test", "error"), "partner", "none", begun=lambda: None, heard=lambda _: None, wanted=lambda: True
    )
    partner.need()
    for _ in range(300):
        clock.now_s += 0.05
        loop.round(0)
    assert len(tried) == 7, "in 15 s: at once twice, then after 0.1, 0.5, 1, 5 and 5"
