"""Conditions of tasks (``only_if``), which are asked before a run starts.

A run is asked while it holds its places. With ``on_overlap = "terminate"``, a run that needs the place of an older one
is asked before the older one is stopped. The watcher process executes the commands, so nothing here blocks.

While a condition says no, its run waits until it is asked again. The store has the end of all asking (``due_at``), so
the next scheduler asks at once, but not for longer.
"""

from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from store.runs.writes import merge_refused, update_run
from supervisor.config.model import Task
from supervisor.config.value_records import HostCheck
from supervisor.ipc.probe_request import CommandAnswered, ProbeRequest, RequestFailed
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.procedures import Procedure, Waiter
from supervisor.scheduler.loop.user_lookup import UserLookup
from supervisor.scheduler.runs.live_units import Due, LiveRun
from supervisor.scheduler.runs.run_access import RunAccess
from supervisor.scheduler.runs.run_observer import RunObserver, StartConditions
from supervisor.scheduler.runs.run_rows import refused_row
from supervisor.scheduler.runs.run_transitions import State
from supervisor.scheduler.runs.spawn_requests import command_as_run
from supervisor.scheduler.services.watcher_client import WatcherClient

_NO = 1
"""The exit code of a condition that is not met."""


class ConditionalRuns(Protocol):
    """Ends runs, and lets them wait."""

    def stop(self, run: LiveRun, change: Change, *, cause: str, by: str | None = None) -> None:
        """End a run."""

    def wait(self, run: LiveRun, due: Due) -> None:
        """Let a run wait."""

    def end_wait(self, run: LiveRun) -> None:
        """Queue a run that waits."""

    def admit_waiting(self, change: Change) -> None:
        """Admit all waiting runs that have room."""


class TaskConditions(RunObserver, StartConditions):
    """Asks the conditions of runs."""

    def __init__(self, core: Core, runs: ConditionalRuns, user_lookup: UserLookup, watcher: WatcherClient) -> None:
        self._loop = core.loop
        self._committer = core.committer
        self._daemon = core.daemon
        self._log = core.log
        self._runs = runs
        self._user_lookup = user_lookup
        self._watcher = watcher
        self._asking: dict[str, Waiter] = {}
        """The procedures that wait for an answer, by run id."""

    def applies(self, run: LiveRun) -> bool:
        """Return whether a run is asked before it starts."""
        task = run.definition
        return isinstance(task, Task) and task.only_if is not None and not (run.unconditional or run.asked)

    def check(self, run: LiveRun) -> Procedure[bool]:
        """Return whether a run goes on to its start, which may be refused; otherwise it waits or has ended."""
        task = run.definition
        if not self.applies(run) or not isinstance(task, Task):
            return True
        run.identity = yield self._user_lookup.identity_of(task)
        if run.state is State.ENDED:  # somebody has stopped it
            return False
        if run.identity.refusal is not None:
            run.asked = True
            return True
        until = self._loop.now_ms() + task.only_if_timeout_ms
        run.due = Due("condition", until if run.ask_until is None else run.ask_until)  # for people who look meanwhile
        answer: CommandAnswered | RequestFailed = yield partial(self._ask, run, task)
        if run.state is State.DECIDED:
            run.due = None
        if self._daemon.ending:  # the next daemon asks again
            return False
        if isinstance(answer, RequestFailed) and answer.status == _NO:
            self._said_no(run, task, answer.why)
            return False
        run.asked = True
        if isinstance(answer, RequestFailed):
            run.refusal = f"only_if: {answer.why}"
        return True

    def _ask(self, run: LiveRun, task: Task, waiter: Waiter) -> None:
        self._asking[run.id] = waiter
        request: dict[str, Any] = {"key": _key(run.id), "kind": "condition", "timeout_ms": task.only_if_timeout_ms}
        if isinstance(task.only_if, HostCheck):
            request |= {"target": task.only_if.path or "", "load_below": task.only_if.load_below}
        elif task.only_if is not None:
            here = copy(run)
            here.definition = replace(task, launcher=None)
            settings = self._daemon.settings
            request |= command_as_run(here, task.only_if, settings, RunAccess.of(settings))
        self._watcher.watch(ProbeRequest(**request), partial(self._answered, run.id))

    def _answered(self, run_id: str, answer: CommandAnswered | RequestFailed) -> None:
        self._asking.pop(run_id).resume(answer)

    def _said_no(self, run: LiveRun, task: Task, reason: str) -> None:
        """Let a run wait until it is asked again, or end it."""
        pause_ms, period_ms = task.only_if_retry_ms, task.only_if_for_ms
        with self._committer.changing() as change:
            now_ms = change.now_ms
            if pause_ms is None or period_ms is None:
                until = now_ms
            else:
                until = now_ms + period_ms if run.ask_until is None else min(run.ask_until, now_ms + period_ms)
            if pause_ms is None or now_ms + pause_ms > until:
                self._skip(run, reason, change)
                return
            self._log.info(f"{run.unit.name} {run.id}: its condition said no ({reason}); it is asked again")
            run.ask_until = until
            self._runs.wait(run, Due("condition", until))
            run.timer = self._loop.after(pause_ms, partial(self._runs.end_wait, run))
            change.write(update_run, run.id, due_at=until, due_kind="condition")
            self._runs.admit_waiting(change)

    def _skip(self, run: LiveRun, reason: str, change: Change) -> None:
        """End a run; a scheduled one becomes part of the record of its local day, if there is one."""
        by = f"only_if: {reason}"
        if run.trigger == "cron" and run.scheduled_at is not None and not run.attempt and run.place is None:
            row = refused_row(run, "skipped", cause="condition", stopped_by=by)
            change.write(merge_refused, row, *run.unit.schedule.day_bounds(run.scheduled_at))
        self._runs.stop(run, change, cause="condition", by=by)

    def run_ended(self, run: LiveRun, *_: object, **_more: object) -> None:
        """Stop asking for a run that ended."""
        waiter = self._asking.pop(run.id, None)
        if waiter is not None:
            self._watcher.forget(_key(run.id))
            waiter.close()


def _key(run_id: str) -> str:
    return f"{run_id}/only_if"
