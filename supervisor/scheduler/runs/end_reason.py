"""Why a run ended, from what the root saw: pure."""

import os
import signal
from dataclasses import dataclass
from typing import NamedTuple

from supervisor.ipc.messages import Exited

CRASHED_EXIT_CODE = -2
UNKNOWN_EXIT_CODE = -1
_SIGNAL_BASE = 128

REASONS = {
    "stop": "stopped",
    "timeout": "timeout",
    "overflow": "log_overflow",
    "shutdown": "daemon_stopped",
    "start_failed": "start_failed",
    "unfit": "failed",
    "superseded": "skipped",
}
"""End reasons by why we ended it."""


def signal_name(number: int) -> str:
    """``SIGTERM`` and the like; real-time signals between the first and the last have no name (signal(7))."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Line(NamedTuple):
    """A line of a run's log."""

    number: int
    text: str
    """As people see it."""


@dataclass(frozen=True)
class Verdict:
    """End reason and exit code of a run, and the signal that ended it, if one did."""

    reason: str
    exit_code: int
    signal: int | None = None
    core_dumped: bool = False
    line: Line | None = None
    """The line of output by which it has failed."""
    why: str | None = None
    """What kept it from starting."""

    @property
    def succeeded(self) -> bool:
        """True for the reason ``succeeded``."""
        return self.reason == "succeeded"

    @property
    def text(self) -> str:
        """For a log line."""
        if self.line is not None:
            return f"{self.reason} by its output: {self.line.text}"
        if self.why is not None:
            return f"{self.reason}, {self.why}"
        if self.signal is not None:
            return f"{self.reason} by {signal_name(self.signal)}"
        return f"{self.reason} with exit code {self.exit_code}" if self.exit_code > 0 else self.reason


def verdict_of(exited: Exited, exit_codes: tuple[int, ...]) -> Verdict:
    """The verdict on an exit; `exit_codes` are those that count as success.

    The exit code is the exit status, or 128 + signal whoever sent it; -1 when nothing was started. A run that exits
    by itself inside the grace of a stop keeps its code under the reason of the stop.
    """
    if exited.unknown:
        return Verdict("crashed", CRASHED_EXIT_CODE)
    if exited.cause == "start_failed" or exited.status is None:
        return Verdict(REASONS[exited.cause or "start_failed"], UNKNOWN_EXIT_CODE, why=exited.reason)
    if os.WIFSIGNALED(exited.status):
        number = os.WTERMSIG(exited.status)
        reason = REASONS.get(exited.cause or "", "failed")
        return Verdict(reason, _SIGNAL_BASE + number, number, os.WCOREDUMP(exited.status))
    code = os.WEXITSTATUS(exited.status)
    if exited.cause is not None:
        return Verdict(REASONS[exited.cause], code)
    return Verdict("succeeded" if code in exit_codes else "failed", code)
