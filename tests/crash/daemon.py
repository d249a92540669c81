"""A daemon whose schedulers die at planned steps."""

import os
from pathlib import Path

import pytest

from tests.crash import steps
from tests.crash.harness import Report, compare
from tests.support.daemon import PYTHON, Daemon
from tests.support.waiting import until

at_some_time = pytest.mark.parametrize(
    "times",
    [(1,), (3,)] if os.environ.get("CRASH_STEPS") == "all" else [(1, 3)],
    ids=lambda times: "or".join(map(str, times)),
)
"""A scheduler dies when it reaches a step for the first or the third time, chosen at random.

CRASH_STEPS=all tests both.
"""


class StepsDaemon(Daemon):
    """A daemon that runs under steps.py instead of Python."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.sides = directory / "sides"
        self.sides.mkdir()
        self._plan = directory / "plan"
        self._python = directory / "python"
        self._python.write_text(f'#!/bin/sh\nexec "{PYTHON}" -I "{steps.__file__}" "{self._plan}" "$@"\n')
        self._python.chmod(0o700)

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "STEPS_PYTHON": str(self._python)}

    def command(self) -> list[str]:
        code = f"import sys; sys.executable = {str(self._python)!r}; from supervisor.cli.entry import main; main()"
        return [str(PYTHON), "-I", "-c", code]

    def plan(self, *labels: str, number: int = 1) -> None:
        """Make one scheduler after another die when it reaches a step for the given time."""
        assert not self._plan.exists()
        steps.write_plan(str(self._plan), [f"{label} {number}" for label in labels])

    def recovered(self) -> None:
        """Wait until all planned deaths have happened and the next scheduler works."""
        until(lambda: not self._plan.exists(), "the planned deaths")
        until(self.ready, "the daemon to be ready")

    def verdict(self, accepted: set[str]) -> Report:
        """Start the daemon once more, and compare everything with the notes of the children."""
        self.start()
        report = Report(accepted=accepted)
        compare(self, self.sides, report)
        return report
