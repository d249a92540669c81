"""Derive the end reason of a run from the exit that the root reports. Pure."""

import os
from collections.abc import Collection
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from supervisor.config.model import Task
from supervisor.config.value_types.durations import format_duration
from supervisor.host.signal_sets import signal_name
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
    "condition": "skipped",
    "gate": "skipped",
    "skipped": "skipped",
    "queue_full": "queue_full",
    "missed": "missed",
    "flow_stopped": "stopped",
    "fail_fast": "stopped",
    "rejected": "stopped",
    "approval_timeout": "stopped",
}
"""End reasons by the cause of a stop."""
_WORDS = {
    "timeout": "timed out",
    "log_overflow": "stopped because of too much output",
    "daemon_stopped": "stopped with the daemon",
    "start_failed": "could not start",
}
"""End reasons in words, unless their name is one."""


class Line(NamedTuple):
    """A line of a run's log."""

    number: int
    text: str
    """Without control characters, shortened."""


class Verdict(Struct, frozen=True):
    """End reason and exit code of a run, and the signal that killed it, if any."""

    reason: str
    exit_code: int
    signal: int | None = None
    core_dumped: bool = False
    cause: str | None = None
    """What led to the end reason (:data:`store.runs.phases.CAUSES`)."""
    line: Line | None = None
    """The line of output that matched ``failure_output``."""
    why: str | None = None
    """Why the run could not start, or what is wrong with its success."""
    leftovers: tuple[str, ...] = ()
    """The processes that outlived a main process that exited by itself, and were killed."""

    @property
    def succeeded(self) -> bool:
        """Whether the run succeeded, by exit code and output."""
        return self.reason == "succeeded"

    @property
    def text(self) -> str:
        """The verdict for a log line, such as "failed with exit code 1"."""
        words = _WORDS.get(self.reason, self.reason)
        if self.line is not None:
            return f"{words} by its output: {self.line.text}"
        if self.why is not None:
            return f"{words}: {self.why.removeprefix(f'{words}: ')}"
        if self.reason != "failed" and (self.signal is not None or self.exit_code > 0):
            how = f"exit code {self.exit_code}" if self.signal is None else signal_name(self.signal)
            return f"{words} ({how})"
        if self.signal is not None:
            return f"{words} by {signal_name(self.signal)}"
        return f"{words} with exit code {self.exit_code}" if self.exit_code > 0 else words


def verdict_of(exited: Exited, exit_codes: tuple[int, ...]) -> Verdict:
    """Return the verdict on an exit; the exit codes in `exit_codes` count as success.

    The exit code is the exit status, or 128 + the signal number (of any sender), or -1 if the run never started. A run
    that exits by itself during the grace period of a stop keeps its exit code, but gets the end reason of the stop.
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
    reason = "succeeded" if code in exit_codes else "failed"
    return Verdict(reason, code, leftovers=tuple(exited.leftovers))


def judged_by_duration(verdict: Verdict, exited: Exited, task: Task) -> Verdict:
    """Return the verdict on a run of a task, whose success fails or is doubtful (`why`) if it was too short."""
    least_ms = task.min_duration_ms
    if not verdict.succeeded or least_ms is None or exited.started_at is None:
        return verdict
    took_ms = max(0, exited.ended_at - exited.started_at)
    if took_ms >= least_ms:
        return verdict
    why = f"it took {format_duration(took_ms)}, and min_duration is {format_duration(least_ms)}"
    if task.too_short == "warn":
        return replace(verdict, why=why)
    return replace(verdict, reason="failed", cause="too_short", why=why)


def judged_by_outputs(verdict: Verdict, keys: Collection[str], task: Task) -> Verdict:
    """Return the verdict on a run of a task, whose success fails if it did not write all required values."""
    missing = [key for key in task.output_required if key not in keys]
    if not verdict.succeeded or not missing:
        return verdict
    return replace(verdict, reason="failed", cause="no_output", why=f"it wrote no {' and no '.join(missing)}")
