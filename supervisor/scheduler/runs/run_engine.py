"""The life cycle of runs of tasks and services: create, queue, start, stop, end, retry.

A change applies to memory at once and is then committed to the store. Its visible effects (spawn requests, answers,
events) follow the commit. Only stop requests do not wait for it.
"""

from bisect import insort
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from store.runs.ids import new_ulid
from store.runs.writes import Run, insert_run, update_run
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
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.loop.user_lookup import Identity, UserLookup
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.runs import changed_files, run_transitions, secret_parameters
from supervisor.scheduler.runs.end_reason import (
    CRASHED_EXIT_CODE,
    REASONS,
    UNKNOWN_EXIT_CODE,
    OutputResult,
    Verdict,
    verdict_of,
)
from supervisor.scheduler.runs.live_units import LiveRun, RunRequest, Unit
from supervisor.scheduler.runs.parameter_checks import ParameterChecks, must_wait
from supervisor.scheduler.runs.retry import SUPERSEDED_BY, delay_ms, is_superseded, note_success, tried_again
from supervisor.scheduler.runs.run_observer import JobTracker, OutputSearch, RunObserver, ServiceListener
from supervisor.scheduler.runs.run_parameters import CommandParameters, InvalidParameters, command_parameters, take
from supervisor.scheduler.runs.run_rows import ended_columns, event_body, pending_row, refused_row
from supervisor.scheduler.runs.spawn_requests import SpawnRequests


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
        self._log = core.log
        self._root = root
        self._notifications = notifications
        self._user_lookup = user_lookup
        self._parameter_checks = ParameterChecks(core.loop)
        self._services = ServiceListener()
        self._outputs = OutputSearch()
        self._jobs = JobTracker()
        self.observers: list[RunObserver] = []
        """Called for every run, in this order."""
        self._spawn_requests = SpawnRequests(core.daemon.boot, root, core.committer)
        self.live: dict[str, LiveRun] = {}
        """By run id."""
        self._capacity = Capacity()
        self._admitted = ActiveRuns()
        """The resources that admitted runs hold until they end."""
        self._queued = WaitingRuns()
        self._admission_held = False
        """Whether admission is suspended: the takeover has not yet found all active runs."""
        self._stored_ends: list[str] = []
        """Runs whose ends were stored in this round of the loop."""
        self._held_back: list[str] | None = None
        """Ended runs whose acknowledgement is withheld; None: none is withheld."""

    def connect(
        self, services: ServiceListener, outputs: OutputSearch | None = None, jobs: JobTracker | None = None
    ) -> None:
        """Set the listener for services, the search of output, and the tracker of jobs."""
        self._services = services
        self._outputs = outputs or self._outputs
        self._jobs = jobs or self._jobs

    def observe(self, run: LiveRun, started_at: int) -> None:
        """Search the output of a run whose process started at `started_at` (ms since the epoch), and tell observers."""
        self._outputs.watch(run)
        for observer in self.observers:
            observer.run_is_running(run, started_at)

    # Creating.

    def create_task_run(self, unit: Unit, task: Task, change: Change, request: RunRequest) -> LiveRun:
        """Create a first attempt, which starts or waits; if the overlap policy refuses it, it is only recorded."""
        run = LiveRun(
            unit,
            task,
            request.run_id or new_ulid(change.now_ms),
            trigger=request.trigger,
            created_at=change.now_ms,
            scheduled_at=request.scheduled_at,
            params=take(task, {}) if request.params is None else request.params,
            files=request.files,
            by=request.by,
        )
        admission = overlap.admit(
            task.on_overlap,
            running=len(unit.active),
            queued=len(unit.queue),
            max_concurrent=task.max_concurrent,
            queue_max=task.queue_max,
            another_waits=request.coalesce
            and any(queued.scheduled_at is not None and not queued.attempt for queued in unit.queue),
        )
        if admission in (overlap.Admission.SKIP, overlap.Admission.FULL):
            self.record_refused(run, "skipped" if admission is overlap.Admission.SKIP else "queue_full", change)
            return run
        self._insert(run, pending_row(run), change)
        self.enqueue(run)
        self.admit(change)
        if admission is overlap.Admission.TERMINATE:
            # Older runs stop only after the new run is stored: if that fails, they must continue.
            change.then(lambda: self.make_room(unit, task))
        return run

    def make_room(self, unit: Unit, task: Task) -> None:
        """Stop the oldest runs until at most ``max_concurrent`` remain."""
        staying = [
            run for run in (*unit.active.values(), *unit.queue) if run.state is not run_transitions.State.STOPPING
        ]
        with self._committer.changing() as change:
            for older in staying[: -task.max_concurrent]:
                self.stop(older, change, by="on_overlap = terminate")

    def record_refused(self, run: LiveRun, reason: str, change: Change, *, missed_count: int | None = None) -> None:
        """Store a run that ends when it is created: skipped, queue_full or missed."""
        run.state = run_transitions.State.ENDED
        stands_for = f", records {missed_count} missed times" if missed_count else ""
        self._log.warning(f"{run.unit.name} {run.id} ({run.trigger}): {reason}{stands_for}")
        row = refused_row(run, reason, missed_count=missed_count)
        change.write(lambda db: insert_run(db, row))
        self._notifications.run_refused(run, reason, change, missed_count)
        change.announce("run.created", event_body(run, "ended", endReason=reason))
        change.announce("run.ended", event_body(run, "ended", endReason=reason, exitCode=UNKNOWN_EXIT_CODE))

    def create_service_run(self, unit: Unit, index: int, trigger: str, change: Change) -> LiveRun:
        """Create the next run of a service instance; it starts as soon as its slots have room."""
        run = LiveRun(
            unit, unit.definition, new_ulid(change.now_ms), trigger=trigger, created_at=change.now_ms, instance=index
        )
        self._insert(run, pending_row(run), change)
        self.enqueue(run)
        self.admit(change)
        return run

    def _insert(self, run: LiveRun, row: Run, change: Change) -> None:
        self.live[run.id] = run
        change.undo(lambda: self._forget(run))
        if run.params.secret:
            change.write(lambda _db: self._keep_secrets(run))
        if run.files:
            change.write(lambda _db: self._keep_files(run))
        change.write(lambda db: insert_run(db, row))
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
        self._loop.after(0, lambda: self._clean_up_forgotten(run))

    def _clean_up_forgotten(self, run: LiveRun) -> None:
        with self._committer.changing() as change:
            self._forget_private(run, change)
            self.admit(change)

    def _keep_secrets(self, run: LiveRun) -> None:
        """Write secrets to a file, because they must survive a restart of the scheduler.

        An error fails a first attempt, but not a retry. On a full disk, a retry must still be stored; it keeps its
        secrets in memory.
        """
        try:
            secret_parameters.keep(self._daemon.boot.data_dir, run.id, run.params.secret)
        except OSError as err:
            if not run.attempt:
                raise
            self._log.warning(f"{run.unit.name} {run.id}: cannot store its secret parameters: {err}")

    def _keep_files(self, run: LiveRun) -> None:
        """Write the names of changed files; errors count as in :meth:`_keep_secrets`."""
        try:
            changed_files.keep(self._daemon.boot.data_dir, run.id, run.files)
        except OSError as err:
            if not run.attempt:
                raise
            self._log.warning(f"{run.unit.name} {run.id}: cannot store the names of its files: {err}")

    def _forget_private(self, run: LiveRun, change: Change) -> None:
        """Remove the secrets and file names of a run that has a stored end or was never stored."""
        if run.params.secret:
            change.write(lambda _db: secret_parameters.forget(self._daemon.boot.data_dir, run.id))
        if run.files:
            change.write(
                lambda _db: changed_files.forget(self._daemon.boot.data_dir, self._daemon.boot.runtime_dir, run.id)
            )

    # Admission.

    def configure(self, config: Config) -> None:
        """Apply new slot sizes and ``max_running``; active runs keep their places."""
        self._capacity = Capacity(config.slots, config.daemon.max_running)
        with self._committer.changing() as change:
            self.admit(change)

    def redefined(self, unit: Unit, change: Change) -> None:
        """Apply a unit's new definition to its queued runs."""
        for run in unit.queue:
            self.enqueue(run)
        self.admit(change)

    def enqueue(self, run: LiveRun) -> None:
        """Add a run to the admission queue, or update its claim if it is already queued."""
        if run.id not in self._queued:
            insort(run.unit.queue, run, key=lambda queued: (queued.queued_at, queued.id))
        self._queued.add(_claim_of(run))

    def clock_stepped(self, by_ms: int) -> None:
        """Shift the times of waiting runs by a step of the wall clock; later runs could pass them all otherwise."""
        for run in self.live.values():
            if run.state in (run_transitions.State.QUEUED, run_transitions.State.WAITING):
                run.queued_at += by_ms
            if run.state is run_transitions.State.QUEUED:
                self.enqueue(run)

    def hold_admission(self, hold: bool) -> None:
        """Suspend or resume admission; the takeover suspends it until it has found all active runs."""
        self._admission_held = hold

    def admit(self, change: Change) -> None:
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
        self._admitted.add(_claim_of(run))

    def obstacles(self, runs: Iterable[LiveRun]) -> list[list[Obstacle]]:
        """Return, for each of `runs`, the reasons why it waits."""
        return obstacles(self._capacity, self._admitted, self._queued, map(_claim_of, runs))

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
            self._apply(run, run_transitions.Event.STARTED, change, at=at)

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
        """Handle an exit that the root reports; it is acknowledged once it is stored.

        First wait for the run's job to end and for the search of its output.
        """
        run = self.live.get(exited.run)
        if run is None or not self._jobs.must_wait_for_job(run, exited, lambda: self._end_after_job(exited)):
            self._check_output(run, exited, change)

    def _end_after_job(self, exited: Exited) -> None:
        with self._committer.changing() as change:
            self._check_output(self.live.get(exited.run), exited, change)

    def _check_output(self, run: LiveRun | None, exited: Exited, change: Change) -> None:
        if run is not None and self._needs_output_check(run, exited):
            self._outputs.ask(run, lambda output: self._end_after_output_check(run, exited, output))
            return
        self._end_run(run, exited, OutputResult(), change)

    @staticmethod
    def _needs_output_check(run: LiveRun, exited: Exited) -> bool:
        """Return whether the search for ``failure_output`` can change the verdict: only that of a success."""
        if run.definition.failure_output is None or not exited.lines:
            return False
        return verdict_of(exited, (run.unit.service or run.definition).exit_codes).succeeded

    def _end_after_output_check(self, run: LiveRun, exited: Exited, output: OutputResult) -> None:
        with self._committer.changing() as change:
            self._end_run(run, exited, output, change)

    def _end_run(self, run: LiveRun | None, exited: Exited, output: OutputResult, change: Change) -> None:
        if run is not None:
            self._apply(run, run_transitions.Event.EXITED, change, exited=exited, output=output)
        change.then(lambda: self._on_end_stored(exited.run))

    def _on_end_stored(self, run_id: str) -> None:
        self._stored_ends.append(run_id)
        self._loop.at_round_end(self.acknowledge, first=True)

    def acknowledge(self) -> None:
        """Acknowledge the ends stored in this round; the root then forgets the runs."""
        ends, self._stored_ends = self._stored_ends, []
        if self._held_back is not None:
            self._held_back += ends
        elif ends:
            self._root.send({"op": "ack", "runs": ends})

    def hold_acknowledgements(self, hold: bool) -> None:
        """Withhold acknowledgements, or send the withheld ones.

        While the database may be damaged, the root must keep the ends: a restored copy may lack them.
        """
        run_ids, self._held_back = self._held_back, [] if hold else None
        if run_ids:
            self._root.send({"op": "ack", "runs": run_ids})

    def log_changed(self, run_id: str, state: str, reason: str | None, change: Change) -> None:
        """Handle the root's report that a run's log cannot store output for `reason`; None: it can again."""
        run = self.live.get(run_id)
        if run is None:
            return
        name = f"{run.unit.name} {run.id}"
        if reason is None:
            self._log.info(f"{name}: its log stores output again")
        else:
            fate = "is dropped" if state == "dropping" else "waits"
            self._log.warning(f"{name}: its output {fate}: {reason}")
            if state == "dropping":
                self._notifications.log_dropping(run, reason, change)
        log = {"state": state} if reason is None else {"state": state, "reason": reason}
        change.announce("run.updated", event_body(run, "running", log=log))

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
        self._apply(run, run_transitions.Event.STOP, change, cause=cause, by=by, force=force, note=note)
        if force:
            self._jobs.give_up(run)

    def retry_due(self, run: LiveRun) -> None:
        """Queue a retry whose delay has passed."""
        with self._committer.changing() as change:
            self._apply(run, run_transitions.Event.DUE, change)
            if run.state is run_transitions.State.QUEUED:
                run.unit.waiting.pop(run.id, None)
                self.enqueue(run)
                self.admit(change)

    # The table and its actions.

    def _apply(self, run: LiveRun, event: run_transitions.Event, change: Change, **facts: Any) -> None:
        before = run.state
        run.state, actions = run_transitions.step(before, event)
        for action in actions:
            if action is run_transitions.Action.TAKE_SLOT:
                self.hold(run)
                self._jobs.prepare_start(run, change)
                self._spawn_requests.announce(run)
                change.then(lambda: self._on_decision_stored(run))
            elif action is run_transitions.Action.SPAWN:
                self._spawn_requests.start(run)
            elif action is run_transitions.Action.STORE_START:
                self._store_start(run, change, facts["at"])
            elif action is run_transitions.Action.SIGNAL:
                self._root.send({"op": "stop", "run": run.id, **facts})
            elif action is run_transitions.Action.CANCEL:
                verdict = Verdict(REASONS[facts["cause"]], UNKNOWN_EXIT_CODE)
                self._end(run, verdict, change, None, requested=True, by=facts["by"])
            elif action is run_transitions.Action.END:
                exited: Exited = facts["exited"]
                verdict = verdict_of(exited, (run.unit.service or run.definition).exit_codes)
                output: OutputResult = facts["output"]
                if output.line is not None or output.failure is not None:
                    verdict = replace(verdict, reason="failed", line=output.line, why=output.failure)
                self._end(run, verdict, change, exited, requested=exited.cause in ("stop", "shutdown"))
            elif action is run_transitions.Action.CRASH:
                self._end(run, Verdict("crashed", CRASHED_EXIT_CODE), change, None, requested=False)

    def release(self, run: LiveRun) -> None:
        """Remove a run from its queue, cancel its timer, and free its places."""
        if run.timer is not None:
            run.timer.cancel()
        unit = run.unit
        unit.active.pop(run.id, None)
        unit.waiting.pop(run.id, None)
        self._admitted.remove(run.id)
        if run.id in self._queued:
            self._queued.remove(run.id)
            unit.queue.remove(run)

    def _on_decision_stored(self, run: LiveRun) -> None:
        self._user_lookup.ask(run.definition, lambda identity: self._check_parameters(run, identity))

    def _check_parameters(self, run: LiveRun, identity: Identity) -> None:
        """Check the parameter values now if the check must wait; otherwise the spawn request checks them."""
        definition = run.definition
        if not isinstance(definition, Task) or not must_wait(definition, run.params.names):
            self._on_user_known(run, identity)
            return

        def checked(result: CommandParameters | InvalidParameters) -> None:
            run.checked = result
            self._on_user_known(run, identity)

        self._parameter_checks.call(lambda: command_parameters(definition, run.params), checked, waits=True)

    def _on_user_known(self, run: LiveRun, identity: Identity) -> None:
        if not self._daemon.ending:  # else the run stays pending in the store, and starts with the next daemon
            refusal = self._jobs.refusal(run)
            if run.files and refusal is None and identity.refusal is None:
                refusal = self._hand_over_files(run, identity)
            run.identity = identity if refusal is None else Identity(refusal=refusal)
            self._apply(run, run_transitions.Event.STORED, self._committer.change())

    def _hand_over_files(self, run: LiveRun, identity: Identity) -> str | None:
        """Write the names of changed files for the command; return the error, if any."""
        try:
            changed_files.hand_over(self._daemon.boot.runtime_dir, run.id, run.files, identity.account)
        except OSError as err:
            return f"cannot write the names of the changed files: {err}"
        return None

    def _store_start(self, run: LiveRun, change: Change, at: int) -> None:
        if run.id not in run.unit.active:
            self.hold(run)
        definition_hash = run.definition_hash  # a reload changes the definition of a waiting run
        change.write(
            lambda db: update_run(db, run.id, status="running", started_at=at, definition_hash=definition_hash)
        )
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
                "ended_at": change.now_ms,
            }
            if by is not None:
                columns["stopped_by"] = by
        change.write(lambda db: update_run(db, run.id, **columns))
        if run.params.secret or run.files:
            change.then(lambda: self._on_private_obsolete(run))
        change.announce("run.ended", event_body(run, "ended", endReason=verdict.reason, exitCode=verdict.exit_code))
        self._log_end(run, verdict, ran_ms)
        will_retry = not requested and self._retry(run, verdict, change)
        for observer in self.observers:
            observer.run_ended(run, verdict, will_retry=will_retry)
        if not requested:
            self._notifications.run_ended(run, verdict, change, will_retry=will_retry)
        if unit.service is not None:
            self._services.run_ended(run, verdict, requested=requested, ran_ms=ran_ms, change=change)
            self.admit(change)
            return
        for retry in note_success(run) if verdict.succeeded else ():
            self.stop(retry, change, cause="superseded", by=SUPERSEDED_BY)
        self.admit(change)
        self._services.task_ended(run, verdict, change)

    def _on_private_obsolete(self, run: LiveRun) -> None:
        with self._committer.changing() as change:
            self._forget_private(run, change)

    def _log_end(self, run: LiveRun, verdict: Verdict, ran_ms: int | None) -> None:
        name = run.unit.name if run.unit.service is None else f"{run.unit.name}[{run.instance}]"
        attempt = f", retry {run.attempt}" if run.attempt else ""
        took = "" if ran_ms is None else f" after {ran_ms / 1000:.3f} s"
        self._log.info(f"{name} {run.id} ({run.trigger}{attempt}): {verdict.text}{took}")

    def _retry(self, run: LiveRun, verdict: Verdict, change: Change) -> bool:
        """Create a retry if the definition asks for one; return whether it will run."""
        task = run.definition
        if not isinstance(task, Task) or run.attempt >= task.retry_attempts:
            return False
        if not tried_again(task.retry_on, verdict.reason, verdict.exit_code):
            return False
        if not run.unit.configured:
            return False
        attempt = run.attempt + 1
        delay = delay_ms(task.retry_backoff, task.retry_delay_ms, task.retry_max_delay_ms, attempt)
        again = LiveRun(
            run.unit,
            run.unit.definition,
            new_ulid(change.now_ms),
            trigger=run.trigger,
            created_at=change.now_ms,
            attempt=attempt,
            retry_of=run.id,
            scheduled_at=run.scheduled_at,
            params=run.params,
            files=run.files,
            by=run.by,
        )
        again.queued_at = change.now_ms + delay
        self._insert(again, pending_row(again, due_at=again.queued_at), change)
        self.wait_for_retry(again, delay)
        if is_superseded(again):
            self.stop(again, change, cause="superseded", by=SUPERSEDED_BY)
            return False
        return True

    def wait_for_retry(self, run: LiveRun, delay: int) -> None:
        """Start the timer of a retry that is due in `delay` milliseconds."""
        run.state = run_transitions.State.WAITING
        run.unit.waiting[run.id] = run
        run.timer = self._loop.after(delay, lambda: self.retry_due(run))


def _claim_of(run: LiveRun) -> Claim:
    """Return the resources that a run needs or holds.

    ``max_concurrent`` is that of the task's present definition, even if the run started with an earlier one.
    """
    task = run.unit.task
    priority = run.definition.queue_priority if isinstance(run.definition, Task) else 0
    return Claim(
        run.id,
        run.unit.name,
        run.definition.uses,
        None if task is None else task.max_concurrent,
        rank_of(priority, run.queued_at),
    )
