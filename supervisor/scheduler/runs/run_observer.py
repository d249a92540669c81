"""Interfaces of the run engine: functions that others call, and observers and listeners that the engine calls."""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple, Protocol

from store.runs.writes import Run
from supervisor.config.model import Task
from supervisor.ipc.messages import Exited
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.flows.step_values import Place
from supervisor.scheduler.loop.procedures import Procedure, Wait, Waiter
from supervisor.scheduler.runs.end_reason import Verdict
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


class StopRequest(NamedTuple):
    """A request to stop a run."""

    cause: str
    by: str | None
    force: bool
    note: str | None
    """A line for its log."""


class Executor(Protocol):
    """Carries out runs: the root those with a process, others those of flows and those that run elsewhere."""

    def announce(self, run: LiveRun) -> None:
        """Prepare for a run that starts as soon as the next change is stored."""

    def start(self, run: LiveRun) -> None:
        """Start a run that is stored."""

    def stop(self, run: LiveRun, request: StopRequest, change: Change) -> None:
        """Stop a run that was started; its end follows."""


class OtherExecutor:
    """An executor of runs without a process here; without a subclass, there are none."""

    def executes(self, run: LiveRun) -> bool:  # noqa: ARG002 - a default
        """Return whether it carries out a run."""
        return False

    def announce(self, run: LiveRun) -> None:
        """Prepare for nothing: such a run starts at once."""

    def start(self, run: LiveRun) -> None:
        """Begin a run."""

    def stop(self, run: LiveRun, request: StopRequest, change: Change) -> None:
        """End a run."""

    def adopt(self, run: LiveRun) -> None:
        """Take over an unfinished run of any executor."""

    def snapshot(self, row: Run) -> dict[str, Any] | None:  # noqa: ARG002 - a default
        """Return the state of one of its runs, as the root's snapshot has it for others; None for another run."""
        return None


class FlowRuns(OtherExecutor):
    """The executor of flows."""

    def has_decided(self, run: LiveRun) -> bool:  # noqa: ARG002 - a default
        """Return whether the step of a run needs no further attempt; False for a run outside flows."""
        return False

    def step_ended(self, run: LiveRun, verdict: Verdict, again: LiveRun | None, change: Change) -> None:
        """Let the flow of a run go on; `again` is the retry that follows. Runs outside flows are ignored."""

    def place_of(self, row: Run) -> Place | None:  # noqa: ARG002 - a default
        """Return the place of a stored run in its flow; None if it has none."""
        return None

    def forget(self, run_id: str) -> None:
        """Forget a flow run that ends as crashed."""

    def resume(self, change: Change) -> None:
        """Let all flows go on, now that all runs are known."""


class StartConditions:
    """Asks the conditions of runs before they start; without another class, no run has one."""

    def applies(self, run: LiveRun) -> bool:  # noqa: ARG002 - a default
        """Return whether a run is asked before it starts."""
        return False

    def check(self, run: LiveRun) -> Procedure[bool]:  # noqa: ARG002 - a default
        """Return whether a run goes on to its start, which may be refused; otherwise it waits or has ended."""
        yield from ()
        return True


class RunObserver:
    """Observes the life cycle of every run; the default methods do nothing."""

    def run_waits(self, run: LiveRun) -> None:
        """Note that a run waits until somebody ends its wait."""

    def run_started(self, run: LiveRun) -> None:
        """Note that a run's process has just started."""

    def run_is_running(self, run: LiveRun, started_at: int) -> None:
        """Note that a run has a process since `started_at` (ms since the epoch): just started, or taken over."""

    def redefined(self, unit: Unit, change: Change) -> None:
        """Note that a unit has a new definition."""

    def run_ended(
        self, run: LiveRun, verdict: Verdict, change: Change, *, will_retry: bool, ran_ms: int | None
    ) -> None:
        """Note that a run ended after `ran_ms` milliseconds (None: it never ran, or unknown).

        `will_retry`: a retry follows. `change` is the one that stores the end.
        """


class OutputSearch:
    """Searches the output of runs for ``failure_output``; without another class, nothing is searched."""

    def watch(self, run: LiveRun) -> None:
        """Start to search the output of a run that has a process."""

    def line_in(self, run: LiveRun) -> Wait:  # noqa: ARG002 - a default
        """Wait for the search in the output of an ended run; the result is the matching line, or None."""
        return Waiter.resume

    def forget(self, run_id: str) -> None:
        """Stop the search; the run has its verdict."""


class JobTracker:
    """Tracks the jobs of runs that a launcher started; without another class, no run has a job."""

    def prepare_start(self, run: LiveRun, change: Change) -> None:
        """Prepare for the start of an admitted run."""

    def refusal(self, run: LiveRun) -> str | None:  # noqa: ARG002 - a default
        """Return the reason why the run cannot start; None if it can."""
        return None

    def end_of_job(self, run: LiveRun, exited: Exited) -> Wait | None:  # noqa: ARG002 - a default
        """Return the wait for the end of the run's job; None if the run need not wait."""
        return None

    def give_up(self, run: LiveRun) -> None:
        """Stop waiting for the job of a run."""

    def forget(self, run: LiveRun) -> None:
        """Forget a run that could not be stored."""

    def adopt(self, run: LiveRun) -> bool:  # noqa: ARG002 - a default
        """Take over a run of the previous scheduler; return whether it may have a job."""
        return False

    def forget_others(self, living: Collection[str]) -> None:
        """Forget the jobs of all runs except `living`; call this after all runs were adopted."""

    def search(self, run: LiveRun) -> Wait | None:  # noqa: ARG002 - a default
        """Return the wait until the job of a run that the root does not know is found, stopped and gone.

        None: there is nothing to search for.
        """
        return None

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
