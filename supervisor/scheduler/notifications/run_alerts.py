"""Alerts about active runs that take too long or print no output."""

from contextlib import suppress

from logring.errors import LogError
from logring.log_paths import ring_path
from logring.reader import LogReader
from supervisor.ipc.messages import DaemonSettings
from supervisor.scheduler.database.commits import Committer
from supervisor.scheduler.loop.loop import Loop, Timer
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.runs.end_reason import Verdict
from supervisor.scheduler.runs.live_units import LiveRun
from supervisor.scheduler.runs.run_observer import RunObserver

_MIN_WAIT_MS = 100


class RunAlerts(RunObserver):
    """Raises the alerts of runs whose definitions set ``max_duration_alert`` or ``silence_alert``."""

    def __init__(self, loop: Loop, boot: DaemonSettings, notifications: Notifications, committer: Committer) -> None:
        self._loop = loop
        self._runtime_dir = boot.runtime_dir
        self._notifications = notifications
        self._committer = committer
        self._slow: dict[str, Timer] = {}
        self._silent: dict[str, Timer] = {}

    def run_is_running(self, run: LiveRun, started_at: int) -> None:
        """Set the timers of a run."""
        slow_ms, quiet_ms = run.definition.max_duration_alert_ms, run.definition.silence_alert_ms
        if slow_ms is not None:
            self._watch_duration(run, started_at, slow_ms)
        if quiet_ms is not None:
            self._watch_output(run, started_at, quiet_ms)

    def run_ended(self, run: LiveRun, verdict: Verdict, *, will_retry: bool) -> None:  # noqa: ARG002 - the signature of them all
        """Cancel the timers of a run."""
        for timers in (self._slow, self._silent):
            timer = timers.pop(run.id, None)
            if timer is not None:
                timer.cancel()

    def _watch_duration(self, run: LiveRun, started_at: int, limit_ms: int) -> None:
        # The alert is not stored. A new scheduler raises it again, which only increments the notification's count.
        delay_ms = max(0, started_at + limit_ms - self._loop.now_ms())
        self._slow[run.id] = self._loop.after(delay_ms, lambda: self._takes_long(run, limit_ms))

    def _takes_long(self, run: LiveRun, limit_ms: int) -> None:
        with self._committer.changing() as change:
            self._notifications.run_slow(run, limit_ms, change)

    def _watch_output(self, run: LiveRun, since: int, limit_ms: int) -> None:
        delay_ms = min(limit_ms, max(_MIN_WAIT_MS, since + limit_ms - self._loop.now_ms()))
        self._silent[run.id] = self._loop.after(delay_ms, lambda: self._check(run, since, limit_ms))

    def _check(self, run: LiveRun, since: int, limit_ms: int) -> None:
        now_ms = self._loop.now_ms()
        last = max(since, self._last_output(run))
        if now_ms - last >= limit_ms:
            with self._committer.changing() as change:
                self._notifications.run_silent(run, limit_ms, change)
            last = now_ms
        self._watch_output(run, last, limit_ms)

    def _last_output(self, run: LiveRun) -> int:
        """Return the time of the run's last output in ms since the epoch; 0 if there is none or it is unreadable."""
        reader = LogReader(ring_path(self._runtime_dir, run.id), None)
        with suppress(LogError, OSError):
            try:
                lines = reader.head().lines
                page = reader.read(lines - 1, 1) if lines else None
                times = [line.ts for line in reader.pending()]
                return max([*times, *(line.ts for line in page.lines)] if page else times, default=0)
            finally:
                reader.close()
        return 0
