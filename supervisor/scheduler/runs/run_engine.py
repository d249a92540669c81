"""The life cycle of runs of tasks and services: create, queue, start, stop, end, retry.

A change applies to memory at once and is then committed to the store. Its visible effects (spawn requests, answers,
events) follow the commit. Only stop requests do not wait for it.
"""

from bisect import insort
from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from store.runs.flows import put_outputs
from store.runs.ids import new_ulid
from store.runs.phases import CAUSES, FAILURES
from store.runs.writes import Run, insert_run, put_approval, update_run
from supervisor.config.model import Config, Task
from supervisor.ipc.log_line import stamp
from supervisor.ipc.messages import Exited
from supervisor.schedule import overlap
from supervisor.schedule.admission import (
    ActiveRuns,
    Capacity,
    Claim,
    Obstacle,
    SlotUse,
    WaitingRuns,
    admit,
    obstacles,
    rank_of,
    slot_uses,
)
from supervisor.schedule.catchup import is_missed
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.procedures import Procedure
from supervisor.scheduler.loop.root_connection import Acknowledgements, RootConnection
from supervisor.scheduler.loop.user_lookup import UserIdentity, UserLookup
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.runs import run_transitions
from supervisor.scheduler.runs.approval_gate import Approvals, approval_of
from supervisor.scheduler.runs.end_reason import (
    CRASHED_EXIT_CODE,
    REASONS,
    UNKNOWN_EXIT_CODE,
    Line,
    Verdict,
    judged_by_duration,
    judged_by_outputs,
    verdict_of,
)
from supervisor.scheduler.runs.live_units import Due, LiveRun, RunRequest, Unit
from supervisor.scheduler.runs.private_data import PrivateData
from supervisor.scheduler.runs.refused_runs import RefusedRuns
from supervisor.scheduler.runs.retry import SUPERSEDED_BY, is_superseded, next_attempt, note_success, tried_again
from supervisor.scheduler.runs.run_observer import (
    Executor,
    FlowRuns,
    JobTracker,
    OtherExecutor,
    OutputSearch,
    RunObserver,
    ServiceListener,
    StartConditions,
    StopRequest,
)
from supervisor.scheduler.runs.run_parameters import complete_values
from supervisor.scheduler.runs.run_rows import ended_columns, event_body, pending_row
from supervisor.scheduler.runs.spawn_requests import SpawnRequests


class _Facts(NamedTuple):
    """What is known about an event of a run."""

    at: int = 0
    """Start time of its process (ms since the epoch)."""
    cause: str = "stop"
    by: str | None = None
    force: bool = False
    note: str | None = None
    exited: Exited | None = None
    line: Line | None = None
    """The line of output that makes it a failure."""
    why: str | None = None
    """What failed in it, if it is a flow."""


_NO_FACTS = _Facts()
_REFUSALS = {overlap.Admission.SKIP: "skipped", overlap.Admission.FULL: "queue_full"}


class RunEngine:
    """Owns all unfinished runs, and carries out the actions of :mod:`.run_transitions`."""

    def __init__(
        self,
        core: Core,
        root: RootConnection,
        notifications: Notifications,
        user_lookup: UserLookup,
    ) -> None:
        self._loop = core.loop
        self._daemon = core.daemon
        self._committer = core.committer
        self._procedures = core.procedures
        self._log = core.log
        self._notifications = notifications
        self._user_lookup = user_lookup
        self._services = ServiceListener()
        self._outputs = OutputSearch()
        self._jobs = JobTracker()
        self.flows = FlowRuns()
        """The executor of flows."""
        self._conditions = StartConditions()
        self.external = OtherExecutor()
        """The executor of runs that jobs elsewhere report."""
        self.approvals = Approvals(core, self, notifications)
        self.observers: list[RunObserver] = [self.approvals]
        """Called for every run, in this order."""
        self._private = PrivateData(core.daemon.settings)
        self._spawn_requests = SpawnRequests(core.daemon.settings, root, core.committer)
        self.live: dict[str, LiveRun] = {}
        """By run id."""
        self._capacity = Capacity()
        self._admitted = ActiveRuns()
        """The resources that admitted runs hold until they end."""
        self._queued = WaitingRuns()
        self._admission_held = False
        """Whether admission is suspended: the takeover has not yet found all active runs."""
        self.acknowledgements = Acknowledgements(core.loop, root)
        self.refused = RefusedRuns(core.log, notifications)

    def connect(
        self,
        services: ServiceListener,
        outputs: OutputSearch | None = None,
        jobs: JobTracker | None = None,
        flows: FlowRuns | None = None,
        conditions: StartConditions | None = None,
        external: OtherExecutor | None = None,
    ) -> None:
        """Set the listener for services, the search of output, and what tracks jobs, executes runs, and asks first."""
        self._services = services
        self._outputs = outputs or self._outputs
        self._jobs = jobs or self._jobs
        self.flows = flows or self.flows
        self._conditions = conditions or self._conditions
        self.external = external or self.external

    def _executor_of(self, run: LiveRun) -> Executor:
        others: tuple[OtherExecutor, ...] = (self.flows, self.external)
        return next((executor for executor in others if executor.executes(run)), self._spawn_requests)

    def at_root(self) -> list[LiveRun]:
        """Return the runs whose ends the root will report."""
        started = (run for run in self.live.values() if run.state in run_transitions.STARTED)
        return [run for run in started if self._executor_of(run) is self._spawn_requests]

    def observe(self, run: LiveRun, started_at: int) -> None:
        """Search the output of a run whose process started at `started_at` (ms since the epoch), and tell observers."""
        self._outputs.watch(run)
        for observer in self.observers:
            observer.run_is_running(run, started_at)

    # Creating.

    def create_task_run(self, unit: Unit, task: Task, change: Change, request: RunRequest) -> LiveRun:
        """Create a first attempt, which starts or waits; if the overlap policy refuses it, it is only recorded.

        The policy decides about a run for a later time when that time comes, and about runs inside flows never.
        """
        run = LiveRun(
            unit,
            task,
            request.run_id or new_ulid(change.now_ms),
            trigger=request.trigger,
            created_at=change.now_ms,
            scheduled_at=request.scheduled_at,
            params=complete_values(task, {}) if request.params is None else request.params,
            files=request.files,
            by=request.by,
            place=request.place,
            retry_of=request.retry_of,
            attempt=request.attempt,
            unconditional=request.unconditional,
        )
        due, admission = request.due, overlap.Admission.START
        run.approval = approval_of(run.id, task, request.needs_approval or task.needs_approval)
        if run.place is None and (due is None or due.kind == "gate"):
            gated = due is not None or run.approval is not None
            admission = unit.admission(task, coalesce=request.coalesce, gated=gated)
        if admission in _REFUSALS:
            self.refused.record(run, _REFUSALS[admission], change)
            return run
        if due is not None:
            self.wait(run, due)
        self._insert(run, pending_row(run), change)
        if run.approval is not None:
            change.write(put_approval, run.approval)
        if due is None:
            self._enqueue_new(run, admission, change)
        return run

    def asks_approval(self, run: LiveRun, change: Change) -> bool:
        """Let a run wait for the approval that it needs; return False if it needs none, or waits for something else."""
        if run.approval is None or (run.place is not None and run.unit.paused):
            return False
        self.approvals.ask(run, run.approval, change)
        return True

    def _enqueue_new(self, run: LiveRun, admission: overlap.Admission, change: Change) -> None:
        if self.asks_approval(run, change):
            return
        task = run.unit.task if admission is overlap.Admission.TERMINATE else None
        if task is not None and self._conditions.applies(run):
            self.wait(run, Due("condition", run.ask_until or change.now_ms + task.only_if_timeout_ms))
            self._procedures.start(self._ask_to_terminate(run, change))
            return
        self.enqueue(run)
        self.admit_waiting(change)
        if task is not None:
            # Older runs stop only after the new run is stored: if that fails, they must continue.
            self._procedures.start(self.make_room(run.unit, task, change))

    def _ask_to_terminate(self, run: LiveRun, change: Change) -> Procedure[None]:
        """Let a run replace an older one, which goes on if the condition says no or cannot be asked."""
        yield change.stored
        if not (yield from self._conditions.check(run)):
            return
        with self._committer.changing() as change:
            self._apply(run, run_transitions.Event.DUE, change)
            self.release(run)
            if run.refusal is None:
                self._enqueue_new(run, overlap.Admission.TERMINATE, change)
            else:
                self._apply(run, run_transitions.Event.SLOT, change)

    def terminate_again(self, unit: Unit, task: Task, change: Change) -> None:
        """Let waiting runs replace older ones; the previous scheduler may have died before it did so."""
        new = [run for run in unit.queue if not run.attempt and run.place is None]
        for run in filter(self._conditions.applies, new):
            self.release(run)
            self._enqueue_new(run, overlap.Admission.TERMINATE, change)
        if any(run in unit.queue for run in new):
            self._procedures.start(self.make_room(unit, task, change))

    def make_room(self, unit: Unit, task: Task, change: Change) -> Procedure[None]:
        """Stop the oldest runs until at most ``max_concurrent`` remain, once `change` is stored."""
        yield change.stored
        staying = [
            run
            for run in (*unit.held_back, *unit.active.values(), *unit.queue)
            if run.state is not run_transitions.State.STOPPING and run.place is None and run.approval is None
        ]
        with self._committer.changing() as change:
            for older in staying[: -task.max_concurrent]:
                self.stop(older, change, by="on_overlap = terminate")

    def create_service_run(self, unit: Unit, index: int, trigger: str, change: Change) -> LiveRun:
        """Create the next run of a service instance; it starts as soon as its slots have room."""
        run = LiveRun(
            unit, unit.definition, new_ulid(change.now_ms), trigger=trigger, created_at=change.now_ms, instance=index
        )
        self._insert(run, pending_row(run), change)
        self.enqueue(run)
        self.admit_waiting(change)
        return run

    def _insert(self, run: LiveRun, row: Run, change: Change) -> None:
        self.live[run.id] = run
        change.undo(lambda: self._forget(run))
        if run.has_private_data:
            change.write(lambda _db: self._keep_private(run))
        change.write(insert_run, row)
        change.announce("run.created", event_body(run, "pending"))

    def adopt(self, run: LiveRun) -> None:
        """Take over a stored run when the scheduler starts."""
        self.live[run.id] = run

    def _forget(self, run: LiveRun) -> None:
        """Drop a run that could not be stored; it has no process."""
        self.live.pop(run.id, None)
        self.release(run)
        run.state = run_transitions.State.ENDED
        self._jobs.forget(run)
        self._loop.after(0, self._clean_up_forgotten, run)

    def _clean_up_forgotten(self, run: LiveRun) -> None:
        with self._committer.changing() as change:
            if run.has_private_data:
                self._forget_private(run, change)
            self.admit_waiting(change)

    def _keep_private(self, run: LiveRun) -> None:
        """Write secrets and names of changed files to files, because they must survive a restart of the scheduler.

        An error fails a first attempt, but not a retry. On a full disk, a retry must still be stored; it keeps the data
        in memory.
        """
        try:
            self._private.keep(run)
        except OSError as err:
            if not run.attempt:
                raise
            self._log.warning(f"{run.unit.name} {run.id}: cannot store its secret parameters or changed files: {err}")

    def _forget_private(self, run: LiveRun, change: Change) -> None:
        """Remove the secrets and file names of a run that has a stored end or was never stored."""
        change.write(lambda _db: self._private.forget(run))

    # Admission.

    def configure(self, config: Config) -> None:
        """Apply new slot sizes and ``max_running``; active runs keep their places."""
        self._capacity = Capacity(config.slots, config.daemon.max_running)
        with self._committer.changing() as change:
            self.admit_waiting(change)

    def redefined(self, unit: Unit, change: Change) -> None:
        """Apply a unit's new definition to its queued runs."""
        for observer in self.observers:
            observer.redefined(unit, change)
        for run in list(unit.queue):
            self.enqueue(run)
        self.admit_waiting(change)

    def pause_changed(self, unit: Unit) -> None:
        """Hold the runs inside flows of a task that was paused, or let them go on after its pause."""
        for run in [*unit.queue, *unit.waiting.values()]:
            if run.due is None:
                self.enqueue(run)
            elif run.due.is_endless and not unit.paused:
                self.end_wait(run)

    def enqueue(self, run: LiveRun) -> None:
        """Add a run to the admission queue, or update its claim if it is already queued.

        A run inside a flow waits as long as its task is paused.
        """
        if run.place is not None and run.unit.paused:
            self.wait(run, Due("paused", self._loop.now_ms()))
            return
        if run.id not in self._queued:
            insort(run.unit.queue, run, key=lambda queued: (queued.queued_at, queued.id))
        self._queued.add(run.claim)

    def clock_stepped(self, by_ms: int) -> None:
        """Shift the times of waiting runs by a step of the wall clock; later runs could pass them all otherwise."""
        for run in self.live.values():
            if run.state is run_transitions.State.QUEUED:
                run.queued_at += by_ms
                self.enqueue(run)
            elif run.due is not None and not run.due.follows_clock:
                run.queued_at = run.due.at + by_ms
                run.due = Due(run.due.kind, run.queued_at)

    def hold_admission(self, hold: bool) -> None:
        """Suspend or resume admission; the takeover suspends it until it has found all active runs."""
        self._admission_held = hold

    def admit_waiting(self, change: Change) -> None:
        """Admit all waiting runs that have room; they start after `change` is stored."""
        while self._queued and not self._daemon.ending and not self._admission_held:
            claim = admit(self._capacity, self._admitted, self._queued)
            if claim is None:
                return
            self._apply(self.live[claim.run], run_transitions.Event.SLOT, change)

    def hold(self, run: LiveRun) -> None:
        """Reserve a run's places until it ends."""
        self.release(run)
        run.unit.active[run.id] = run
        self._admitted.add(run.claim)

    def obstacles(self, runs: Iterable[LiveRun]) -> list[list[Obstacle]]:
        """Return, for each of `runs`, the reasons why it waits."""
        return obstacles(self._capacity, self._admitted, self._queued, (run.claim for run in runs))

    def slots(self, listed: int) -> list[SlotUse]:
        """Return the use of all slots by name, each with up to `listed` runs that hold it and as many that wait."""
        return slot_uses(self._capacity, self._admitted, self._queued, listed)

    def task_load(self) -> tuple[int | None, int]:
        """Return ``max_running`` (None: no limit), and the number of active runs of tasks."""
        return self._capacity.max_running, self._admitted.tasks

    def holders_in_the_way(self, task: Task, now_ms: int) -> dict[str, str]:
        """Return the slot by run id, for each run that holds a slot for which a new run of `task` would wait."""
        if not task.uses:
            return {}
        claim = Claim("", task.name, task.uses, task.max_concurrent, rank_of(task.queue_priority, now_ms))
        (blocking,) = obstacles(self._capacity, self._admitted, self._queued, [claim])
        full = [obstacle.name for obstacle in blocking if obstacle.kind == "slot"]
        return {holder.run: name for name in full for holder in self._admitted if name in holder.uses}

    # Events from outside.

    def started(self, run_id: str, at: int, change: Change) -> None:
        """Handle the root's report that a run has a process since `at` (ms since the epoch)."""
        run = self.live.get(run_id)
        if run is not None:
            self._apply(run, run_transitions.Event.STARTED, change, _Facts(at=at))

    def request_unknown(self, run_id: str) -> None:
        """Handle the root's report that it does not have the announced request of a run."""
        run = self.live.get(run_id)
        if run is not None:
            self._spawn_requests.start_whole(run)

    def start_waits(self, run_id: str, reason: str, change: Change) -> None:
        """Handle the root's report that it cannot start a run yet."""
        run = self.live.get(run_id)
        if run is not None:
            self._log.info(f"{run.unit.name} {run.id}: its start waits: {reason}")
            change.announce("run.updated", event_body(run, "pending", waiting={"reason": reason}))

    def exited(self, exited: Exited, change: Change) -> None:
        """Handle an exit that the root reports; it is acknowledged once it is stored."""
        self._procedures.start(self._exited(exited, change))

    def _exited(self, exited: Exited, change: Change) -> Procedure[None]:
        """End a run, after its job if there is one, and after the search of its output. The caller commits `change`."""
        run = self.live.get(exited.run)
        own_change, line = None, None
        if run is not None:
            end_of_job = self._jobs.end_of_job(run, exited)
            if end_of_job is not None:
                yield end_of_job
            searched = self._needs_output_check(run, exited)
            if searched:
                line = yield self._outputs.line_in(run)
            if searched or end_of_job is not None:  # the caller's change is stored long since
                own_change = change = self._committer.change()
            if self.live.get(exited.run) is run:
                self._read_outputs(run)
                self._apply(run, run_transitions.Event.EXITED, change, _Facts(exited=exited, line=line))
        yield change.stored if own_change is None else self._committer.stored(own_change)
        self.acknowledgements.add(exited.run)

    def _read_outputs(self, run: LiveRun) -> None:
        """Read the values that a run wrote."""
        run.outputs = self._private.outputs_of(run)
        for problem in run.outputs.problems:
            self._log.warning(f"{run.unit.name} {run.id}: {problem}")

    def ended_elsewhere(self, run: LiveRun, exited: Exited, why: str | None, change: Change) -> None:
        """End a run that has no process here; `why` says what failed."""
        self._apply(run, run_transitions.Event.EXITED, change, _Facts(exited=exited, why=why))

    @staticmethod
    def _needs_output_check(run: LiveRun, exited: Exited) -> bool:
        """Return whether the search for ``failure_output`` can change the verdict: only that of a success."""
        if run.definition.failure_output is None or not exited.lines:
            return False
        return verdict_of(exited, (run.unit.service or run.definition).exit_codes).succeeded

    def lost(self, run: LiveRun, change: Change) -> None:
        """End a run as crashed: the root does not know it."""
        self._apply(run, run_transitions.Event.LOST, change)

    def stop(
        self,
        run: LiveRun,
        change: Change,
        *,
        cause: str = "stop",
        by: str | None = None,
        force: bool = False,
        note: str | None = None,
    ) -> None:
        """End a run in any state; a stop request reaches the root before anything is stored.

        `note` is a line for the log of the run.
        """
        self._apply(run, run_transitions.Event.STOP, change, _Facts(cause=cause, by=by, force=force, note=note))
        if force:
            self._jobs.give_up(run)

    def wait(self, run: LiveRun, due: Due) -> None:
        """Let a run, which holds no places then, wait until it is due or :meth:`end_wait` is called."""
        if run.state is run_transitions.State.DECIDED:
            self._jobs.forget(run)
        self.release(run)
        run.state, run.due, run.queued_at = run_transitions.State.WAITING, due, due.at
        run.unit.waiting[run.id] = run
        if due.is_ended_by_others:
            for observer in self.observers:
                observer.run_waits(run)
        elif due.follows_clock:
            run.timer = self._loop.at(due.at, self.end_wait, run)
        else:
            run.timer = self._loop.after(due.at - self._loop.now_ms(), self.end_wait, run)

    def end_wait(self, run: LiveRun) -> None:
        """Queue a run that is due, or that need not wait any longer."""
        due, task = run.due, run.unit.task
        with self._committer.changing() as change:
            if due is not None and due.kind in ("at", "gate", "approval") and task is not None:
                self._start_when_due(run, task, due, change)
                return
            self._apply(run, run_transitions.Event.DUE, change)
            if due is not None and run.state is run_transitions.State.QUEUED:
                self.release(run)
                run.queued_at = min(due.at, change.now_ms)
                admission = overlap.Admission.START
                if due.kind == "condition":
                    run.ask_until = due.at
                    if task is not None and not run.attempt and run.place is None:
                        admission = run.unit.admission(task)
                elif due.at > change.now_ms:  # else a restart would let it wait again
                    change.write(update_run, run.id, due_at=change.now_ms)
                self._enqueue_new(run, admission, change)

    def _start_when_due(self, run: LiveRun, task: Task, due: Due, change: Change) -> None:
        """Start, queue or refuse a run after its gate or approval, or at its requested time, which may be long past."""
        if self._daemon.ending:
            return
        self.release(run)
        admission = run.unit.admission(task) if run.place is None else overlap.Admission.START
        requested_at = due.at if due.follows_clock else None
        refusal = _REFUSALS.get(admission)
        if due.follows_clock and is_missed(
            due.at, change.now_ms, catch_up=task.catch_up, window_ms=task.catch_up_window_ms
        ):
            refusal = "missed"
        if refusal is not None:
            self.stop(run, change, cause=refusal)
            self._notifications.run_refused(run, refusal, change, requested_at=requested_at)
            return
        self._apply(run, run_transitions.Event.DUE, change)
        run.queued_at = min(due.at, change.now_ms)
        change.write(update_run, run.id, due_at=run.queued_at, due_kind=None)  # else a restart would decide again
        self._enqueue_new(run, admission, change)

    # The table and its actions.

    def _apply(self, run: LiveRun, event: run_transitions.Event, change: Change, facts: _Facts = _NO_FACTS) -> None:
        before = run.state
        run.state, actions = run_transitions.step(before, event)
        for action in actions:
            if action is run_transitions.Action.TAKE_SLOT:
                self.hold(run)
                self._jobs.prepare_start(run, change)
                self._executor_of(run).announce(run)
                self._procedures.start(self._start(run, change))
            elif action is run_transitions.Action.SPAWN:
                self._executor_of(run).start(run)
            elif action is run_transitions.Action.STORE_START:
                self._store_start(run, change, facts.at)
            elif action is run_transitions.Action.SIGNAL:
                stop = StopRequest(facts.cause, facts.by, facts.force, facts.note)
                self._executor_of(run).stop(run, stop, change)
            elif action is run_transitions.Action.CANCEL:
                reason = REASONS[facts.cause]
                cause = facts.cause if facts.cause in CAUSES.get(reason, ()) else None
                verdict = Verdict(reason, UNKNOWN_EXIT_CODE, cause=cause)
                self._end(run, verdict, change, None, requested=True, by=facts.by)
            elif action is run_transitions.Action.END and facts.exited is not None:
                verdict = verdict_of(facts.exited, (run.unit.service or run.definition).exit_codes)
                if facts.line is not None:
                    verdict = replace(verdict, reason="failed", line=facts.line)
                if facts.why is not None:
                    verdict = replace(verdict, why=facts.why)
                if isinstance(run.definition, Task):
                    verdict = judged_by_duration(verdict, facts.exited, run.definition)
                    verdict = judged_by_outputs(verdict, run.outputs.keys, run.definition)
                requested = facts.exited.cause in ("stop", "shutdown")
                self._end(run, verdict, change, facts.exited, requested=requested)
            elif action is run_transitions.Action.CRASH:
                self._end(run, Verdict("crashed", CRASHED_EXIT_CODE), change, None, requested=False)

    def release(self, run: LiveRun) -> None:
        """Remove a run from its queue, end its wait, and free its places."""
        if run.timer is not None:
            run.timer.cancel()
        run.due = None
        unit = run.unit
        unit.active.pop(run.id, None)
        unit.waiting.pop(run.id, None)
        self._admitted.remove(run.id)
        if run.id in self._queued:
            self._queued.remove(run.id)
            unit.queue.remove(run)

    def _start(self, run: LiveRun, change: Change) -> Procedure[None]:
        """Start an admitted run once `change`, which the caller commits, is stored and its user is known."""
        yield change.stored
        identity: UserIdentity = yield self._user_lookup.identity_of(run.definition)
        if self._daemon.ending:  # the run stays pending in the store, and starts with the next daemon
            return
        if not (yield from self._conditions.check(run)):
            return
        refusal = run.refusal or self._jobs.refusal(run)
        if (run.files or run.has_outputs) and refusal is None and identity.refusal is None:
            refusal = self._hand_over_files(run, identity)
        run.identity = identity if refusal is None else UserIdentity(refusal=refusal)
        self._apply(run, run_transitions.Event.STORED, self._committer.change())

    def _hand_over_files(self, run: LiveRun, identity: UserIdentity) -> str | None:
        """Make the files for the command; return the error, if any."""
        try:
            self._private.hand_over(run, identity.account)
        except OSError as err:
            return f"cannot write the files for its command: {err}"
        return None

    def _store_start(self, run: LiveRun, change: Change, at: int) -> None:
        if run.id not in run.unit.active:
            self.hold(run)
        definition_hash = run.definition_hash  # a reload changes the definition of a waiting run
        change.write(update_run, run.id, status="running", started_at=at, definition_hash=definition_hash)
        change.announce("run.started", event_body(run, "running", startedAt=stamp(at)))
        self.observe(run, at)
        for observer in self.observers:
            observer.run_started(run)
        if run.unit.service is not None:
            self._services.run_started(run, at, change)

    def _end(
        self,
        run: LiveRun,
        verdict: Verdict,
        change: Change,
        exited: Exited | None,
        *,
        requested: bool,
        by: str | None = None,
    ) -> None:
        unit = run.unit
        self.release(run)
        self.live.pop(run.id, None)
        self._outputs.forget(run.id)
        ran_ms = None
        if exited is not None:
            columns = ended_columns(verdict, exited)
            if exited.started_at is not None:
                ran_ms = exited.ended_at - exited.started_at
        else:
            columns = {
                "status": "ended",
                "end_reason": verdict.reason,
                "exit_code": verdict.exit_code,
                "cause": verdict.cause,
                "ended_at": change.now_ms,
            }
            if by is not None:
                columns["stopped_by"] = by
        change.write(update_run, run.id, **columns)
        if run.outputs.values:
            change.write(put_outputs, run.id, run.outputs.values)
        if run.has_private_data:
            change.then(lambda: self._on_private_obsolete(run))
        change.announce("run.ended", event_body(run, "ended", endReason=verdict.reason, exitCode=verdict.exit_code))
        self._log_end(run, verdict, ran_ms)
        again = None if requested else self._retry(run, verdict, change)
        will_retry = again is not None
        for observer in self.observers:
            observer.run_ended(run, verdict, change, will_retry=will_retry, ran_ms=ran_ms)
        if not requested:
            self._notifications.run_ended(run, verdict, change, will_retry=will_retry)
        if unit.service is not None:
            self._services.run_ended(run, verdict, requested=requested, ran_ms=ran_ms, change=change)
            self.admit_waiting(change)
            return
        for retry in note_success(run) if verdict.succeeded else ():
            self.stop(retry, change, cause="superseded", by=SUPERSEDED_BY)
        self.flows.step_ended(run, verdict, again, change)
        self.admit_waiting(change)
        self._services.task_ended(run, verdict, change)

    def _on_private_obsolete(self, run: LiveRun) -> None:
        with self._committer.changing() as change:
            self._forget_private(run, change)

    def _log_end(self, run: LiveRun, verdict: Verdict, ran_ms: int | None) -> None:
        name = run.unit.name if run.unit.service is None else f"{run.unit.name}[{run.instance}]"
        attempt = f", retry {run.attempt}" if run.attempt else ""
        took = "" if ran_ms is None else f" after {ran_ms / 1000:.3f} s"
        say = self._log.warning if verdict.reason in FAILURES else self._log.info
        say(f"{name} {run.id} ({run.trigger}{attempt}): {verdict.text}{took}")

    def _retry(self, run: LiveRun, verdict: Verdict, change: Change) -> LiveRun | None:
        """Create a retry if the definition asks for one; return it if it will run."""
        task = run.definition
        if not isinstance(task, Task) or run.attempt >= task.retry_attempts:
            return None
        if not tried_again(task.retry_on, verdict.reason, verdict.exit_code):
            return None
        if not run.unit.configured or self.flows.has_decided(run):
            return None
        again, due = next_attempt(run, task, change.now_ms)
        self.wait(again, due)
        self._insert(again, pending_row(again), change)
        if is_superseded(again):
            self.stop(again, change, cause="superseded", by=SUPERSEDED_BY)
            return None
        return again
