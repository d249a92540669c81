"""Parallel runs: the distribution of tests among processes, mostly file by file, and their processor time."""

import resource
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

_PROCESSOR_S = "processor_s"
"""The key under which a process reports its processor time."""
_ALONE = "tests/crash/"
"""Each of these tests takes long and shares nothing with others."""
_BACKENDS = "tests/contract/"
"""All of these share one daemon per kind of database, because preparing it is slow."""


def unit(nodeid: str) -> str:
    """Return the unit of a test. One process runs all tests of a unit, one after another."""
    file, _, test = nodeid.partition("::")
    if nodeid.startswith(_ALONE):
        return nodeid
    if nodeid.startswith(_BACKENDS):
        return f"{_BACKENDS} on {'PostgreSQL' if 'postgresql' in test else 'SQLite'}"
    return file


class Units(LoadFileScheduling):  # type: ignore[misc]  # which publishes no types
    """A scheduler that distributes units instead of files."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


def _used_s(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


class ProcessorTime:
    """A plugin that prints the processor time of all processes and of the programs they started.

    A process of a parallel run reports its time, with that of its children, to the one that prints the sum. The latter
    does not count its own children in addition: these are the processes that report.
    """

    def __init__(self) -> None:
        self._reported_s = 0.0
        """Processor time of the processes of a parallel run that have ended."""

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Report this process's time."""
        if hasattr(session.config, "workeroutput"):
            used_s = _used_s(resource.RUSAGE_SELF) + _used_s(resource.RUSAGE_CHILDREN)
            session.config.workeroutput[_PROCESSOR_S] = used_s

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the time of a process that has ended; one that crashed reported none."""
        self._reported_s += getattr(node, "workeroutput", {}).get(_PROCESSOR_S, 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the sum."""
        elsewhere_s = self._reported_s or _used_s(resource.RUSAGE_CHILDREN)
        terminalreporter.write_line(f"processor time: {_used_s(resource.RUSAGE_SELF) + elsewhere_s:.0f} s")
