"""The promises of tasks: what is to be done by ``finish_by``, and how many runs may fail (``failure_rate``).

Each instant that runs has a deadline, and instants with the same deadline are one promise. The state is stored with the
instants and with the ends of runs, so every promise is kept or reported once, whatever restarts meanwhile.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from store.runs.run_durations import expectation
from store.tasks import Promise
from supervisor.config.value_records import FailureRate
from supervisor.config.value_types.durations import format_roughly
from supervisor.ipc.log_line import stamp
from supervisor.schedule.admission import Obstacle
from supervisor.schedule.catchup import ON_TIME_MS
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.loop import Timer
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.runs.end_reason import Verdict
from supervisor.scheduler.runs.live_units import LiveRun, Unit, note_promises
from supervisor.scheduler.runs.retry import RETRIED_REASONS
from supervisor.scheduler.runs.run_observer import RunObserver
from supervisor.scheduler.runs.scheduled_starts import InstantListener

_MOST_DUE = 100
"""Maximum number of open promises of a task; further instants promise nothing until one of these is kept or broken."""
_OBSTACLES = {"task": "an earlier run", "daemon": "max_running"}

Obstacles = Callable[[Iterable[LiveRun]], list[list[Obstacle]]]


class TaskPromises(RunObserver, InstantListener):
    """Keeps, breaks and reports promises; `obstacles` returns why runs wait."""

    def __init__(self, core: Core, notifications: Notifications, obstacles: Obstacles) -> None:
        self._loop = core.loop
        self._daemon = core.daemon
        self._committer = core.committer
        self._notifications = notifications
        self._obstacles = obstacles
        self._timers: dict[str, Timer] = {}
        self._since = core.loop.now_ms()

    def start(self, units: Iterable[Unit]) -> None:
        """Watch the stored promises of `units`."""
        with self._committer.changing() as change:
            for unit in units:
                self.redefined(unit, change)

    def redefined(self, unit: Unit, change: Change) -> None:
        """Apply the present ``finish_by`` of a task to its open promises."""
        state, due = unit.promises, dict[int, Promise]()
        for one in state.due:
            if (deadline := unit.schedule.deadline(one.instant)) is not None:
                due[deadline] = Promise(deadline, one.instant, one.since)
        promising = unit.task is not None and unit.task.finish_by is not None
        rate = None if unit.task is None else unit.task.failure_rate
        outcomes, failing_since = (state.outcomes, state.failing_since) if rate is not None else ("", None)
        late = state.late if promising else None
        note_promises(unit, change, due=_ordered(due), late=late, outcomes=outcomes, failing_since=failing_since)
        self._watch(unit)

    def instants_due(self, unit: Unit, instants: Iterable[int], change: Change) -> None:
        """Promise the work of instants, whose runs are created; one without a run is part of one that waits."""
        due = {promise.deadline: promise for promise in unit.promises.due}
        queued = [*unit.queue, *unit.held_back]
        runs = [run for run in (*unit.active.values(), *queued) if run.scheduled_at is not None]
        for at in instants:
            own = any(run.scheduled_at == at for run in runs)
            waiting = [] if own else [run.scheduled_at or 0 for run in queued if 0 < (run.scheduled_at or 0) < at]
            if (deadline := unit.schedule.deadline(at)) is not None:
                due[deadline] = Promise(deadline, at, max(waiting, default=at))
        change.undo(partial(setattr, unit, "promises", unit.promises))
        note_promises(unit, change, due=_ordered(due))
        self._watch(unit)

    def pause_ended(self, unit: Unit, until: int) -> None:
        """Drop the promises whose deadlines passed during the pause."""
        with self._committer.changing() as change:
            note_promises(unit, change, due=tuple(one for one in unit.promises.due if one.deadline > until))

    def run_ended(
        self,
        run: LiveRun,
        verdict: Verdict,
        change: Change,
        *,
        will_retry: bool,
        ran_ms: int | None,  # noqa: ARG002 - the signature of them all
    ) -> None:
        """Note the promises that a success keeps, and the rate of failures."""
        state, rate = run.unit.promises, None if run.unit.task is None else run.unit.task.failure_rate
        if rate is not None and (verdict.succeeded or (verdict.reason in RETRIED_REASONS and not will_retry)):
            self._count(run, rate, change, failed=not verdict.succeeded)
        if not verdict.succeeded or not (state.due or state.late):
            return
        at, late = run.created_at if run.scheduled_at is None else run.scheduled_at, state.late
        if late is not None and at >= late.since:
            self._notifications.task_on_time(run, late.deadline, change)
            late = None
        note_promises(run.unit, change, due=tuple(one for one in state.due if at < one.since), late=late)
        self._watch(run.unit)

    def _count(self, run: LiveRun, rate: FailureRate, change: Change, *, failed: bool) -> None:
        """Count a run and its retries as one, and report when too many fail, and when they no longer do."""
        unit = run.unit
        outcomes = (unit.promises.outcomes + ("f" if failed else "s"))[-rate.runs :]
        failures, since = outcomes.count("f"), unit.promises.failing_since
        if (failures >= rate.failures) != (since is not None):
            self._notifications.task_failing(run, failures, len(outcomes), since, change)
            since = change.now_ms if since is None else None
        note_promises(unit, change, outcomes=outcomes, failing_since=since)

    def _watch(self, unit: Unit) -> None:
        timer = self._timers.pop(unit.name, None)
        if timer is not None:
            timer.cancel()
        if unit.promises.due:
            self._timers[unit.name] = self._loop.at(unit.promises.due[0].deadline, self._deadline_passed, unit)

    def _deadline_passed(self, unit: Unit) -> None:
        """Report a broken promise; if several are broken at once, only the newest one."""
        if not unit.configured or self._daemon.ending:
            return
        with self._committer.changing() as change:
            broken = [promise for promise in unit.promises.due if promise.deadline <= change.now_ms]
            note_promises(unit, change, due=unit.promises.due[len(broken) :])
            if broken and not unit.paused and not self._daemon.paused:
                note_promises(unit, change, late=broken[-1])
                self._notifications.task_late(unit, broken[-1].deadline, self._text(unit, broken[-1], change), change)
        self._watch(unit)

    def _text(self, unit: Unit, promise: Promise, change: Change) -> str:
        """Say why the deadline is reported late, what the task is doing, and how long its runs usually take."""
        task, sentences = unit.task, [""]
        if promise.deadline < self._since or change.now_ms - promise.deadline > ON_TIME_MS:
            sentences.append("The daemon was not running then, or the host slept.")
        runs = [*unit.active.values(), *unit.queue, *unit.waiting.values()]
        sentences.append(self._doing(runs[0]) if runs else "No run is active or waiting.")
        usual = None if task is None else expectation(task.expected_duration_ms, unit.promises.durations)
        if usual is not None:
            sentences.append(f"Usually it takes {format_roughly(usual.usual_ms)}.")
        return " ".join(sentences)

    def _doing(self, run: LiveRun) -> str:
        if run.id in run.unit.active:
            return f"Run {run.id} is active."
        if run.due is not None:
            return f"Run {run.id} waits until {stamp(run.due.at)} ({run.due.kind})."
        names = [_OBSTACLES.get(one.kind, f"the slot {one.name}") for one in self._obstacles([run])[0]]
        return f"Run {run.id} waits for {', '.join(names) or 'its start'}."


def _ordered(due: Mapping[int, Promise]) -> tuple[Promise, ...]:
    return tuple(promise for _, promise in sorted(due.items()))[:_MOST_DUE]
