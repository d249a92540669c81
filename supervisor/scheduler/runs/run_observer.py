"""Interfaces that the run engine calls: observers of runs, and listeners whose answers it waits for."""

from collections.abc import Callable
from typing import Protocol

from supervisor.ipc.messages import Exited
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.runs.end_reason import Line, Verdict
from supervisor.scheduler.runs.live_units import LiveRun


class RunObserver:
    """Observes the life cycle of every run; the default methods do nothing."""

    def run_started(self, run: LiveRun) -> None:
        """Note that a process was started for a run."""

    def run_is_running(self, run: LiveRun, started_at: int) -> None:
        """Note that a run has a process since `started_at` (ms since the epoch), new or taken over."""

    def run_ended(self, run: LiveRun, verdict: Verdict, *, will_retry: bool) -> None:
        """Note the end of a run; `will_retry`: a retry follows."""


class Outputs(Protocol):
    """Searches the output of runs for ``failure_output``."""

    def watch(self, run: LiveRun) -> None:
        """Search the output of a started run."""

    def ask(self, run: LiveRun, then: Callable[[Line | None], None]) -> None:
        """Call `then`, perhaps at once, with the matching line of an ended run, or with None."""

    def forget(self, run_id: str) -> None:
        """Stop searching: the run has its verdict."""


class JobTracker(Protocol):
    """Tracks the jobs of runs that a launcher started."""

    def decided(self, run: LiveRun, change: Change) -> None:
        """Prepare for the start of a run."""

    def refusal(self, run: LiveRun) -> str | None:
        """Return the reason why the run cannot start; None: it can."""

    def must_wait_for_job(self, run: LiveRun, exited: Exited, then: Callable[[], None]) -> bool:
        """Return whether the end of a run must wait for the end of its job; `then` is called once after that."""

    def give_up(self, run: LiveRun) -> None:
        """Stop waiting for the job of a run."""

    def dropped(self, run: LiveRun) -> None:
        """Forget a run whose creation could not be stored."""


class ServiceListener(Protocol):
    """Decides how a service continues after a run."""

    def run_started(self, run: LiveRun, at: int, change: Change) -> None:
        """Note that the run of an instance has a process since `at` (ms since the epoch)."""

    def task_ended(self, run: LiveRun, verdict: Verdict, change: Change) -> None:
        """Note the end of a task's run."""

    def run_ended(self, run: LiveRun, verdict: Verdict, *, requested: bool, ran_ms: int | None, change: Change) -> None:
        """Note the end of an instance's run after `ran_ms` milliseconds; None: it never ran, or unknown."""
