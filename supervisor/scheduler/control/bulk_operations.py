"""Operations on many runs, and the deletion of one run."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, Protocol, TypedDict

from store.database import Database
from store.runs.bulk import (
    RunSelection,
    find_active,
    find_deleted,
    find_ended,
    find_newest,
    first_ids,
    mark_deleted,
    unmark_deleted,
)
from store.runs.filter import RunFilter
from store.runs.flows import Flow, get_flow, next_attempt, put_repeated, step_names
from store.runs.ids import derived_ulid
from store.runs.writes import Run, delete_run, get_run
from supervisor.config.model import Task
from supervisor.ipc.plural import NAMED, counted_with_names
from supervisor.scheduler.control.bulk_jobs import BulkJobs, Job
from supervisor.scheduler.control.control_socket import (
    Answer,
    Arguments,
    Number,
    RequestEntry,
    Ulid,
    done,
    operation,
    refused,
    refused_for_now,
    shutting_down,
)
from supervisor.scheduler.control.rate_limit import TriggerLimit
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change, StoreStuck
from supervisor.scheduler.database.retention import RetentionChecks
from supervisor.scheduler.loop.procedures import Procedure, Refused
from supervisor.scheduler.runs import run_transitions
from supervisor.scheduler.runs.live_units import LiveRun, RunRequest, Unit
from supervisor.scheduler.runs.private_data import PrivateData
from supervisor.scheduler.runs.run_parameters import InvalidParameters, ParameterValues, accept_again

_STOPS = 200
"""Number of runs to stop in one turn of the loop; they take a few milliseconds."""
_UNFINISHED = "it did not finish"
_ID_CHARACTERS = 26


class _RunArguments(Arguments):
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
    failed: bool = False
    """Whether flows continue: their next attempts repeat only what did not succeed."""
    from_step: str = ""
    """The step from which flows continue: their next attempts repeat it and all behind it, too."""
    credential: str = ""

    @property
    def continues(self) -> bool:
        """Whether it starts next attempts of flows."""
        return self.failed or bool(self.from_step)


class _RerunTask(NamedTuple):
    """A task to run again."""

    run_id: str
    """Id of the new run."""
    exists: bool
    """Whether an earlier request with the same command id has created it."""
    given: ParameterValues
    """Parameter values of the run that is repeated."""
    continued: Run | None = None
    """The run of a flow of which it is the next attempt."""
    refusal: str | None = None
    """Why a flow cannot continue."""


class _NewRun(NamedTuple):
    """A run to start."""

    unit: Unit
    task: Task
    run_id: str
    given: ParameterValues
    """Parameter values of the run that is repeated."""
    continued: Run | None = None
    """The run of a flow of which it is the next attempt."""


class BulkRuns(Protocol):
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
        runs: BulkRuns,
        units: dict[str, Unit],
        bulk: BulkJobs,
        retention: RetentionChecks,
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
        self._last_ms = 0

    @operation(_RunArguments)
    def run_delete(self, request: _RunArguments, entry: RequestEntry) -> Procedure[Answer]:
        """Delete a run so that it can be restored; a pending run is first ended, an active one refused.

        While nothing can be stored, a pending run is left alone.
        """
        run_id = request.run
        run = self._runs.live.get(run_id)
        if run is not None and run.state in run_transitions.STARTED:
            return refused(409, f"{run_id} is running; stop it first")
        if run is not None and not self._committer.storing:
            raise Refused(StoreStuck())
        change = self._committer.change()
        if run is not None:
            self._runs.stop(run, change, by=request.by)
        at_ms = self._moment_ms()
        task_name = change.read(_delete, run_id, at_ms)
        entry.record(change, lambda: None if task_name.result is None else "")
        change.announce_result(
            lambda _db: [("run.deleted", {"runId": run_id, "taskName": task_name.result})] if task_name.result else []
        )
        # A run that waited has ended in memory, so its change must be retried until it is stored. The change contains
        # end and deletion, so that no client sees the end alone.
        yield self._committer.stored_or_refused(change) if run is None else self._committer.stored(change)
        self._retention.deleted()
        return done()

    def _moment_ms(self) -> int:
        """Return a time for a deletion in ms since the epoch; each is later than the one before."""
        self._last_ms = max(self._loop.now_ms(), self._last_ms + 1)
        return self._last_ms

    @operation(_Bulk, _UNFINISHED)
    def bulk_delete(self, request: _Bulk, entry: RequestEntry) -> Procedure[Answer]:
        """Delete the selected runs that have ended; all get the same time, which identifies this deletion."""
        at_ms = self._bulk.began_ms(request.command) or self._moment_ms()
        first: list[str] = []
        affected = yield from self._bulk.carry_out(
            Job(
                command=request.command,
                find=lambda db: _with_first(db, find_ended(db, _selector(request)), first),
                work=lambda db, rows, _now_ms: mark_deleted(db, rows, at_ms),
                event="run.deleted",
                record=partial(_record, entry, first),
                began_ms=at_ms,
            )
        )
        self._retention.deleted()
        return done(affected=affected, first=first, deleted_at=at_ms)

    @operation(_Restore, _UNFINISHED)
    def bulk_restore(self, request: _Restore, entry: RequestEntry) -> Procedure[Answer]:
        """Restore the selected runs that were deleted within the undo window; `deleted_at` selects one deletion."""
        window_ms = self._retention.undo_window_ms
        deleted_at = request.deleted_at
        now_ms = self._loop.now_ms()
        first: list[str] = []
        affected = yield from self._bulk.carry_out(
            Job(
                command=request.command,
                find=lambda db: _with_first(
                    db, find_deleted(db, _selector(request), now_ms - window_ms, deleted_at), first
                ),
                work=lambda db, rows, at_ms: unmark_deleted(db, rows, at_ms - window_ms, deleted_at),
                event="run.restored",
                record=partial(_record, entry, first),
            )
        )
        return done(affected=affected, first=first)

    @operation(_Bulk, _UNFINISHED)
    def bulk_stop(self, request: _Bulk, entry: RequestEntry) -> Procedure[Answer]:
        """Stop the selected runs that are active and not already stopping.

        While nothing can be stored, answer once all are stopped; it is stored later.
        """
        ids: list[str] = yield self._bulk.result_of(lambda db: find_active(db, _selector(request)))
        stopped: list[str] = []
        change = self._committer.change()
        for number, run_id in enumerate(ids):
            if number and number % _STOPS == 0:
                _record_stops(entry, change, stopped)
                self._committer.commit(change)
                yield self._loop.pause()
                change = self._committer.change()
            run = self._runs.live.get(run_id)
            if run is not None and run.state is not run_transitions.State.STOPPING:
                self._runs.stop(run, change, by=request.by)
                stopped.append(run_id)
        _record_stops(entry, change, stopped)
        if self._committer.storing:
            yield self._committer.stored(change)
        else:
            self._committer.commit(change)
        return done(affected=len(stopped), first=stopped[:NAMED])

    @operation(_Rerun)
    def bulk_rerun(self, request: _Rerun, entry: RequestEntry) -> Procedure[Answer]:
        """Run each task of the selected runs once, with the parameter values of its newest selected run.

        A repeated request returns the same runs. If any values are no longer valid, no run starts.
        """
        private = PrivateData(self._daemon.settings)
        try:
            tasks: dict[str, _RerunTask] = yield self._bulk.result_of(lambda db: _reruns(db, private, request))
        except Refused as refusal:
            return refused(503, f"{_UNFINISHED}: {refusal.error}")
        if self._daemon.ending:
            return shutting_down()
        refusals = [
            {"location": f"tasks.{name}", "message": again.refusal} for name, again in tasks.items() if again.refusal
        ]
        if refusals:
            return refused(409, "A flow cannot continue; nothing was started", refusals)
        triggered: list[dict[str, str]] = []
        new: list[_NewRun] = []
        for name, again in tasks.items():
            unit = self._units.get(name)
            task = None if unit is None else unit.task
            if unit is None or task is None or not task.api_trigger:
                continue
            triggered.append({"run_id": again.run_id, "task_name": name})
            if not again.exists:
                new.append(_NewRun(unit, task, again.run_id, again.given, again.continued))
        results = [_accepted(new_run) for new_run in new]
        errors = [
            {"location": f"tasks.{new_run.task.name}.params.{wrong.name}", "message": wrong.message}
            for new_run, result in zip(new, results, strict=True)
            if isinstance(result, InvalidParameters)
            for wrong in result.wrong
        ]
        if errors:
            return refused(409, "Parameters of a selected run are no longer valid; nothing was started", errors)
        credential = request.credential or request.by
        if new and (wait_s := self._limit.blocked_s(credential)):
            return refused_for_now(self._limit.refusal(request.by, wait_s), wait_s)
        self._limit.count(credential, len(new))
        change = self._committer.change()
        for new_run, params in zip(new, results, strict=True):
            if isinstance(params, ParameterValues) and new_run.run_id not in self._runs.live:
                self._run_again(new_run, params, request, change)
        if new:
            effect = counted_with_names([f"{run['task_name']} {run['run_id']}" for run in triggered], "run")
            entry.record(change, lambda: effect)
        yield self._committer.stored_or_refused(change)
        return done(triggered=triggered)

    def _run_again(self, new_run: _NewRun, params: ParameterValues, request: _Rerun, change: Change) -> None:
        earlier = new_run.continued
        run = RunRequest(
            trigger=request.triggered_by,
            run_id=new_run.run_id,
            by=request.by,
            params=params,
            scheduled_at=None if earlier is None else earlier.scheduled_at,
            retry_of=None if earlier is None else earlier.id,
            attempt=0 if earlier is None else earlier.retry_attempt + 1,
        )
        self._runs.create_task_run(new_run.unit, new_run.task, change, run)
        if request.from_step:
            change.write(put_repeated, run_id=new_run.run_id, step=request.from_step)


def _with_first(db: Database, slices: list[str], first: list[str]) -> list[str]:
    """Return the slices; add the first ids in them to `first`."""
    first.extend(first_ids(db, slices, NAMED))
    return slices


def _record(entry: RequestEntry, first: list[str], change: Change, affected: Callable[[], int]) -> None:
    entry.record(change, lambda: counted_with_names(first, "run", affected()))


def _record_stops(entry: RequestEntry, change: Change, stopped: list[str]) -> None:
    if stopped:
        effect = counted_with_names(stopped, "run")
        entry.record(change, lambda: effect)


def _accepted(new_run: _NewRun) -> ParameterValues | InvalidParameters:
    try:
        return accept_again(new_run.task, new_run.given)
    except InvalidParameters as err:
        return err


def _reruns(db: Database, private: PrivateData, request: _Rerun) -> dict[str, _RerunTask]:
    """Return the tasks of the selected runs, by name.

    Behind a run inside a flow is its flow, unless the run was named or the caller is limited to some tasks.
    """
    tasks: dict[str, _RerunTask] = {}
    to_flows = request.match_all and request.filter.get("tasks") is None
    for newest in find_newest(db, _selector(request)).values():
        run = get_run(db, newest, True)
        while to_flows and run is not None and run.flow_run_id is not None:
            run = get_run(db, run.flow_run_id, True)
        if run is None or run.task_name in tasks:
            continue
        found = get_flow(db, run.id) if request.continues else None
        if request.continues and request.match_all and found is None:
            continue
        run_id = derived_ulid(request.command, run.task_name)
        exists = get_run(db, run_id, True) is not None
        refusal = _refusal(db, run, found and found[0], request.from_step) if request.continues and not exists else None
        given = private.parameters_of(run)
        tasks[run.task_name] = _RerunTask(run_id, exists, given, run if request.continues else None, refusal)
    return tasks


def _refusal(db: Database, run: Run, found: Flow | None, from_step: str) -> str | None:
    """Return why a run is not that of a flow which can continue, from a step if one is named; None if it is."""
    if found is None:
        return f"{run.id} is not the run of a flow that has begun"
    if run.status != "ended":
        return f"{run.id} has not ended"
    if from_step and from_step not in step_names(db, found):
        return f"{run.id} has no step {from_step}"
    if run.end_reason == "succeeded" and not from_step:
        return f"{run.id} has succeeded"
    later = next_attempt(db, run)
    return None if later is None else f"{run.id} has a later attempt: {later}"


def _selector(request: _Bulk) -> RunSelection:
    return RunSelection(
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
