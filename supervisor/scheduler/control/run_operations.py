"""Operations on runs and slots, the answers to approvals, and the ``info`` operation.

A trigger may have an idempotency key. For a day, a trigger with the same key returns the same run.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Annotated, Protocol

from msgspec import Meta

from store import idempotency
from store.database import Database
from store.errors import Conflict
from store.runs.writes import Approval, approvals_of, get_run
from supervisor.config.model import Task
from supervisor.host.cgroup_usage import directory_of, mount_of
from supervisor.host.cgroups import run_of
from supervisor.host.process_environ import Environments
from supervisor.host.procfs import find_process
from supervisor.schedule.admission import MOST_HOLDERS, Claim, Obstacle, SlotUse
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
from supervisor.scheduler.database.commits import Change, Committer
from supervisor.scheduler.loop.procedures import Procedure, Refused, Turn, Wait
from supervisor.scheduler.runs import run_transitions
from supervisor.scheduler.runs.approval_gate import Approvals
from supervisor.scheduler.runs.live_units import Due, LiveRun, RunRequest, Unit, expected_of
from supervisor.scheduler.runs.run_parameters import InvalidParameters, complete_values
from supervisor.scheduler.runs.run_rows import answer_row

_PATIENCE_S = 0.01
"""How long to wait for the environment of a process: /proc/PID/environ may block on the process's memory lock."""
_MOST_ANCESTORS = 100
_MOST_WAITING = 1000
"""Maximum number of runs of a task that are not yet due, for a new one to be requested for a later time."""
_OTHER = "The key was used for another request"


class Trigger(Arguments):
    """A request to run a task."""

    run: Ulid
    task: str
    triggered_by: str
    by: str
    params: dict[str, str] | None = None
    key: str | None = None
    """The idempotency key."""
    request: str = ""
    """Fingerprint of the request, to detect a key that is reused for another one."""
    credential: str = ""
    run_at: Number | None = None
    """When it is to start, in milliseconds since the epoch; None: now."""
    force: bool = False
    """Whether it starts without being asked for its condition."""
    from_run: Ulid | None = None
    from_process: Annotated[int, Meta(ge=1, le=(1 << 31) - 1)] | None = None


class _Runs(Arguments):
    runs: list[str]


class _Slots(Arguments):
    listed: Annotated[int, Meta(ge=0, le=MOST_HOLDERS)] = 0
    """Maximum number of holders, and of waiting runs, to list for each slot."""


class _Stop(Arguments):
    run: str
    by: str
    force: bool


class IdempotencyKeys:
    """Lets one request per key proceed at a time; others wait until its run is stored or refused."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._turns: dict[str, Turn] = {}

    def take_turn(self, key: str) -> Wait:
        """Wait until no other request with the key is under way."""
        return self._turns.setdefault(key, Turn()).take

    def leave(self, key: str) -> None:
        """Let the next request with the key proceed."""
        if not self._turns[key].leave():
            del self._turns[key]

    def find(self, key: str, request: Trigger) -> Procedure[Answer | None]:
        """Return the answer with the run that has the key; None if no run has it."""
        change = self._committer.change()
        claim = change.read(idempotency.find, key, change.now_ms)
        yield self._committer.stored_or_refused(change)
        if claim.result is None:
            return None
        if claim.result.request == request.request:
            return done(run=claim.result.run_id)
        error = {"location": "header.Idempotency-Key", "message": "was used for another request"}
        return refused(422, _OTHER, [error])

    @staticmethod
    def claim(request: Trigger, change: Change) -> None:
        """Add the key of a request, if it has one, to the change that stores its run."""
        key = request.key
        if key is not None:
            run_id, fingerprint = request.run, request.request
            change.write(idempotency.claim, key, run_id, fingerprint, change.now_ms)


class RequestedRuns(Protocol):
    """Starts and stops runs, and knows their reasons to wait."""

    @property
    def live(self) -> Mapping[str, LiveRun]:
        """All unfinished runs by id."""

    def create_task_run(self, unit: Unit, task: Task, change: Change, request: RunRequest) -> LiveRun:
        """Create the first attempt of a run."""

    def stop(self, run: LiveRun, change: Change, *, by: str | None = None, force: bool = False) -> None:
        """End a run."""

    def obstacles(self, runs: Iterable[LiveRun]) -> list[list[Obstacle]]:
        """Return, for each of `runs`, the reasons why it waits."""

    def holders_in_the_way(self, task: Task, now_ms: int) -> dict[str, str]:
        """Return the slot by run id, for each run that holds a slot for which a new run of `task` would wait."""

    def slots(self, listed: int) -> list[SlotUse]:
        """Return the use of all slots."""

    def task_load(self) -> tuple[int | None, int]:
        """Return ``max_running`` (None: no limit), and the number of active runs of tasks."""


class RunOperations:
    """Operations on runs; each answers after its effect is stored, except a stop of an active run."""

    def __init__(
        self,
        core: Core,
        runs: RequestedRuns,
        units: dict[str, Unit],
        info: dict[str, object],
        daemon_state: Callable[[], dict[str, object]] = dict,
        limit: TriggerLimit | None = None,
    ) -> None:
        """Create the operations.

        Args:
            core: the loop's committer and the state of the daemon.
            runs: starts and stops the runs.
            units: all configured units; shared, not copied.
            info: facts about the configuration.
            daemon_state: returns the present state of the daemon.
            limit: limit of triggers per credential; None: no limit.
        """
        self._limit = limit or TriggerLimit(core.loop.now_s, 0)
        self._committer = core.committer
        self._daemon = core.daemon
        self._runs = runs
        self._daemon_state = daemon_state
        self._info = info
        self._units = units
        self._keys = IdempotencyKeys(core.committer)
        self._environments = Environments(_PATIENCE_S)

    @operation(Arguments)
    def info(self, _request: Arguments, _entry: RequestEntry) -> Answer:
        """Answer with facts about the configuration and the state of the daemon."""
        return done(**self._info, **self._daemon_state())

    @operation(Trigger)
    def trigger(self, request: Trigger, entry: RequestEntry) -> Procedure[Answer]:
        """Run a task now; answer after the run is stored, whether it starts, waits, or is refused by ``on_overlap``.

        The answer includes the stored row, unless the run was refused or the request was repeated.
        """
        answer = self._answer_at_once(request)
        key = request.key
        if answer is not None:
            return answer
        if key is None:
            return (yield from self._create(request, entry))
        yield self._keys.take_turn(key)
        try:
            return (
                (yield from self._keys.find(key, request))
                or self._answer_at_once(request)  # a reload or a repeated request may have come first
                or (yield from self._create(request, entry))
            )
        finally:
            self._keys.leave(key)

    def _answer_at_once(self, request: Trigger) -> Answer | None:
        """Return the answer to a request that creates no run; None if it may create one."""
        name = request.task
        unit = self._units.get(name)
        if request.run in self._runs.live:  # this request is a repetition
            return done()
        if unit is None:
            return refused(404, f'no task named "{name}"')
        if unit.task is None:
            return refused(409, f"{name} is a service; use ringward start {name}")
        if unit.task.external:
            return refused(409, f"{name} runs elsewhere; its job reports its runs")
        if not unit.task.api_trigger:
            return refused(403, f"{name} has api_trigger = false: only its schedule may run it")
        if self._daemon.ending:
            return shutting_down()
        return None

    def _create(self, request: Trigger, entry: RequestEntry) -> Procedure[Answer]:
        """Create the run of a request for a task; return the answer once it is stored."""
        unit = self._units[request.task]
        task = unit.definition
        assert isinstance(task, Task)  # noqa: S101 - see _answer_at_once
        try:
            params = complete_values(task, request.params or {})
        except InvalidParameters as err:
            errors = [{"location": f"body.params.{wrong.name}", "message": wrong.message} for wrong in err.wrong]
            return refused(422, f"Invalid parameters for {unit.name}", errors)
        if request.run_at is not None and len(unit.waiting) >= _MOST_WAITING:
            return refused(409, f"{unit.name} has {len(unit.waiting)} runs that wait for their time")
        holders = self._runs.holders_in_the_way(task, self._committer.change().now_ms) if request.run_at is None else {}
        caller = self._caller(request, holders) if holders else None
        if caller is not None:
            slot = holders[caller.id]
            message = (
                f"A run of {unit.name} would wait for the slot {slot}, which the requesting run {caller.id} of"
                f" {caller.unit.name} holds; start it after {caller.unit.name} has ended, or raise slots.{slot}.size"
            )
            return refused(409, message)
        credential = request.credential or request.by
        if wait_s := self._limit.blocked_s(credential):
            return refused_for_now(self._limit.refusal(request.by, wait_s), wait_s)
        self._limit.count(credential)
        change = self._committer.change()
        new = RunRequest(
            trigger=request.triggered_by,
            run_id=request.run,
            by=request.by,
            params=params,
            unconditional=request.force,
            due=None if request.run_at is None else Due("at", request.run_at),
        )
        run = self._runs.create_task_run(unit, task, change, new)
        self._keys.claim(request, change)
        entry.record(change)
        refusal = run.state is run_transitions.State.ENDED
        answer = done() if refusal else done(row=answer_row(run))
        try:
            yield self._committer.stored_or_refused(change)
        except Refused as refused_change:
            if not isinstance(refused_change.error, Conflict):
                raise
            return done()  # the run id exists, so this request is a repetition
        return answer

    def _caller(self, request: Trigger, holders: Collection[str]) -> LiveRun | None:
        """Return the run that sent a request, if it is one of `holders`; None otherwise.

        Its token identifies it or, for a local connection, the process that connected. If it waited for a new run that
        needs the slot which it holds itself, both would wait forever.
        """
        run_id = request.from_run
        if run_id is None and (process := request.from_process) is not None:
            owners = _owning_runs(process, self._daemon.settings.daemon_id, self._environments)
            run_id = next((owner for owner in owners if owner in self._runs.live), None)
        return self._runs.live[run_id] if run_id is not None and run_id in holders else None

    @operation(_Runs)
    def runs_wait(self, request: _Runs, _entry: RequestEntry) -> Answer:
        """Answer with the slots that each unfinished run uses, why it waits, its deadline and its usual duration."""
        live = self._runs.live
        runs = [live[run_id] for run_id in request.runs if run_id in live]
        queued = [run for run in runs if run.state is run_transitions.State.QUEUED]
        waiting_for: dict[str, list[dict[str, object]]] = {
            run.id: [{"kind": run.due.kind, "until": None if run.due.is_endless else run.due.at}]
            for run in runs
            if run.due is not None
        }
        for run in runs:
            if run.due is not None and run.due.kind == "approval" and run.approval is not None:
                waiting_for[run.id][0]["approvers"] = run.approval.names
        for run, reasons in zip(queued, self._runs.obstacles(queued), strict=True):
            waiting_for[run.id] = [
                {
                    "kind": reason.kind,
                    "name": reason.name,
                    "size": reason.size,
                    "held_by": [(other, live[other].unit.name) for other in reason.held_by],
                }
                for reason in reasons
            ]
        details = {
            run.id: {
                "uses": run.definition.uses,
                "waiting_for": waiting_for.get(run.id, []),
                "done_by": None if run.scheduled_at is None else run.unit.schedule.deadline(run.scheduled_at),
                "usual_ms": None if (usual := expected_of(run)) is None else usual.usual_ms,
            }
            for run in runs
        }
        return done(runs=details)

    @operation(_Slots)
    def slots(self, request: _Slots, _entry: RequestEntry) -> Answer:
        """Answer with the use of each configured slot and of ``max_running``."""
        slots = [
            {
                "name": slot.name,
                "size": slot.size,
                "used": slot.used,
                "waiting": slot.waiting,
                "held_by": _uses(slot.holders, slot.name),
                "next_runs": _uses(slot.next_runs, slot.name),
            }
            for slot in self._runs.slots(request.listed)
        ]
        limit, running = self._runs.task_load()
        return done(slots=slots, max_running={"limit": limit, "running": running})

    @operation(_Stop)
    def stop(self, request: _Stop, entry: RequestEntry) -> Procedure[Answer]:
        """Stop a run; succeed without effect if it has ended.

        For a run with a process, answer as soon as the root is asked: a full disk must not delay a stop. While nothing
        can be stored, answer at once for a waiting run, too, which will not start.
        """
        run_id = request.run
        run = self._runs.live.get(run_id)
        change = self._committer.change()
        if run is None:
            ended = change.read(get_run, run_id)
            yield self._committer.stored_or_refused(change)
            return refused(404, f"no run with the id {run_id}") if ended.result is None else done()
        at_once = run.state in run_transitions.STARTED or not self._committer.storing
        self._runs.stop(run, change, by=request.by, force=request.force)
        entry.record(change)
        if at_once:
            self._committer.commit(change)
        else:
            yield self._committer.stored(change)
        return done()


class _Answered(Arguments):
    run: str
    by: str
    """The client, for records."""
    person: str
    """The name of the person, to compare with ``needs_approval``; empty if the client is none."""
    starter: str | None = None
    """The name of the person who started the run; None if a schedule started it."""
    note: str | None = None


class ApprovalOperations:
    """Operations on runs that wait for an approval. The first answer counts; the next ones are refused."""

    def __init__(self, core: Core, runs: RequestedRuns, approvals: Approvals) -> None:
        self._committer = core.committer
        self._daemon = core.daemon
        self._runs = runs
        self._approvals = approvals

    @operation(_Answered)
    def approve(self, request: _Answered, entry: RequestEntry) -> Procedure[Answer]:
        """Let a run go on to its start; answer once this is stored."""
        run, approval = self._waiting(request)
        if run is None or approval is None:
            return (yield from self._late(request))
        if refusal := self._refusal(request, approval):
            return refusal
        change = self._committer.change()
        entry.record(change)
        yield from self._approvals.approve(run, _answered(approval, request), change)
        return done()

    @operation(_Answered)
    def reject(self, request: _Answered, entry: RequestEntry) -> Procedure[Answer]:
        """End a run; answer once this is stored."""
        run, approval = self._waiting(request)
        if run is None or approval is None:
            return (yield from self._late(request))
        if refusal := self._refusal(request, approval):
            return refusal
        change = self._committer.change()
        self._approvals.reject(run, _answered(approval, request), change)
        entry.record(change)
        yield self._committer.stored(change)
        return done()

    def _waiting(self, request: _Answered) -> tuple[LiveRun | None, Approval | None]:
        """Return a run that waits for an answer, and the approval that it needs."""
        run = self._runs.live.get(request.run)
        return (None, None) if run is None or not self._approvals.awaits(run) else (run, run.approval)

    def _refusal(self, request: _Answered, approval: Approval) -> Answer | None:
        """Return why a client may not answer; None if it may."""
        if self._daemon.ending:
            return shutting_down()
        names = approval.names
        if names and request.person not in names:
            return refused(403, f"Only {' and '.join(names)} may approve or reject this run, and this is {request.by}")
        if approval.not_by_starter and request.starter is not None and request.starter == request.person:
            return refused(403, "not_by_starter: the person who started a run may not answer for it")
        return None

    def _late(self, request: _Answered) -> Procedure[Answer]:
        """Return the refusal of an answer for which no run waits."""
        change = self._committer.change()
        pending = change.read(_stored, request.run)
        yield self._committer.stored_or_refused(change)
        if pending.result is None:
            return refused(404, f"no run with the id {request.run}")
        approval = pending.result.get(request.run)
        if approval is None or approval.answer is None:
            return refused(409, f"{request.run} does not wait for an approval")
        how = approval.answer.replace("_", " ")
        by = f" by {approval.answered_by}" if approval.answered_by else ""
        return refused(409, f"{request.run} was already answered: {how}{by}")


def _answered(approval: Approval, request: _Answered) -> Approval:
    return approval._replace(answered_by=request.by, note=request.note)


def _stored(db: Database, run_id: str) -> dict[str, Approval] | None:
    """Return the approval of a run by its id; None if there is no such run."""
    return None if get_run(db, run_id) is None else approvals_of(db, [run_id])


def _uses(claims: list[Claim], slot: str) -> list[tuple[str, str, int]]:
    return [(claim.run, claim.unit, claim.uses[slot]) for claim in claims]


def _owning_runs(pid: int, daemon_id: str, environments: Environments) -> Iterator[str]:
    """Yield the ids of runs to which a process may belong, the most likely first.

    The cgroup of a process names its run. Without cgroups, the run id and the daemon's id are in the environment of the
    process, its session leader, its group leader or an ancestor. Names of cgroups that are not run ids can occur too.
    """
    mount = mount_of()
    directory = directory_of(pid, mount)
    while mount is not None and directory is not None and len(directory) > len(mount[1]):
        yield run_of(directory)  # the run's cgroup may be a parent: a run can create cgroups below its own
        directory = os.path.dirname(directory)
    read: set[int] = set()
    for _ in range(_MOST_ANCESTORS):
        process = find_process(pid)
        if process is None or pid <= 1:
            return
        for candidate in (pid, process.session, process.group):
            related = None if candidate in read else find_process(candidate)
            if related is not None:
                variables = environments.read(candidate, related.start) or {}
                if variables.get("RINGWARD_DAEMON") == daemon_id:
                    yield variables.get("RINGWARD_RUN_ID", "")
            read.add(candidate)
        pid = process.parent
