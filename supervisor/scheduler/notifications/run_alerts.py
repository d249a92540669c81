"""Alerts about active runs that take too long or print no output, and about logs that cannot store their output."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from logring.errors import LogError
from logring.log_paths import DAEMON_RING, ring_path
from logring.reader import LogReader
from logring.ring.block_writer import LOG_FULL
from store.runs.run_durations import KEPT_DURATIONS, LEARNED, newest_durations
from supervisor.config.model import Task
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Message
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.loop import Timer
from supervisor.scheduler.loop.procedures import Procedure
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.runs.end_reason import Verdict
from supervisor.scheduler.runs.live_units import LiveRun, expected_of, note_promises
from supervisor.scheduler.runs.run_observer import RunObserver
from supervisor.scheduler.runs.run_parameters import default_record
from supervisor.scheduler.runs.run_rows import event_body
from supervisor.scheduler.runs.run_transitions import State

_MIN_WAIT_MS = 100
_LISTED = 20


class _Silence(NamedTuple):
    """How long a run has printed nothing."""

    since: int
    """The time of the last known output, by the wall clock; it is only compared."""
    ms: float
    """The duration on the monotonic clock."""
    reported: bool = False
    """Whether the alert was raised: a silence is reported once, not each time that the limit passes again."""


class RunAlerts(RunObserver):
    """Raises the alerts of runs that take too long or print nothing, and learns how long runs usually take."""

    def __init__(self, core: Core, notifications: Notifications) -> None:
        self._loop = core.loop
        self._runtime_dir = core.daemon.settings.runtime_dir
        self._notifications = notifications
        self._committer = core.committer
        self._procedures = core.procedures
        self._slow: dict[str, Timer] = {}
        self._silent: dict[str, Timer] = {}

    def run_is_running(self, run: LiveRun, started_at: int) -> None:
        """Set the timers of a run."""
        task = run.definition
        if task.max_duration_alert_ms is not None or (isinstance(task, Task) and task.expected_duration_ms is not None):
            self._procedures.start(self._watch_duration(run, started_at))
        if run.definition.silence_alert_ms is not None:
            self._watch_output(run, started_at, run.definition.silence_alert_ms)

    def run_ended(
        self,
        run: LiveRun,
        verdict: Verdict,
        change: Change,
        *,
        will_retry: bool,  # noqa: ARG002 - the signature of them all
        ran_ms: int | None,
    ) -> None:
        """Cancel the timers of a run, and learn from a usual one."""
        for timers in (self._slow, self._silent):
            timer = timers.pop(run.id, None)
            if timer is not None:
                timer.cancel()
        task, durations = run.unit.task, run.unit.promises.durations
        if task is None or task.expected_duration_ms != LEARNED:
            durations = None  # they are read again if people want to know them again
        elif verdict.succeeded and ran_ms is not None and durations is not None and _is_usual(run, task):
            durations = (*durations, ran_ms)[-KEPT_DURATIONS:]
        slow = tuple(run_id for run_id in run.unit.promises.slow if run_id != run.id)
        note_promises(run.unit, change, durations=durations, slow=slow)

    def _watch_duration(self, run: LiveRun, started_at: int) -> Procedure[None]:
        """Set the timer for a run that takes too long, unless it was reported by an earlier scheduler."""
        unit, task, limit_ms, usual_ms = run.unit, run.definition, run.definition.max_duration_alert_ms, None
        if isinstance(task, Task) and task.expected_duration_ms == LEARNED and unit.promises.durations is None:
            change = self._committer.change()
            found = change.read(partial(newest_durations, task_name=unit.name, params=default_record(task)))
            yield self._committer.stored(change)
            with self._committer.changing() as change:
                note_promises(unit, change, durations=found.result)
        expected = expected_of(run)
        if expected is not None and (limit_ms is None or expected.slow_ms < limit_ms):
            usual_ms, limit_ms = expected
        if limit_ms is None or run.id in unit.promises.slow or run.state is State.ENDED:
            return
        delay_ms = max(0, started_at + limit_ms - self._loop.now_ms())
        self._slow[run.id] = self._loop.after(delay_ms, self._takes_long, run, limit_ms, usual_ms)

    def _takes_long(self, run: LiveRun, limit_ms: int, usual_ms: int | None) -> None:
        with self._committer.changing() as change:
            note_promises(run.unit, change, slow=(*run.unit.promises.slow, run.id))
            self._notifications.run_slow(run, limit_ms, usual_ms, change)

    def _watch_output(self, run: LiveRun, started_at: int, limit_ms: int) -> None:
        silent_ms = max(0, self._loop.now_ms() - started_at)
        self._check_later(run, _Silence(started_at, silent_ms), limit_ms)

    def _check_later(self, run: LiveRun, silence: _Silence, limit_ms: int) -> None:
        delay_ms = limit_ms if silence.reported else max(_MIN_WAIT_MS, limit_ms - silence.ms)
        self._silent[run.id] = self._loop.after(delay_ms, self._check, run, silence, limit_ms, delay_ms)

    def _check(self, run: LiveRun, before: _Silence, limit_ms: int, waited_ms: float) -> None:
        """Raise the alert, or wait until it may be due; the run was silent `before` a wait of `waited_ms`.

        Only new output tells a time of the wall clock, which may have been set, or may have gone on without the run
        while the host slept. A time that cannot be right counts as now.
        """
        silence = before._replace(ms=before.ms + waited_ms)
        output = self._last_output(run)
        if output is not None and output != before.since:
            past_ms = self._loop.now_ms() - output
            silence = _Silence(output, past_ms if 0 <= past_ms <= silence.ms else 0)
        if silence.ms >= limit_ms and not silence.reported:
            with self._committer.changing() as change:
                self._notifications.run_silent(run, limit_ms, change)
            silence = silence._replace(reported=True)
        self._check_later(run, silence, limit_ms)

    def _last_output(self, run: LiveRun) -> int | None:
        """Return the time of the run's last output in ms since the epoch; None if there is none or it is unreadable."""
        reader = LogReader(ring_path(self._runtime_dir, run.id), None)
        with suppress(LogError, OSError):
            try:
                return reader.last_output()
            finally:
                reader.close()
        return None


def _is_usual(run: LiveRun, task: Task) -> bool:
    """Return whether people can expect of other runs that they take as long as this one."""
    return run.trigger == "cron" and run.scheduled_at is not None and run.params.record == default_record(task)


class LogReport:
    """Announces the states of logs, and remembers those that need attention.

    Args:
        live: The runs that have not ended, by run id.
        notifications: Raises notifications.
        log: The daemon's log.
    """

    def __init__(self, live: Mapping[str, LiveRun], notifications: Notifications, log: Log) -> None:
        self._live = live
        self._notifications = notifications
        self._log = log
        self._problems: dict[str, str] = {}
        """By run id. A run may have ended while its log still waits for its file."""

    def changed(self, message: Message, change: Change) -> None:
        """Handle the root's report that a log cannot store output, or that it can again."""
        run_id, state, reason = message["run"], message["state"], message["reason"]
        if run_id == DAEMON_RING:
            self._place_changed(reason, change)
            return
        run = self._live.get(run_id)
        name = f"run {run_id}" if run is None else f"{run.unit.name} {run_id}"
        known = self._problems.pop(run_id, None)
        if reason is None:
            self._log.info(f"{name}: its log {'was completed' if run is None else 'stores output again'}")
        else:
            fate = "is dropped" if state == "dropping" else "waits"
            text = f"{name}: its output {fate}: {reason}"
            self._log.warning(text)
            if reason != LOG_FULL:
                self._problems[run_id] = text
            if known is None or (state == "dropping" and fate not in known):
                self._notifications.log_refused(run_id, run, fate, reason, change)
        if run is not None:
            log = {"state": state} if reason is None else {"state": state, "reason": reason}
            change.announce("run.updated", event_body(run, "running", log=log))

    def _place_changed(self, reason: str | None, change: Change) -> None:
        known = self._problems.pop(DAEMON_RING, None)
        if reason is None:
            self._log.info("rings have a place again")
            return
        text = f"rings have no place, so lines appear up to a second late: {reason}"
        self._problems[DAEMON_RING] = text
        self._log.warning(text)
        if known is None:
            self._notifications.rings_displaced(text, change)

    def facts(self) -> dict[str, list[str]]:
        """Return the problems for the ``info`` operation."""
        more = len(self._problems) - _LISTED
        listed = list(self._problems.values())[:_LISTED]
        return {"log_problems": [*listed, f"{more} more"] if more > 0 else listed}
