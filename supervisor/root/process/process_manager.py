"""All processes of runs, from the requested start to the acknowledged report. Belongs to the control thread.

Messages from the scheduler, reports from the pump, exits and timers become events for the dispatcher
(:mod:`.dispatcher`). The methods of :class:`ProcessManager` carry out the actions of the table (:mod:`.transitions`).
None of them blocks.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Any

from supervisor.host.procfs import Process
from supervisor.host.shortage import is_of_memory
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings, Exited, Message, Spawn, without_defaults
from supervisor.root.handover.run_records import RunRecords
from supervisor.root.handover.run_recovery import RecoveredRun, limit_again
from supervisor.root.handover.state_schema import ProcessesState, RunHandover, RunLogState, exact_of, state_of
from supervisor.root.loop.epoll_watch import EpollWatch
from supervisor.root.output.pump_thread import Pump
from supervisor.root.process import leftovers, stop_ladder
from supervisor.root.process.cgroup_manager import CgroupManager
from supervisor.root.process.dispatcher import Dispatcher, PumpReports
from supervisor.root.process.leftovers import LeftoverRuns
from supervisor.root.process.managed_process import (
    MainProcess,
    MainProcessExit,
    ManagedProcess,
    exit_report,
    own_failure,
    reap,
    snapshot_entry,
    status_of,
)
from supervisor.root.process.notify_socket import NotifySockets
from supervisor.root.process.process_tree import ProcessTrees
from supervisor.root.process.transitions import ALIVE, DRAINS, Action, Event, State
from supervisor.root.spawn import shim
from supervisor.root.spawn.posix_spawn import StartedProcess
from supervisor.root.spawn.start_queue import AnnouncedRequests, Start, StartQueue
from supervisor.root.spawn.waiting_starts import MemoryReserve, WaitingStarts

_DRAIN_S = 0.25
"""How long pipes may stay open and processes may live after the main process has exited without a stop."""
_GIVE_UP_S = 10.0
"""How long killed processes may take to end before the run ends without them."""
_CHECK_S = (0.001, 0.1)
"""The first and the longest interval between searches for leftovers. It doubles each time."""
_UNKNOWN = (
    "its exit status is unknown: the supervisor that started it was killed, "
    "and kernels before Linux 6.15 report it only to that process"
)


class ProcessManager:
    """All processes of runs, and the exits that the scheduler has not acknowledged."""

    def __init__(
        self,
        daemon_id: str,
        watch: EpollWatch,
        pump: Pump,
        log: Log,
        base_env: dict[str, str],
        send: Callable[[Message], None],
        trees: ProcessTrees,
        records: RunRecords,
    ) -> None:
        """`send` sends a message to the scheduler. `records` are for a root that follows a killed one."""
        self._watch = watch
        self._clock = watch.clock
        self._pump = pump
        self._log = log
        self._send = send
        self._trees = trees
        self._records = records
        self.cgroup_manager = CgroupManager(daemon_id, log)
        self.starts = StartQueue(watch, log, base_env, self.cgroup_manager, pump.add_helper, self)
        self._announced = AnnouncedRequests()
        self._dispatcher = Dispatcher(self._actions_of_runs(), self._actions_of_processes(), records.update)
        self._happen = self._dispatcher.happen
        self._timers = self._dispatcher.timers
        self.live = self._dispatcher.live
        self._notify_sockets = NotifySockets(watch, self._has_process, self._on_notified, self._timers.add)
        self._waiting = WaitingStarts(self._clock, log, lambda spawn: self._happen(spawn.run, Event.TURN, spawn), send)
        self.exits: dict[str, Exited] = {}
        """Unacknowledged exits by run id, as in the other collections."""
        self.failed_starts: dict[str, str] = {}
        """Why starts have failed, until the log that contains the reason is sealed."""
        self.memory = MemoryReserve(self._clock, log, lambda short: send({"op": "memory", "short": short}))
        self._leftover_runs = LeftoverRuns(send)
        self._ended_pipes: dict[str, bool] = {}
        """Runs whose pipes have ended; True: the run printed nothing."""
        self.shutdown_signals: set[int] = set()
        """The signals that have begun the shutdown."""
        self._noted: set[str] = set()
        """Runs whose logs contain lines of the daemon."""
        self.pump_reports = PumpReports(watch, self._happen, send, self.ran_short)
        """Receives the reports of the pump."""

    def use_cgroups(self, enabled: bool) -> None:
        """Set whether new runs get cgroups, if the host provides them."""
        if self.cgroup_manager.enable(enabled):
            limit_again(self.live.values(), self._log)
        if self.cgroup_manager.directory is None:
            self.starts.drop()
            self.starts.prefork.drop()

    def close(self) -> None:
        """End the zygote and its child. Remove our cgroups and the recovery records."""
        self.starts.close()
        self._trees.reap_soon()
        self._trees.tick(float("inf"))
        self._records.clear(stored=not (self.live or self.exits or self.starts.under_way))
        self.cgroup_manager.close()

    # The actions of the table.

    def _actions_of_runs(self) -> dict[Action, Callable[[str, Any], None]]:
        return {
            Action.PREPARE: self._prepare,
            Action.ASK: lambda run, _detail: self._send({"op": "unknown", "run": run}),
            Action.QUEUE: lambda _run, spawn: self._waiting.start(spawn),
            Action.START: lambda _run, spawn: self._start_run(spawn),
            Action.PUT_BACK: self._put_back,
            Action.DEFER_STOP: lambda run, message: self.starts.under_way[run].stops.append(message),
            Action.ADOPT_START: lambda _run, detail: self._adopt_start(*detail),
            Action.REFUSE: self._refuse,
            Action.REPORT_UNSTARTED: self._report_unstarted,
            Action.REPORT_REFUSED: self._report_refused,
            Action.NOTE_DRAINED: self._note_drained,
            Action.FORGET: self._forget,
        }

    def _actions_of_processes(self) -> dict[Action, Callable[[ManagedProcess, Any], None]]:
        return {
            Action.SAY_NOTE: self._say_note,
            Action.ANNOUNCE_STOP: self._announce_stop,
            Action.NOTE_CAUSE: self._note_cause,
            Action.KEEP_FROM_RENEWAL: self._keep_from_renewal,
            Action.HURRY: self._kill_at_once,
            Action.NEXT_SIGNAL: self._next_signal,
            Action.SIGKILL: self._sigkill,
            Action.SAY_ALIVE: self._say_alive,
            Action.SAY_TIMED_OUT: self._say_timed_out,
            Action.SAY_OVERFLOWED: self._say_overflowed,
            Action.NOTE_EXIT: self._note_exit,
            Action.SET_DEADLINE: self._set_deadline,
            Action.SET_DEADLINE_NOW: self._set_deadline_now,
            Action.AWAIT_DEADLINE: self._await_deadline,
            Action.CHECK: lambda process, _: self._check_run(process, self._clock.monotonic_s()),
            Action.CHECK_LATER: self._check_later,
            Action.RETRY_LATER: self._retry_later,
            Action.SWEEP: self._sweep,
            Action.LEAVE: self._leave,
            Action.KILL_LEFTOVERS: self._kill_leftovers,
            Action.GIVE_UP: self._give_up,
            Action.CLOSE_PIPES: self._close_pipes,
            Action.SEAL: self._seal,
            Action.NOTE_LINES: self._note_lines,
            Action.REAP: self._reap,
            Action.RENEW: self._renew,
            Action.REPORT: self._report,
        }

    # Handing over to the next root, while the pump waits.

    def dump(self, keep: Callable[[int], int]) -> ProcessesState:
        """Return the state that belongs to no single run, while no run is being started.

        `keep` registers a descriptor that the next root needs.
        """
        self.starts.drop()
        self.starts.prefork.drop()
        return ProcessesState(
            exits=list(self.exits.values()),
            stillborn=self.failed_starts,
            ended_pipes=sorted(self._ended_pipes),
            left=self.cgroup_manager.dump(),
            left_running=self._leftover_runs.dump(),
            nofile=self.starts.descriptors.original,
            owners=self._trees.dump(),
            records=self._records.dump(keep),
        )

    def runs(self, logs: dict[str, RunLogState], keep: Callable[[int], int]) -> list[RunHandover]:
        """Return all live runs for the handover, and remove their logs from `logs`."""
        return [
            RunHandover(state_of(process), exact_of(process, logs.pop(process.run, None), keep))
            for process in self.live.values()
        ]

    def load(self, state: ProcessesState) -> None:
        """Take over the state from :meth:`dump`; call it before :meth:`adopt`."""
        self.exits = {exited.run: exited for exited in state.exits}
        self.failed_starts = state.stillborn
        for run in self.exits:
            self._dispatcher.restore(run, State.REPORTED)
        for run in state.stillborn:
            self._dispatcher.restore(run, State.NEVER_STARTED)
        self._ended_pipes.update(dict.fromkeys(state.ended_pipes, False))
        self.cgroup_manager.load(state.left)
        self._leftover_runs.load(state.left_running, self._clock.monotonic_s())
        self.starts.descriptors.original = state.nofile  # ours was raised before the upgrade
        self._trees.load(state.owners)
        self._trees.left_running = bool(state.left_running)
        self._records.load(state.records)

    def reserve_descriptors(self, runs: int) -> None:
        """Reserve descriptors for the adopted runs."""
        self.starts.descriptors.reserve(runs)

    def adopt(self, recovered: RecoveredRun) -> None:
        """Adopt a run of the previous root, before the threads start."""
        run, process = recovered.run, recovered.process
        if recovered.record is not None:
            self._records.adopt(run, recovered.record, recovered.identities)
        if recovered.exited is not None:
            self.exits[run] = recovered.exited
            self._dispatcher.restore(run, State.REPORTED)
        if recovered.log is not None and recovered.lines is not None:
            self._pump.complete(recovered.log)
        elif recovered.log is not None:
            self._pump.adopt(recovered.log, recovered.stalled_at_s)
        elif process is not None and recovered.pipes:
            self._pump.add(process.spawn, recovered.pipes["out"], recovered.pipes.get("err"), recovered.record)
        if process is None:
            return
        self.live[run] = process
        if not process.main.adopted:
            self._trees.mains[process.main.pid] = process
        if recovered.lines is not None:
            process.state = State.SEALING
            self.pump_reports.sealed(run, recovered.lines)
            return
        if recovered.record is not None:
            self._note(run, "the supervisor was killed; a new one continues from here")
        self._resume(process)

    def _resume(self, process: ManagedProcess) -> None:
        if process.state in ALIVE:
            self._watch_process(process)
        elif process.state in DRAINS:
            process.inspect_zombie()
        resume_at_s = None if process.notify_socket is None else process.notify_socket.resume_at_s
        for at in (0.0, process.deadline_s, resume_at_s):
            if at is not None:
                self._timers.add(at, process.run)

    def _on_notified(self, message: Message) -> None:
        self._send(message)
        if message.keys() - {"op", "run", "alive"} and message["run"] in self.live:
            self._records.update(self.live[message["run"]])

    def _has_process(self, run: str, pid: int) -> bool:
        return self._trees.has(self.live[run], pid)

    def _close_notify_socket(self, process: ManagedProcess) -> None:
        if process.notify_socket is not None:
            self._notify_sockets.close(process.notify_socket)
            process.notify_socket = None

    def _watch_process(self, process: ManagedProcess) -> None:
        """Watch the pidfd and the notification socket, unless they are watched already."""
        if process.main.pidfd not in self._watch:
            self._watch.add(process.main.pidfd, lambda _mask: self._on_exit(process))
        if process.notify_socket is not None:
            self._notify_sockets.open(process.notify_socket)

    # Answers for the scheduler.

    def snapshot(self) -> Message:
        """Return the running processes and the unacknowledged exits. The scheduler requests waiting starts again."""
        for run in self._dispatcher.runs(State.AWAITED, State.WAITING):
            self._happen(run, Event.FORGOTTEN)
        self._waiting.clear()
        self._announced.clear()
        return {
            "op": "snapshot",
            "instances": [snapshot_entry(process) for process in self.live.values()],
            "exits": [without_defaults(exited) for exited in self.exits.values()],
            "cgroups": self.cgroup_manager.directory,
            "left_running": self._leftover_runs.listed(),
        }

    def acknowledge(self, message: Message) -> None:
        """Forget exits that the scheduler has stored. It may repeat a message, so unknown ids are ignored."""
        for run in message["runs"]:
            self._happen(run, Event.ACKNOWLEDGED)

    @property
    def is_idle(self) -> bool:
        """Return whether no run is alive, waits to start, or waits to be reported."""
        return not (self.live or self.failed_starts or self._waiting or self.starts.under_way)

    def next_s(self) -> float | None:
        """Return when :meth:`run_timers` is due (monotonic seconds)."""
        starting = (self.starts.next_s(), self._waiting.due_s)
        times = (self._timers.next_s(), *starting, self._trees.reap_at_s, self.memory.due_s, self._leftover_runs.due_s)
        return min((at for at in times if at is not None), default=None)

    def record_again(self, settings: DaemonSettings) -> None:
        """Write the records of all processes to a new runtime directory."""
        self._records.make_again(settings, self.live.values())

    def ran_short(self, err: BaseException) -> None:
        """Release the memory reserve if the shortage is one of memory."""
        if is_of_memory(err):
            self.memory.release()

    def check_all_again(self) -> None:
        """Check every process again, because a shortage may have interrupted work."""
        for process in self.live.values():
            if process.state in ALIVE:
                self._watch_process(process)
            self._timers.add(0.0, process.run)

    # Starting.

    def prepare(self, message: Message) -> None:
        """Prepare a run that the scheduler is about to request, unless it cannot be stored."""
        spawn = self._announced.add(message)
        if self._waiting or not self.starts.can_prepare:
            return
        if spawn.refusal is None and self.memory.is_enough():
            self._happen(spawn.run, Event.PREPARE, spawn)

    def spawn(self, message: Message) -> None:
        """Start a run for the scheduler; a known run id changes nothing."""
        spawn = self._announced.take(message)
        if spawn is None:
            self._happen(message["run"], Event.UNANNOUNCED)
        elif spawn.refusal is not None:
            self._happen(spawn.run, Event.REJECTED, (spawn, spawn.refusal))
        else:
            self._happen(spawn.run, Event.SPAWN, spawn)

    def expect_starts(self) -> None:
        """Expect a start soon."""
        self.starts.expect()

    @property
    def _runs_with_descriptors(self) -> int:
        """Return how many runs need descriptors now or soon: also ended runs with unwritten logs, and held sockets."""
        return len(self.live) + len(self.failed_starts) + self._pump.files.draining + len(self.starts.sockets)

    # The results of starts (:class:`supervisor.root.spawn.start_queue.StartObserver`).

    def on_start(self, run: str) -> None:
        """Note a run just before it is started."""
        self._records.note(run)

    def on_started(self, start: Start, started: StartedProcess) -> None:
        """Take over a started process."""
        self._happen(start.spawn.run, Event.STARTED, (start, started))

    def on_refused(self, spawn: Spawn, reason: str) -> None:
        """Report the reason in the log of the run."""
        self._happen(spawn.run, Event.REFUSED, (spawn, reason))

    def on_short(self, start: Start, reason: str) -> None:
        """Let the start wait until the resource is available."""
        self._happen(start.spawn.run, Event.SHORT, (start, reason))

    def on_dropped(self, run: str) -> None:
        """Forget a preparation."""
        self._happen(run, Event.DROPPED)

    def _prepare(self, run: str, spawn: Spawn) -> None:
        if not self.starts.prepare(spawn, self._runs_with_descriptors):
            self._happen(run, Event.DROPPED)

    def _start_run(self, spawn: Spawn) -> None:
        if self.memory.is_enough():
            self.starts.start(spawn, self._runs_with_descriptors)
        else:
            self.starts.drop()
            self.on_short(Start(spawn, None), "out of memory")

    def _put_back(self, _run: str, detail: tuple[Start, str]) -> None:
        start, reason = detail
        self._waiting.put_back(start.spawn, reason)
        for message in start.stops:
            self.stop(message)

    def _adopt_start(self, start: Start, started: StartedProcess) -> None:
        """Take over a started process."""
        now_ms = self._clock.wall_ms()
        spawn = start.spawn
        main = MainProcess(
            started.pid, started.pidfd, now_ms, self._clock.boot_s(), self._records.start_of(started.pid)
        )
        process = ManagedProcess(spawn, main, started.status_fd, start.cgroup, start.notify_socket)
        self.live[spawn.run] = process
        self._trees.mains[started.pid] = process
        if spawn.timeout_ms is not None:
            process.deadline_s = self._clock.monotonic_s() + spawn.timeout_ms / 1000
            self._timers.add(process.deadline_s, spawn.run)
        record = self._records.add(process, *started.pipes)
        self._pump.add(spawn, *started.pipes, record)
        for remark in start.log_notes:
            self._note(spawn.run, remark)
        self._send({"op": "started", "run": spawn.run, "pid": started.pid, "at": now_ms})
        self._watch_process(process)
        for message in start.stops:
            self.stop(message)

    def _refuse(self, run: str, detail: tuple[Spawn, str]) -> None:
        spawn, reason = detail
        self.failed_starts[run] = f"could not start: {reason}"
        self._pump.add(spawn, None, None)
        self._pump.seal(run, [self.failed_starts[run]])

    # The main process exits.

    def _on_exit(self, process: ManagedProcess) -> None:
        drained = process.run in self._ended_pipes
        self._happen(process.run, Event.EXITED_DRAINED if drained else Event.EXITED)

    def _note_exit(self, process: ManagedProcess, _detail: None) -> None:
        """Note the end of the main process. The pidfd is closed last, because a shortage repeats the whole action."""
        process.note_end(self._clock.boot_s())
        process.inspect_zombie()
        if process.state is State.RUNNING:
            process.deadline_s = None  # the time-out; a stop keeps its time
        if process.status_fd is not None:
            # EAGAIN: a process of the command holds the socket, so the command did start. ECONNRESET: the shim was
            # killed before it read our request.
            with contextlib.suppress(BlockingIOError, ConnectionResetError):
                words = os.read(process.status_fd, 256).decode(errors="replace")
                # Without words, a process that executed nothing or was stopped was killed before it could start.
                if words or not (process.outcome.executed_nothing or process.cause is not None):
                    process.outcome.reason = shim.explain(process.spawn, words)
            os.close(process.status_fd)
            process.status_fd = None
        if not self._starts_again(process):
            self._close_notify_socket(process)
        self._watch.remove(process.main.pidfd)
        if not process.main.adopted:  # the pidfd of an adopted process is still needed for its exit status
            os.close(process.main.pidfd)

    def _set_deadline(self, process: ManagedProcess, _detail: None) -> None:
        if process.deadline_s is None:
            process.deadline_s = self._clock.monotonic_s() + _DRAIN_S

    def _set_deadline_now(self, process: ManagedProcess, _detail: None) -> None:
        process.deadline_s = self._clock.monotonic_s()

    def _await_deadline(self, process: ManagedProcess, _detail: None) -> None:
        if process.deadline_s is not None:
            self._timers.add(process.deadline_s, process.run)

    @staticmethod
    def _starts_again(process: ManagedProcess) -> bool:
        """Return whether the run needs another process: this one, now a zombie, never executed the command.

        A run that was stopped or failed to start gets no other process.
        """
        return process.outcome.executed_nothing and process.cause is None and process.outcome.reason is None

    def _keep_from_renewal(self, process: ManagedProcess, message: Message) -> None:
        """Start no other process for a run that is being stopped."""
        if self._starts_again(process):
            process.cause, process.by = message["cause"], message.get("by")
            self._records.update(process)

    def _renew(self, process: ManagedProcess, _detail: MainProcessExit) -> None:
        """Start another process for a run whose spare process was killed before it executed the command."""
        run = process.run
        del self.live[run]
        self._ended_pipes.pop(run, None)
        self._trees.mains.pop(process.main.pid, None)
        self._records.forget(run)
        self._note(run, f"process {process.main.pid} was killed before it executed the command: starting another one")
        if process.notify_socket is not None:
            self._notify_sockets.release(process.notify_socket)
        self.starts.start_again(process.spawn, process.notify_socket)

    # The pipes end. Leftovers are found, then killed or left running.

    def _note_drained(self, run: str, silent: bool) -> None:
        self._ended_pipes[run] = silent

    def _sweep(self, process: ManagedProcess, _detail: None) -> None:
        """Look for leftovers."""
        now_s = self._clock.monotonic_s()
        if process.abandoned or leftovers.none_left(self._trees, process):
            event = Event.UNEXECUTED if self._starts_again(process) else Event.NONE_LEFT
        elif process.spawn.leave:
            event = Event.TO_LEAVE
        elif process.deadline_s is not None and now_s >= process.deadline_s + _GIVE_UP_S:
            event = Event.UNKILLABLE
        else:
            event = Event.LEFT
        self._happen(process.run, event)

    def _check_run(self, process: ManagedProcess, now_s: float) -> None:
        self._happen(process.run, Event.DUE if process.is_due(now_s) else Event.CHECK)

    def _check_later(self, process: ManagedProcess, _detail: None) -> None:
        now_s = self._clock.monotonic_s()
        process.sweep_interval_s = min(max(_CHECK_S[0], 2 * process.sweep_interval_s), _CHECK_S[1])
        at_s = now_s + process.sweep_interval_s
        if process.deadline_s is not None and now_s < process.deadline_s:
            at_s = min(at_s, process.deadline_s)
        self._timers.add(at_s, process.run)

    def _retry_later(self, process: ManagedProcess, _detail: None) -> None:
        self._timers.add(self._clock.monotonic_s() + _CHECK_S[1], process.run)

    def _leave(self, process: ManagedProcess, _detail: None) -> None:
        self._trees.left_running = True
        living = list(self._trees.members(process).values())
        self._leftover_runs.add(process, living, self._clock.monotonic_s())
        self._abandon(process, living, f"left running: {leftovers.format_names(living)}")

    def _kill_leftovers(self, process: ManagedProcess, _detail: None) -> None:
        leftovers.kill(self._trees, process)

    def _give_up(self, process: ManagedProcess, _detail: None) -> None:
        living = list(self._trees.members(process).values())
        text = leftovers.format_survivors(process, living, _GIVE_UP_S)
        self._abandon(process, living, text)
        self._log.error(f"{process.spawn.task} {process.run}: {text}")

    def _abandon(self, process: ManagedProcess, living: list[Process], text: str) -> None:
        """Let the run end although leftovers are alive."""
        process.abandoned = True
        for leftover in living:
            process.outcome.leftovers.pop((leftover.pid, leftover.start), None)
        process.outcome.log_notes.append(text)
        if process.cgroup is not None:
            self.cgroup_manager.leave(process.cgroup)
            process.cgroup = None

    def _close_pipes(self, process: ManagedProcess, _detail: None) -> None:
        if process.spawn.leave:
            self._pump.leave(process.spawn)
        else:
            self._pump.drain(process.run)

    # The log is sealed, the main process is reaped, and the exit is reported.

    def _seal(self, process: ManagedProcess, _detail: None) -> None:
        self._close_notify_socket(process)
        process.deadline_s = None
        outcome = process.outcome
        lines = [line for line in (outcome.reason, own_failure(process)) if line]
        if process.main.adopted and status_of(process) is None:
            lines.append(_UNKNOWN)
        if outcome.usage is not None and outcome.usage.oom_kills:
            lines.append(f"the kernel killed a process of this run: {outcome.usage.oom_reason}")
        if outcome.leftovers:
            named = leftovers.format_names(list(outcome.leftovers.values()))
            lines.append(f"killed processes that outlived the main process: {named}")
        lines += outcome.log_notes
        if lines or process.run in self._noted or not self._ended_pipes.get(process.run):
            self._pump.seal(process.run, lines)
        else:
            self._pump.forget(process.run)
            self._happen(process.run, Event.SEALED, 0)

    def _note_lines(self, process: ManagedProcess, lines: int) -> None:
        process.outcome.lines = lines

    def _reap(self, process: ManagedProcess, _detail: None) -> None:
        """Reap the main process. A tracer (ptrace(2)) gets its exit first and may delay it for a long time."""
        reaped = reap(process)
        self._happen(process.run, Event.TRACED if reaped is None else Event.REAPED, reaped)

    def _report(self, process: ManagedProcess, reaped: MainProcessExit) -> None:
        """Report how the run ended."""
        run = process.run
        del self.live[run]
        self._ended_pipes.pop(run, None)
        self._noted.discard(run)
        self._trees.mains.pop(process.main.pid, None)
        self._trees.reap_soon()  # orphans of this run may have ended as well
        self.cgroup_manager.sweep()
        self._waiting.retry_soon()
        lines, now_ms = process.outcome.lines or 0, self._clock.wall_ms()
        self._exited(exit_report(process, reaped, lines, now_ms, self.shutdown_signals), process)

    def _report_unstarted(self, run: str, message: Message) -> None:
        self._waiting.drop(run)
        self._exited(
            Exited(run=run, status=None, cause=message["cause"], by=message.get("by"), ended_at=self._clock.wall_ms())
        )

    def _report_refused(self, run: str, lines: int) -> None:
        self._noted.discard(run)
        reason = self.failed_starts.pop(run)
        self._exited(
            Exited(
                run=run, status=None, cause="start_failed", reason=reason, ended_at=self._clock.wall_ms(), lines=lines
            )
        )

    def _exited(self, exited: Exited, process: ManagedProcess | None = None) -> None:
        self.exits[exited.run] = exited
        if process is not None:
            self._records.exited(process, exited)
        self._send({"op": "exited", **without_defaults(exited), "origin": {}})

    def _forget(self, run: str, _detail: None) -> None:
        self.exits.pop(run, None)
        self._records.forget(run)

    # Stopping.

    def stop(self, message: Message) -> None:
        """Stop a run for the scheduler."""
        self._happen(message["run"], Event.KILL if message.get("force") else Event.STOP, message)

    def stop_all(self, cause: str) -> None:
        """Stop all runs."""
        for run in (*self.live, *self._waiting, *self.starts.under_way):
            self.stop({"run": run, "cause": cause})

    def kill_all(self, cause: str) -> None:
        """Kill all runs that have a process."""
        for run in list(self.live):
            self.stop({"run": run, "cause": cause, "force": True})

    def note(self, message: Message) -> None:
        """Add a line of the scheduler to the log of a run."""
        process = self.live.get(message["run"])
        if process is not None and process.state in ALIVE | DRAINS:
            self._note(process.run, message["text"])

    def _note(self, run: str, text: str) -> None:
        """Add a line of our own to the log of a run."""
        self._noted.add(run)
        self._pump.note(run, text)

    def _say_note(self, process: ManagedProcess, message: Message) -> None:
        if message.get("note") is not None and process.cause is None:
            self._note(process.run, message["note"])

    def _say_timed_out(self, process: ManagedProcess, _message: Message) -> None:
        self._note(process.run, f"timed out after {process.spawn.timeout_ms} ms: stopping")

    def _say_overflowed(self, process: ManagedProcess, _message: Message) -> None:
        self._note(process.run, "the log reached log_max_size: stopping")

    def _announce_stop(self, process: ManagedProcess, _message: Message) -> None:
        if process.spawn.launched and process.cause is None:
            self._send({"op": "stopping", "run": process.run})

    def _note_cause(self, process: ManagedProcess, message: Message) -> None:
        """Note why the run ends; the first cause counts."""
        if process.cause is None:
            process.cause, process.by = message["cause"], message.get("by")

    def _kill_at_once(self, process: ManagedProcess, _message: Message) -> None:
        stop_ladder.kill_at_once(process, self._clock.monotonic_s())
        self._await_deadline(process, None)
        self._records.update(process)

    def _next_signal(self, process: ManagedProcess, _detail: None) -> None:
        if not process.steps_left:
            self._happen(process.run, Event.LADDER_OVER)
            return
        text = stop_ladder.send_next_signal(self._trees, process, self._clock.monotonic_s())
        self._records.update(process)
        if text is not None:
            self._note(process.run, text)
        self._await_deadline(process, None)

    def _sigkill(self, process: ManagedProcess, _detail: None) -> None:
        self._note(process.run, stop_ladder.kill(self._trees, process, self._clock.monotonic_s()))
        self._await_deadline(process, None)

    def _say_alive(self, process: ManagedProcess, _detail: None) -> None:
        text = stop_ladder.survivors(self._trees, process)
        self._records.update(process)
        self._note(process.run, text)
        self._log.error(f"{process.spawn.task} {process.run}: {text}")

    # Timers.

    def run_timers(self, now_s: float) -> None:
        """Take the steps that are due at `now_s` (monotonic seconds)."""
        self._dispatcher.dispatch()
        self.starts.tick(now_s)
        self._waiting.tick(now_s)
        self._trees.tick(now_s)
        self.memory.tick(now_s)
        self._leftover_runs.tick(now_s)
        for run in self._timers.due(now_s):
            self._check_times(self.live[run], now_s)

    def _check_times(self, process: ManagedProcess, now_s: float) -> None:
        if process.state is State.RUNNING and process.is_due(now_s):
            self._happen(process.run, Event.TIMED_OUT, {"cause": "timeout"})
        if process.notify_socket is not None:
            self._notify_sockets.tick(process.notify_socket, now_s)
        self._check_run(process, now_s)
