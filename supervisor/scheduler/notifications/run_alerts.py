"""Alerts about active runs that take too long or print no output."""

from contextlib import suppress
from typing import NamedTuple

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


class _Silence(NamedTuple):
    """How long a run has printed nothing."""

    since: int
    """The time of the last known output, by the wall clock; it is only compared."""
    ms: float
    """The duration on the monotonic clock."""


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

    def _watch_output(self, run: LiveRun, started_at: int, limit_ms: int) -> None:
        silent_ms = max(0, self._loop.now_ms() - started_at)
        self._check_later(run, _Silence(started_at, silent_ms), limit_ms)

    def _check_later(self, run: LiveRun, silence: _Silence, limit_ms: int) -> None:
        delay_ms = max(_MIN_WAIT_MS, limit_ms - silence.ms)
        self._silent[run.id] = self._loop.after(delay_ms, lambda: self._check(run, silence, limit_ms, delay_ms))

    def _check(self, run: LiveRun, before: _Silence, limit_ms: int, waited_ms: float) -> None:
        """Raise the alert, or wait until it may be due; the run was silent `before` a wait of `waited_ms`.

        Only new output tells a time of the wall clock, which may have been set, or may have gone on without the run
        while the host slept. A time that cannot be right counts as now.
        """
        silence = _Silence(before.since, before.ms + waited_ms)
        output = self._last_output(run)
        if output is not None and output != before.since:
            past_ms = self._loop.now_ms() - output
            silence = _Silence(output, past_ms if 0 <= past_ms <= silence.ms else 0)
        if silence.ms >= limit_ms:
            with self._committer.changing() as change:
                self._notifications.run_silent(run, limit_ms, change)
            silence = _Silence(silence.since, 0)
        self._check_later(run, silence, limit_ms)

    def _last_output(self, run: LiveRun) -> int | None:
        """Return the time of the run's last output in ms since the epoch; None if there is none or it is unreadable."""
        reader = LogReader(ring_path(self._runtime_dir, run.id), None)
        with suppress(LogError, OSError):
            try:
                lines = reader.head().lines
                page = reader.read(lines - 1, 1) if lines else None
                times = [line.ts for line in reader.pending()]
                return max([*times, *(line.ts for line in page.lines)] if page else times, default=None)
            finally:
                reader.close()
        return None
