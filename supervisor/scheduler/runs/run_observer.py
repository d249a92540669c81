"""Who hears of every run's life, and has no say in it."""

from supervisor.scheduler.runs.end_reason import Verdict
from supervisor.scheduler.runs.live_units import LiveRun


class Attendant:
    """By itself one that does nothing."""

    def run_began(self, run: LiveRun) -> None:
        """A process has been started for a run."""

    def run_goes_on(self, run: LiveRun, started_at: int) -> None:
        """A run has a process, since `started_at` (ms since the epoch): it begins, or is found again."""

    def run_over(self, run: LiveRun, verdict: Verdict, *, again: bool) -> None:
        """A run has ended; `again`: it is tried again."""
