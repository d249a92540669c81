"""Interfaces of the run engine: functions that others call, and observers and listeners that the engine calls."""

from collections.abc import Callable, Collection
from typing import Protocol

from supervisor.config.model import Task
from supervisor.ipc.messages import Exited
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.runs.end_reason import OutputResult, Verdict
from supervisor.scheduler.runs.live_units import LiveRun, RunRequest, Unit

CreateTaskRun = Callable[[Unit, Task, Change, RunRequest], LiveRun]
"""Creates the first attempt of a run, which starts, waits, or is recorded as refused."""


class StopRun(Protocol):
    """Ends a run in any state."""

    def __call__(
        self,
        run: LiveRun,
        change: Change,
        *,
        cause: str = "stop",
        by: str | None = None,
        force: bool = False,
        note: str | None = None,
    ) -> None:
        """Stop `run`; `note` is a line for its log."""


class RunObserver:
    """Observes the life cycle of every run; the default methods do nothing."""

    def run_started(self, run: LiveRun) -> None:
        """Note that a run's process has just started."""

    def run_is_running(self, run: LiveRun, started_at: int) -> None:
        """Note that a run has a process since `started_at` (ms since the epoch): just started, or taken over."""

    def run_ended(self, run: LiveRun, verdict: Verdict, *, will_retry: bool) -> None:
        """Note that a run ended; `will_retry`: a retry follows."""


class OutputSearch:
    """Searches the output of runs for ``failure_output``; without another class, nothing is searched."""

    def watch(self, run: LiveRun) -> None:
        """Start to search the output of a run that has a process."""

    def ask(self, run: LiveRun, then: Callable[[OutputResult], None]) -> None:  # noqa: ARG002 - a default
        """Call `then` with the result for an ended run; at once if the search is complete."""
        then(OutputResult())

    def forget(self, run_id: str) -> None:
        """Stop the search; the run has its verdict."""


class JobTracker:
    """Tracks the jobs of runs that a launcher started; without another class, no run has a job."""

    def prepare_start(self, run: LiveRun, change: Change) -> None:
        """Prepare for the start of an admitted run."""

    def refusal(self, run: LiveRun) -> str | None:  # noqa: ARG002 - a default
        """Return the reason why the run cannot start; None if it can."""
        return None

    def must_wait_for_job(self, run: LiveRun, exited: Exited, then: Callable[[], None]) -> bool:  # noqa: ARG002 - a default
        """Return whether the run's job must end first; if so, call `then` once it has."""
        return False

    def give_up(self, run: LiveRun) -> None:
        """Stop waiting for the job of a run."""

    def forget(self, run: LiveRun) -> None:
        """Forget a run that could not be stored."""

    def adopt(self, run: LiveRun) -> bool:  # noqa: ARG002 - a default
        """Take over a run of the previous scheduler; return whether it may have a job."""
        return False

    def forget_others(self, living: Collection[str]) -> None:
        """Forget the jobs of all runs except `living`; call this after all runs were adopted."""

    def search(self, run: LiveRun, then: Callable[[], None]) -> bool:  # noqa: ARG002 - a default
        """Search for the job of a run that the root does not know, and stop it; return whether there is a search.

        `then` is called when the job is gone.
        """
        return False

    def stop_job(self, run_id: str) -> None:
        """Stop the job of a run, because the root has begun to stop the run."""


class ServiceListener:
    """Decides how a service continues after one of its runs; the default methods do nothing."""

    def run_started(self, run: LiveRun, at: int, change: Change) -> None:
        """Note that an instance has a process since `at` (ms since the epoch)."""

    def task_ended(self, run: LiveRun, verdict: Verdict, change: Change) -> None:
        """Note that a run of a task ended; services may depend on it."""

    def run_ended(self, run: LiveRun, verdict: Verdict, *, requested: bool, ran_ms: int | None, change: Change) -> None:
        """Note that an instance's run ended after `ran_ms` milliseconds (None: it never ran, or unknown)."""
