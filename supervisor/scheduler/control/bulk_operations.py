"""Operations on many runs, and the deletion of one run."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypedDict

from store.database import Database
from store.runs.bulk import (
    RunSelector,
    find_active,
    find_deleted,
    find_ended,
    find_newest,
    first_ids,
    mark_deleted,
    unmark_deleted,
)
from store.runs.filter import RunFilter
from store.runs.ids import derived_ulid
from store.runs.writes import delete_run, get_run
from supervisor.config.model import Task
from supervisor.scheduler.control.bulk_jobs import BulkJobs, Job
from supervisor.scheduler.control.rate_limit import TriggerLimit
from supervisor.scheduler.control.socket_operation import (
    Arguments,
    Number,
    Reply,
    Ulid,
    done,
    operation,
    refused,
    refused_for_now,
    shutting_down,
    unavailable,
)
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change, StoreStuck
from supervisor.scheduler.database.retention import Retention
from supervisor.scheduler.runs import run_transitions, secret_parameters
from supervisor.scheduler.runs.live_units import LiveRun, RunRequest, Unit
from supervisor.scheduler.runs.parameter_checks import ParameterChecks, must_wait
from supervisor.scheduler.runs.run_parameters import NOTHING, InvalidParameters, ParameterValues, accept_again

_STOPS = 200
"""Number of runs to stop in one turn of the loop; they take a few milliseconds."""
_UNFINISHED = "it did not finish"
_ID_CHARACTERS = 26
_NAMED = 3
"""Number of runs that an answer names, for the audit log."""


class _Run(Arguments):
    run: str
    by: str


class _Filter(TypedDict, total=False):
    tasks: str | None
    task: str | None
    task_name: str | None
    phases: list[str]
    reasons: list[str]
    triggers: list[str]
    created_after: Number | None
    created_before: Number | None
    exit_code_min: Number | None
    exit_code_max: Number | None
    retries_only: bool
    search: str


class _Bulk(Arguments):
    command: Ulid
    by: str
    match_all: bool
    filter: _Filter
    except_ids: str
    ids: str


class _Restore(_Bulk):
    deleted_at: Number | None = None


class _Rerun(_Bulk):
    triggered_by: str
    credential: str = ""


class _RerunTask(NamedTuple):
    """A task to run again."""

    run_id: str
    """Id of the new run."""
    exists: bool
    """Whether an earlier request with the same command id has created it."""
    given: ParameterValues
    """Parameter values of the run that is repeated."""


class Runs(Protocol):
    """Starts and stops runs."""

    @property
    def live(self) -> Mapping[str, LiveRun]:
        """All unfinished runs by id."""

    def create_task_run(self, unit: Unit, task: Task, change: Change, request: RunRequest) -> LiveRun:
        """Create the first attempt of a run."""

    def stop(self, run: LiveRun, change: Change, *, by: str | None = None) -> None:
        """End a run."""


class BulkOperations:
    """Operations on many runs.

    Args:
        limit: limit of triggers per credential; it allows or refuses a rerun as a whole.
    """

    def __init__(
        self,
        core: Core,
        runs: Runs,
        units: dict[str, Unit],
        bulk: BulkJobs,
        retention: Retention,
        limit: TriggerLimit,
    ) -> None:
        self._loop = core.loop
        self._committer = core.committer
        self._daemon = core.daemon
        self._runs = runs
        self._units = units
        self._bulk = bulk
        self._retention = retention
        self._limit = limit
        self._checks = ParameterChecks(core.loop)
        self._last_ms = 0

    @operation(_Run)
    def run_delete(self, request: _Run, reply: Reply) -> None:
        """Delete a run so that it can be restored; a pending run is first ended, an active one refused.

        While nothing can be stored, a pending run is left alone.
        """
        run_id = request.run
        run = self._runs.live.get(run_id)
        if run is not None and run.state in run_transitions.HELD_BY_ROOT:
            reply(refused(409, f"{run_id} is running; stop it first"))
            return

        if run is None:
            change = self._committer.change(unavailable(reply))
        elif not self._committer.storing:
            unavailable(reply)(StoreStuck())
            return
        else:
            # The run ends in memory at once, so this change must be retried until it is stored.
            # It contains end and deletion, so that no client sees the end alone.
            change = self._committer.change()
            self._runs.stop(run, change, by=request.by)
        at_ms = self._moment_ms()
        task_name = change.read(lambda db: _delete(db, run_id, at_ms))
        change.announce_result(
            lambda _db: [("run.deleted", {"runId": run_id, "taskName": task_name.result})] if task_name.result else []
        )

        def stored() -> None:
            self._retention.deleted()
            reply(done())

        change.then(stored)
        self._committer.commit(change)

    def _moment_ms(self) -> int:
        """Return a time for a deletion in ms since the epoch; each is later than the one before."""
        self._last_ms = max(self._loop.now_ms(), self._last_ms + 1)
        return self._last_ms

    @operation(_Bulk)
    def bulk_delete(self, request: _Bulk, reply: Reply) -> None:
        """Delete the selected runs that have ended; all get the same time, which identifies this deletion."""
        at_ms = self._bulk.began_ms(request.command) or self._moment_ms()

        first: list[str] = []

        def find(db: Database) -> list[str]:
            slices = find_ended(db, _selector(request))
            first.extend(first_ids(db, slices, _NAMED))
            return slices

        def deleted(affected: int) -> None:
            self._retention.deleted()
            reply(done(affected=affected, first=first, deleted_at=at_ms))

        self._bulk.submit(
            Job(
                command=request.command,
                find=find,
                work=lambda db, rows, _now_ms: mark_deleted(db, rows, at_ms),
                event="run.deleted",
                done=deleted,
                failed=unavailable(reply, _UNFINISHED),
                began_ms=at_ms,
            )
        )

    @operation(_Restore)
    def bulk_restore(self, request: _Restore, reply: Reply) -> None:
        """Restore the selected runs that were deleted within the undo window; `deleted_at` selects one deletion."""
        window_ms = self._retention.undo_window_ms
        deleted_at = request.deleted_at
        now_ms = self._loop.now_ms()
        first: list[str] = []

        def find(db: Database) -> list[str]:
            slices = find_deleted(db, _selector(request), now_ms - window_ms, deleted_at)
            first.extend(first_ids(db, slices, _NAMED))
            return slices

        self._bulk.submit(
            Job(
                command=request.command,
                find=find,
                work=lambda db, rows, at_ms: unmark_deleted(db, rows, at_ms - window_ms, deleted_at),
                event="run.restored",
                done=lambda affected: reply(done(affected=affected, first=first)),
                failed=unavailable(reply, _UNFINISHED),
            )
        )

    @operation(_Bulk)
    def bulk_stop(self, request: _Bulk, reply: Reply) -> None:
        """Stop the selected runs that are active and not already stopping.

        While nothing can be stored, answer once all are stopped; it is stored later.
        """

        def stop_all(ids: list[str] | BaseException) -> None:
            if isinstance(ids, BaseException):
                unavailable(reply, _UNFINISHED)(ids)
            else:
                self._stop_some(ids, [], request.by, reply)

        self._bulk.read(lambda db: find_active(db, _selector(request)), stop_all)

    def _stop_some(self, ids: list[str], stopped: list[str], by: str, reply: Reply) -> None:
        change = self._committer.change()
        for run_id in ids[:_STOPS]:
            run = self._runs.live.get(run_id)
            if run is not None and run.state is not run_transitions.State.STOPPING:
                self._runs.stop(run, change, by=by)
                stopped.append(run_id)
        remaining = ids[_STOPS:]
        if remaining:
            self._committer.commit(change)
            self._loop.after(0, lambda: self._stop_some(remaining, stopped, by, reply))
        else:
            answer = done(affected=len(stopped), first=stopped[:_NAMED])
            storing = self._committer.storing
            if storing:
                change.then(lambda: reply(answer))
            self._committer.commit(change)
            if not storing:
                reply(answer)

    @operation(_Rerun)
    def bulk_rerun(self, request: _Rerun, reply: Reply) -> None:
        """Run each task of the selected runs once, with the parameter values of its newest selected run.

        A repeated request returns the same runs. If any values are no longer valid, no run starts.
        """
        data_dir = self._daemon.boot.data_dir

        def find(db: Database) -> dict[str, _RerunTask]:
            newest = find_newest(db, _selector(request))
            return {name: _again(db, data_dir, request.command, name, run) for name, run in newest.items()}

        def rerun_all(tasks: dict[str, _RerunTask] | BaseException) -> None:
            if isinstance(tasks, BaseException):
                unavailable(reply, _UNFINISHED)(tasks)
            elif self._daemon.ending:
                reply(shutting_down())
            else:
                self._run_all(tasks, request, reply)

        self._bulk.read(find, rerun_all)

    def _run_all(self, tasks: dict[str, _RerunTask], request: _Rerun, reply: Reply) -> None:
        triggered: list[dict[str, str]] = []
        new: list[_NewRun] = []
        for name, again in tasks.items():
            unit = self._units.get(name)
            task = None if unit is None else unit.task
            if unit is None or task is None or not task.api_trigger:
                continue
            triggered.append({"run_id": again.run_id, "task_name": name})
            if not again.exists:
                new.append(_NewRun(unit, task, again.run_id, again.given))

        def checked(results: list[ParameterValues | InvalidParameters] | InvalidParameters) -> None:
            if self._daemon.ending:
                reply(shutting_down())
            elif isinstance(results, InvalidParameters):
                reply(refused(409, f"The parameters cannot be checked; nothing was started: {results}"))
            elif any(new_run.unit.task is not new_run.task or not new_run.unit.configured for new_run in new):
                self._run_all(tasks, request, reply)  # a reload during the check
            else:
                self._start_all(new, results, triggered, request, reply)

        waits = any(must_wait(new_run.task, new_run.given.names) for new_run in new)
        self._checks.call(lambda: [_accepted(new_run) for new_run in new], checked, waits=waits)

    def _start_all(
        self,
        new: list["_NewRun"],
        results: list[ParameterValues | InvalidParameters],
        triggered: list[dict[str, str]],
        request: _Rerun,
        reply: Reply,
    ) -> None:
        errors = [
            {"location": f"tasks.{new_run.task.name}.params.{wrong.name}", "message": wrong.message}
            for new_run, result in zip(new, results, strict=True)
            if isinstance(result, InvalidParameters)
            for wrong in result.wrong
        ]
        if errors:
            reply(refused(409, "Parameters of a selected run are no longer valid; nothing was started", errors))
            return
        trigger, by = request.triggered_by, request.by
        credential = request.credential or by
        if new and (wait_s := self._limit.blocked_s(credential)):
            reply(refused_for_now(self._limit.refusal(by, wait_s), wait_s))
            return
        self._limit.count(credential, len(new))
        with self._committer.changing(unavailable(reply)) as change:
            for new_run, params in zip(new, results, strict=True):
                if isinstance(params, ParameterValues) and new_run.run_id not in self._runs.live:
                    run = RunRequest(trigger=trigger, run_id=new_run.run_id, by=by, params=params)
                    self._runs.create_task_run(new_run.unit, new_run.task, change, run)
            change.then(lambda: reply(done(triggered=triggered)))


class _NewRun(NamedTuple):
    """A run to start."""

    unit: Unit
    task: Task
    run_id: str
    given: ParameterValues
    """Parameter values of the run that is repeated."""


def _accepted(new_run: _NewRun) -> ParameterValues | InvalidParameters:
    try:
        return accept_again(new_run.task, new_run.given)
    except InvalidParameters as err:
        return err


def _again(db: Database, data_dir: str, command: str, name: str, newest: str) -> _RerunTask:
    run_id = derived_ulid(command, name)
    run = get_run(db, newest, True)
    given = NOTHING if run is None else secret_parameters.values_of_run(data_dir, run)
    return _RerunTask(run_id, get_run(db, run_id, True) is not None, given)


def _selector(request: _Bulk) -> RunSelector:
    return RunSelector(
        match_all=request.match_all,
        filter=RunFilter(**request.filter),
        except_ids=_unpacked(request.except_ids),
        ids=_unpacked(request.ids),
    )


def _unpacked(ids: str) -> list[str]:
    return [ids[at : at + _ID_CHARACTERS] for at in range(0, len(ids), _ID_CHARACTERS)]


def _delete(db: Database, run_id: str, now_ms: int) -> str | None:
    """Delete a run; return the name of its task, or None if it cannot be deleted."""
    run = get_run(db, run_id)
    return run.task_name if run is not None and delete_run(db, run_id, now_ms) else None
