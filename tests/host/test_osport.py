"""System calls that the standard library lacks."""

import os
import re
import subprocess
import sys

import pytest

from tests.support.host_features import SHORT_SLICES, slice_ns

_SHOW = "print(open('/proc/thread-self/sched').read())"
_TAKE = "from supervisor.host.osport import take_short_slices; take_short_slices(); "
_IN_A_THREAD = f"import threading; show = threading.Thread(target=lambda: {_SHOW}); show.start(); show.join()"
_SHORTEST_NS = 100_000

pytestmark = pytest.mark.skipif(not SHORT_SLICES, reason="the kernel has no short slices, or does not show them")


def scheduling(code: str, policy: int, show: str = _SHOW) -> tuple[list[str], int]:
    """Return policy, niceness and slice of a process of lower priority that runs `code` first."""

    def lower() -> None:
        os.sched_setscheduler(0, policy, os.sched_param(0))
        os.nice(5)

    run = [sys.executable, "-c", code + show]
    shown = subprocess.run(run, check=True, capture_output=True, text=True, preexec_fn=lower).stdout
    return re.findall(r"^(?:policy|prio) .*$", shown, re.MULTILINE), slice_ns(shown)


def test_short_slices() -> None:
    """Short slices change neither the policy nor the niceness."""
    before, _ = scheduling("", os.SCHED_OTHER)
    assert scheduling(_TAKE, os.SCHED_OTHER) == (before, _SHORTEST_NS)


def test_short_slices_of_another_policy() -> None:
    """A process with the batch policy keeps it, and its slices."""
    assert scheduling(_TAKE, os.SCHED_BATCH) == scheduling("", os.SCHED_BATCH)


def test_short_slices_are_not_inherited() -> None:
    """A thread started by one with short slices has the usual slices."""
    assert scheduling(_TAKE, os.SCHED_OTHER, _IN_A_THREAD) == scheduling("", os.SCHED_OTHER)
