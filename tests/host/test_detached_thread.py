"""Threads for which nobody waits."""

import threading

import pytest

from supervisor.host.detached_thread import DetachedThread
from tests.support.waiting import until


def test_detached_thread() -> None:
    """A thread runs until its function returns."""
    go = threading.Event()
    thread = DetachedThread(go.wait)
    assert not thread.wait(0)
    assert thread.running
    go.set()
    assert thread.wait(30)
    assert (thread.returned, thread.running) == (True, False)


@pytest.mark.parametrize("error", [MemoryError, ValueError])
def test_failed_thread(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    """A thread whose function failed does not run any more, and has not returned."""
    reported: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda failed: reported.append(failed.exc_type))

    def fail() -> None:
        raise error

    thread = DetachedThread(fail)
    until(lambda: not thread.running, "its end")
    assert not thread.returned
    assert bool(reported) == (error is ValueError)
