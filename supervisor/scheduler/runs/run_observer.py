"""Who has a say in the lives of runs, besides the engine, which calls them."""

from collections.abc import Callable
from typing import Protocol

from supervisor.ipc.messages import Exited
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.runs.end_reason import Line, Verdict
from supervisor.scheduler.runs.live_units import LiveRun


class RunObserver:
    """By itself one that does nothing."""

    def run_started(self, run: LiveRun) -> None:
        """A process has been started for a run."""

    def run_is_running(self, run: LiveRun, started_at: int) -> None:
        """A run has a process, since `started_at` (ms since the epoch): it begins, or is found again."""

    def run_ended(self, run: LiveRun, verdict: Verdict, *, will_retry: bool) -> None:
        """A run has ended; `will_retry`: it is tried again."""


class Outputs(Protocol):
    """Who knows whether the output of a run makes a failure of it."""

    def watch(self, run: LiveRun) -> None:
        """Follow the output of a run that has begun."""

    def ask(self, run: LiveRun, then: Callable[[Line | None], None]) -> None:
        """Call `then` with the line of a run that has ended by which it failed, or None; perhaps at once."""

    def forget(self, run_id: str) -> None:
        """A run has its verdict."""


class JobTracker(Protocol):
    """Who looks after the jobs of runs that were started through a launcher."""

    def decided(self, run: LiveRun, change: Change) -> None:
        """A run is going to be started."""

    def refusal(self, run: LiveRun) -> str | None:
        """Why it cannot be."""

    def must_wait_for_job(self, run: LiveRun, exited: Exited, then: Callable[[], None]) -> bool:
        """Whether its end has to wait for its job's; `then` is called, once, when that is over."""

    def give_up(self, run: LiveRun) -> None:
        """Wait for that no longer."""

    def dropped(self, run: LiveRun) -> None:
        """Its creation could not be stored."""


class ServiceListener(Protocol):
    """Who decides what comes after a service's run."""

    def run_started(self, run: LiveRun, at: int, change: Change) -> None:
        """The run of an instance has a process, since `at` (ms since the epoch)."""

    def task_ended(self, run: LiveRun, verdict: Verdict, change: Change) -> None:
        """The run of a task has ended."""

    def run_ended(self, run: LiveRun, verdict: Verdict, *, requested: bool, ran_ms: int | None, change: Change) -> None:
        """The run of an instance has ended, after so many milliseconds (None: it did not run, or nobody knows)."""
