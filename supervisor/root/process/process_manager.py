"""The lives of instances: started, pumped, drained, sealed, reaped, reported. Belongs to the control thread."""

import contextlib
import heapq
import os
import time
from collections.abc import Callable, Container, Iterator
from dataclasses import asdict

from supervisor.host import procfs
from supervisor.host.shortage import is_of_memory
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Boot, Exited, Frame, Spawn
from supervisor.root.handover.run_records import RunRecords
from supervisor.root.handover.run_recovery import RecoveredRun, limit_again
from supervisor.root.handover.state_schema import ProcessesState, RunHandover, RunLogState, exact_of, state_of
from supervisor.root.loop.epoll_watch import EpollWatch
from supervisor.root.loop.memory_reserve import MemoryReserve
from supervisor.root.output.pump_reports import PumpReports
from supervisor.root.output.pump_thread import Pump
from supervisor.root.process import leftovers, reaping
from supervisor.root.process import stop_ladder as stop
from supervisor.root.process.cgroup_manager import CgroupManager
from supervisor.root.process.leftovers import LeftRunning
from supervisor.root.process.managed_process import ManagedProcess, ProcessState, told
from supervisor.root.process.notify_socket import REST_S, NotifySocket
from supervisor.root.process.process_tree import ProcessTrees
from supervisor.root.spawn import shim
from supervisor.root.spawn.posix_spawn import Started
from supervisor.root.spawn.start_queue import Start, StartQueue, WaitingStarts


class NotifySockets:
    """The notify sockets of all runs; each change goes to the scheduler as ``notified``.

    Args:
        send: takes a frame to the scheduler.
        at: have :meth:`tend` called for a run at that time (monotonic seconds).
    """

    def __init__(
        self, watch: EpollWatch, trees: ProcessTrees, send: Callable[[Frame], None], at: Callable[[float, str], None]
    ) -> None:
        self._watch = watch
        self._trees = trees
        self._send = send
        self._at = at

    def open(self, instance: ManagedProcess) -> None:
        """Listen to a run, if it has an ear."""
        if instance.notify_socket is not None:
            self._watch.add(instance.notify_socket.fileno(), lambda _mask: self._readable(instance))

    def tend(self, instance: ManagedProcess, now_s: float) -> None:
        """Listen again after the pause that follows a flood."""
        ear = instance.notify_socket
        if ear is not None and ear.resume_at_s is not None and now_s >= ear.resume_at_s:
            ear.resume_at_s = None
            self.open(instance)

    def close(self, instance: ManagedProcess) -> None:
        """Read the last datagrams, and close the socket."""
        self._listen(instance)
        ear = self.release(instance)
        if ear is not None:
            ear.close()

    def release(self, instance: ManagedProcess) -> NotifySocket | None:
        """Take the ear of a run away, open, for the process that becomes the run in place of this one."""
        ear, instance.notify_socket = instance.notify_socket, None
        if ear is not None and ear.fileno() in self._watch:
            self._watch.remove(ear.fileno())
        return ear

    def _readable(self, instance: ManagedProcess) -> None:
        ear = instance.notify_socket
        if ear is not None and self._listen(instance):
            self._watch.remove(ear.fileno())
            ear.resume_at_s = time.monotonic() + REST_S
            self._at(ear.resume_at_s, instance.run)

    def _listen(self, instance: ManagedProcess) -> bool:
        """Take what came, up to a batch; returns whether more may be there."""
        if instance.notify_socket is None:
            return False
        news, more = instance.notify_socket.listen(
            lambda pid: self._trees.has(instance, pid), time.time_ns() // 1_000_000
        )
        if news:
            self._send({"op": "notified", "run": instance.run, **news})
        return more


_MIN_SWEEP = 256


class Timers:
    """Timers in monotonic seconds, each for one run; a run may have several.

    Args:
        live: ids of the runs that there are. Timers of
            other runs are skipped, and removed now and then. Most of them are timeouts of runs that ended long ago.
    """

    def __init__(self, live: Container[str]) -> None:
        self._live = live
        self._heap: list[tuple[float, str]] = []
        self._sweep_at = _MIN_SWEEP

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when_s: float, run: str) -> None:
        """Look at `run` then."""
        heapq.heappush(self._heap, (when_s, run))
        if len(self._heap) >= self._sweep_at:
            self._heap = [timer for timer in self._heap if timer[1] in self._live]
            heapq.heapify(self._heap)
            self._sweep_at = max(_MIN_SWEEP, 2 * len(self._heap))

    def next_s(self) -> float | None:
        """Return when the next one is due; None: there is none."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_s: float) -> Iterator[str]:
        """Return the runs whose timers are due, the earliest first."""
        while self._heap and self._heap[0][0] <= now_s:
            _, run = heapq.heappop(self._heap)
            if run in self._live:
                yield run


_DRAIN_S = 0.25
"""How long pipes may stay open, and processes live on, after the main process has exited, without a stop."""
_GIVE_UP_S = 10.0
"""How long the killed may take to end before the run ends without them."""
_LOOK_S = (0.001, 0.1)
"""Interval of the search for leftovers: the first, and the longest."""
_UNKNOWN = (
    "its exit status is unknown: the supervisor that started it was killed, "
    "and kernels before Linux 6.15 report it only to that process"
)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class ProcessManager:
    """All processes of runs, and the exits that the scheduler has not acknowledged."""

    def __init__(
        self,
        daemon_id: str,
        watch: EpollWatch,
        pump: Pump,
        log: Log,
        base_env: dict[str, str],
        send: Callable[[Frame], None],
        trees: ProcessTrees,
        records: RunRecords,
    ) -> None:
        """`send` takes a frame to the scheduler; `records` are for the next root, should this one be killed."""
        self._watch = watch
        self._pump = pump
        self._log = log
        self._send = send
        self._trees = trees
        self._records = records
        self.cgroup_manager = CgroupManager(daemon_id, log)
        told = (records.note, self._on_started, self._refuse, self._on_short)
        self.starts = StartQueue(watch, log, base_env, self.cgroup_manager, pump.add_helper, *told)
        self.live: dict[str, ManagedProcess] = {}
        """By run id, as are the others."""
        self._timers = Timers(self.live)
        self._notify_sockets = NotifySockets(watch, trees, self._on_notified, self._timers.add)
        self._waiting = WaitingStarts(log, self._begin, send)
        self.exits: dict[str, Exited] = {}
        self.failed_starts: dict[str, str] = {}
        """Why nothing could be started, until the log that says so is sealed."""
        self.memory = MemoryReserve(log, lambda short: send({"op": "memory", "short": short}))
        self._left = LeftRunning(send)
        self._ended_pipes: dict[str, bool] = {}
        """The runs whose pipes are at their end, and whether they printed nothing."""
        self._noted: set[str] = set()
        """The runs in whose logs we have written."""
        self.notices = PumpReports(
            watch,
            send,
            on_end=self._on_pipes_ended,
            on_sealed=self._on_sealed,
            on_overflow=self._on_overflow,
            on_short=self.ran_short,
        )
        """Receives the reports of the pump."""

    def use_cgroups(self, wanted: bool) -> None:
        """Set whether new runs get cgroups, where the host has them."""
        if self.cgroup_manager.use(wanted):
            limit_again(self.live.values(), self._log)
        if self.cgroup_manager.directory is None:
            self.starts.drop()
            self.starts.spares.drop()

    def close(self) -> None:
        """End the zygote and its child. Remove our cgroups, and the records for the next root."""
        self.starts.close()
        self._trees.reap_soon()
        self._trees.tend(float("inf"))
        self._records.clear(stored=not (self.live or self.exits or self.starts.under_way))
        self.cgroup_manager.close()

    # For the next root, while the pump waits.

    def dump(self, keep: Callable[[int], int]) -> ProcessesState:
        """Return the state that belongs to no run, with no start under way; `keep` registers descriptors."""
        self.starts.drop()
        self.starts.spares.drop()
        return ProcessesState(
            exits=list(self.exits.values()),
            stillborn=self.failed_starts,
            ended_pipes=sorted(self._ended_pipes),
            left=self.cgroup_manager.dump(),
            left_running=self._left.dump(),
            nofile=self.starts.descriptors.original,
            owners=self._trees.dump(),
            records=self._records.dump(keep),
        )

    def runs(self, logs: dict[str, RunLogState], keep: Callable[[int], int]) -> list[RunHandover]:
        """Return all live runs for the handover; their logs are taken out of `logs`."""
        return [RunHandover(state_of(one), exact_of(one, logs.pop(one.run, None), keep)) for one in self.live.values()]

    def load(self, state: ProcessesState) -> None:
        """Take over the state from :meth:`dump`; call it before :meth:`adopt`."""
        self.exits = {exited.run: exited for exited in state.exits}
        self.failed_starts = state.stillborn
        self._ended_pipes = dict.fromkeys(state.ended_pipes, False)
        self.cgroup_manager.load(state.left)
        self._left.load(state.left_running, time.monotonic())
        self.starts.descriptors.original = state.nofile  # ours was raised before the upgrade
        self._trees.load(state.owners)
        self._records.load(state.records)

    def expect(self, instances: int) -> None:
        """Reserve descriptors for so many runs to adopt."""
        self.starts.descriptors.reserve(instances)

    def adopt(self, found: RecoveredRun) -> None:
        """Adopt a run that another root owned; before the threads start."""
        run, instance = found.run, found.instance
        if found.record is not None:
            self._records.adopt(run, found.record, found.identities)
        if found.exited is not None:
            self.exits[run] = found.exited
        if found.log is not None and found.lines is not None:
            self._pump.complete(found.log)
        elif found.log is not None:
            self._pump.adopt(found.log, found.stalled_at_s)
        elif instance is not None and found.pipes:
            self._pump.add(instance.spawn, found.pipes["out"], found.pipes.get("err"), found.record)
        if instance is None:
            return
        self.live[run] = instance
        if not instance.adopted:
            self._trees.mains.add(instance.pid)
        if found.lines is not None:
            instance.phase = ProcessState.SEALING
            self.notices.sealed(run, found.lines)
            return
        if found.record is not None:
            self._note(run, "the supervisor was killed; a new one continues from here")
        self._resume(instance)

    def _resume(self, instance: ManagedProcess) -> None:
        if instance.phase is ProcessState.RUNNING:
            self._hold(instance)
        resume_at_s = None if instance.notify_socket is None else instance.notify_socket.resume_at_s
        for at in (0.0, instance.deadline_s, instance.kill_at_s, resume_at_s):
            if at is not None:
                self._timers.add(at, instance.run)

    def _on_notified(self, frame: Frame) -> None:
        self._send(frame)
        if frame.keys() & {"ready_at", "status"} and frame["run"] in self.live:
            self._records.update(self.live[frame["run"]])

    def _hold(self, instance: ManagedProcess) -> None:
        """Watch its pidfd and its notification socket, unless they are watched already."""
        if instance.pidfd not in self._watch:
            self._watch.add(instance.pidfd, lambda _mask: self._on_exit(instance))
        ear = instance.notify_socket
        if ear is not None and ear.resume_at_s is None and ear.fileno() not in self._watch:
            self._notify_sockets.open(instance)

    # Answers for the scheduler.

    def snapshot(self) -> Frame:
        """Return the running processes and the unacknowledged exits. The scheduler requests waiting starts again."""
        self._waiting.clear()
        return {
            "op": "snapshot",
            "instances": [told(instance) for instance in self.live.values()],
            "exits": [asdict(exited) for exited in self.exits.values()],
            "cgroups": self.cgroup_manager.directory,
            "left_running": self._left.listed(),
        }

    def acknowledge(self, frame: Frame) -> None:
        """Forget exits that the scheduler has stored; unknown ids are ignored (it may repeat itself)."""
        for run in frame["runs"]:
            self.exits.pop(run, None)
            self._records.forget(run)

    @property
    def over(self) -> bool:
        """Return whether no run lives or waits to be reported."""
        return not (self.live or self.failed_starts or self._waiting or self.starts.under_way)

    def next_s(self) -> float | None:
        """Return when :meth:`run_timers` is due (monotonic seconds)."""
        starting = (self.starts.next_s(), self._waiting.due_s)
        times = (self._timers.next_s(), *starting, self._trees.reap_at_s, self.memory.due_s, self._left.due_s)
        return min((at for at in times if at is not None), default=None)

    def note_again(self, boot: Boot) -> None:
        """Write the records of all processes to a new runtime directory."""
        self._records.make_again(boot, self.live.values())

    def ran_short(self, err: BaseException) -> None:
        """Handle a failure for want of a resource: release the memory reserve if memory ran out."""
        if is_of_memory(err):
            self.memory.give_up()

    def look_again(self) -> None:
        """Look at every process again: a shortage may have interrupted work."""
        for instance in self.live.values():
            if instance.phase is ProcessState.RUNNING:
                self._hold(instance)
            self._timers.add(0.0, instance.run)

    # Starting.

    def prepare(self, frame: Frame) -> None:
        """Prepare a run that the scheduler is about to request, unless it cannot be stored."""
        if self._waiting or not self.starts.can_prepare:
            return
        wanted = Spawn(**frame["spawn"])
        if not self._knows(wanted.run) and wanted.refusal is None and self.memory.enough():
            self.starts.prepare(wanted, self._others)

    def spawn(self, frame: Frame) -> None:
        """Start a run for the scheduler; a known run id changes nothing."""
        wanted = Spawn(**frame["spawn"])
        if self._knows(wanted.run):
            return
        if wanted.refusal is not None:
            self._refuse(wanted, wanted.refusal)
            return
        self._waiting.start(wanted)

    def _begin(self, wanted: Spawn) -> None:
        if self.memory.enough():
            self.starts.begin(wanted, self._others)
        else:
            self.starts.drop()
            self._waiting.put_back(wanted, "there is no memory left")

    @property
    def _others(self) -> int:
        """Return how many runs have or are about to have descriptors, those with unwritten logs included."""
        return len(self.live) + len(self.failed_starts) + self._pump.files.draining

    def _on_short(self, start: Start, why: str) -> None:
        self._waiting.put_back(start.spawn, why)
        for frame in start.stops:
            self.stop(frame)

    def _knows(self, run: str) -> bool:
        known = (self.live, self.exits, self.failed_starts, self._waiting, self.starts.under_way)
        return any(run in runs for runs in known)

    def expect_starts(self) -> None:
        """Expect a start soon."""
        self.starts.expect()

    def _on_started(self, start: Start, started: Started) -> None:
        now_ms = _now_ms()
        wanted = start.spawn
        instance = ManagedProcess(
            wanted, started.pid, started.pidfd, now_ms, started.status_fd, start.cgroup, start.notify_socket
        )
        self.live[wanted.run] = instance
        self._trees.mains.add(started.pid)
        if wanted.timeout_ms is not None:
            instance.deadline_s = time.monotonic() + wanted.timeout_ms / 1000
            self._timers.add(instance.deadline_s, wanted.run)
        record = self._records.begin(instance, *started.pipes)
        self._pump.add(wanted, *started.pipes, record)
        for remark in start.log_notes:
            self._note(wanted.run, remark)
        self._send({"op": "started", "run": wanted.run, "pid": started.pid, "at": now_ms})
        self._hold(instance)
        for frame in start.stops:
            self.stop(frame)

    def _refuse(self, wanted: Spawn, why: str) -> None:
        self.failed_starts[wanted.run] = f"could not start: {why}"
        self._pump.add(wanted, None, None)
        self._pump.seal(wanted.run, [self.failed_starts[wanted.run]])

    # Ending: the main process exits, the pipes reach their end, the log is sealed, the process is reaped.

    def _on_exit(self, instance: ManagedProcess) -> None:
        self._watch.remove(instance.pidfd)
        if not instance.adopted:  # else it tells the exit status in the end
            os.close(instance.pidfd)
        instance.has_ended()
        instance.phase = ProcessState.DRAINING
        instance.deadline_s = None
        unbegun = procfs.has_executed_nothing(instance.pid) and not instance.adopted
        if instance.status_fd is not None:
            # EAGAIN: something of the command's holds it, so it did start; ECONNRESET: killed before it took our word.
            with contextlib.suppress(BlockingIOError, ConnectionResetError):
                words = os.read(instance.status_fd, 256).decode(errors="replace")
                if words or not (unbegun or instance.cause is not None):  # else we ended it before it had come that far
                    instance.reason = shim.explain(instance.spawn, words)
            os.close(instance.status_fd)
            instance.status_fd = None
        if not self._begins_again(instance):
            self._notify_sockets.close(instance)
        now_s = time.monotonic()
        # A stop gives the whole tree its time, not only the main process.
        if instance.cause is None or instance.killed or instance.kill_at_s is None:
            instance.kill_at_s = now_s if instance.killed else now_s + _DRAIN_S
        instance.killed = False
        self._records.update(instance)
        self._settle(instance, now_s)
        if instance.phase is ProcessState.DRAINING:
            self._timers.add(instance.kill_at_s, instance.run)

    @staticmethod
    def _begins_again(instance: ManagedProcess) -> bool:
        """Return whether its main process, a zombie, provably never executed its command and was not to stop."""
        if instance.adopted or instance.cause is not None or instance.reason is not None:
            return False
        return procfs.has_executed_nothing(instance.pid)

    def _begin_again(self, instance: ManagedProcess) -> None:
        """Start another process for a run whose spare was killed before it had executed anything."""
        run = instance.run
        if reaping.reap(instance) is None:  # as in _report
            self._timers.add(time.monotonic() + _LOOK_S[1], run)
            return
        del self.live[run]
        self._ended_pipes.pop(run, None)
        self._trees.mains.discard(instance.pid)
        self._records.forget(run)
        self._note(run, f"process {instance.pid} was killed before it executed the command: starting another one")
        self.starts.begin_again(instance.spawn, self._notify_sockets.release(instance))

    def _on_pipes_ended(self, run: str, silent: bool) -> None:
        instance = self.live.get(run)
        if instance is None:
            return
        self._ended_pipes[run] = silent
        if instance.phase is ProcessState.DRAINING:
            self._settle(instance, time.monotonic())

    def _settle(self, instance: ManagedProcess, now_s: float) -> None:
        """Handle the exit of the main process: seal the log when the pipes are at their end and no leftovers live.

        Both have until `kill_at_s`. Then the pipes are closed, and leftovers are killed unless the run leaves them.
        """
        run = instance.run
        ended = run in self._ended_pipes
        over = instance.kill_at_s is not None and now_s >= instance.kill_at_s
        if not ended and not over:
            return
        alone = instance.abandoned or leftovers.nobody_left(self._trees, instance)
        if not alone and instance.spawn.leave:
            self._left.add(instance, list(self._trees.members(instance).values()), now_s)
            alone = self._abandon(instance, "left running")
        elif not alone and over:
            alone = self._end_leftovers(instance, now_s)
        if over:
            instance.killed = True
            if not ended and not instance.closes_early:
                instance.closes_early = True
                if instance.spawn.leave:
                    self._pump.leave(instance.spawn)
                else:
                    self._pump.drain(run)
        if ended and alone:
            self._seal(instance)
        elif not alone:
            instance.sweep_interval_s = min(max(_LOOK_S[0], 2 * instance.sweep_interval_s), _LOOK_S[1])
            self._timers.add(now_s + instance.sweep_interval_s, run)

    def _end_leftovers(self, instance: ManagedProcess, now_s: float) -> bool:
        """Kill who is left; returns True when that has been tried for long enough."""
        if instance.kill_at_s is None or now_s < instance.kill_at_s + _GIVE_UP_S:
            leftovers.kill(self._trees, instance)
            return False
        why = "signalling it is not permitted" if instance.not_permitted else "uninterruptible?"
        told = self._abandon(instance, f"still there {_GIVE_UP_S:g} s after SIGKILL ({why})")
        self._log.error(f"{instance.spawn.task} {instance.run}: {instance.log_notes[-1]}")
        return told

    def _abandon(self, instance: ManagedProcess, how: str) -> bool:
        """End the run in spite of leftovers; return True."""
        instance.abandoned = True
        living = list(self._trees.members(instance).values())
        for process in living:
            instance.leftovers.pop((process.pid, process.start), None)
        instance.log_notes.append(f"{how}: {leftovers.names(living)}")
        if instance.cgroup is not None:
            self.cgroup_manager.leave(instance.cgroup)
            instance.cgroup = None
        return True

    def _on_overflow(self, run: str) -> None:
        instance = self.live.get(run)
        if instance is None:
            return
        if instance.phase is ProcessState.RUNNING:
            self._note(run, "the log reached log_max_size: stopping")
            self.begin_stop(instance, "overflow", None)
        elif instance.cause is None:  # it printed all that in its last moments
            instance.cause = "overflow"

    def _seal(self, instance: ManagedProcess) -> None:
        if self._begins_again(instance):
            self._begin_again(instance)
            return
        self._notify_sockets.close(instance)
        instance.phase = ProcessState.SEALING
        instance.kill_at_s = None
        lines = [line for line in (instance.reason, reaping.own_failure(instance)) if line]
        if instance.adopted and reaping.status_of(instance) is None:
            lines.append(_UNKNOWN)
        if instance.usage is not None and instance.usage.oom_kills:
            lines.append(f"the kernel killed a process of this run: {instance.usage.oom_reason}")
        if instance.leftovers:
            named = leftovers.names(list(instance.leftovers.values()))
            lines.append(f"killed processes that outlived the main process: {named}")
        lines += instance.log_notes
        self._records.update(instance)
        if lines or instance.run in self._noted or not self._ended_pipes.get(instance.run):
            self._pump.seal(instance.run, lines)
        else:
            self._pump.forget(instance.run)
            self._on_sealed(instance.run, 0)

    def _on_sealed(self, run: str, lines: int) -> None:
        reason = self.failed_starts.pop(run, None)
        if reason is not None:
            self._noted.discard(run)
            self._exited(
                Exited(run=run, status=None, cause="start_failed", reason=reason, ended_at=_now_ms(), lines=lines)
            )
            return
        self.live[run].lines = lines
        self._report(self.live[run], lines)

    def _report(self, instance: ManagedProcess, lines: int) -> None:
        """Reap the main process, and say how the run ended."""
        run = instance.run
        reaped = reaping.reap(instance)
        if reaped is None:  # a tracer (ptrace(2)) sees the end first, and may take long to look at it
            self._timers.add(time.monotonic() + _LOOK_S[1], run)
            return
        del self.live[run]
        self._ended_pipes.pop(run, None)
        self._noted.discard(run)
        self._trees.mains.discard(instance.pid)
        self._trees.reap_soon()  # processes that this zombie hid
        self.cgroup_manager.sweep()
        self._waiting.hurry()
        self._exited(reaping.exited(instance, reaped, lines), instance)

    def _exited(self, exited: Exited, instance: ManagedProcess | None = None) -> None:
        self.exits[exited.run] = exited
        if instance is not None:
            self._records.exited(instance, exited)
        self._send({"op": "exited", **asdict(exited), "origin": {}})

    # Stopping.

    def stop(self, frame: Frame) -> None:
        """Stop a run for the scheduler."""
        start = self.starts.under_way.get(frame["run"])
        if start is not None:
            start.stops.append(frame)
            return
        if self._waiting.drop(frame["run"]):
            self._exited(
                Exited(run=frame["run"], status=None, cause=frame["cause"], by=frame.get("by"), ended_at=_now_ms())
            )
            return
        instance = self.live.get(frame["run"])
        if instance is not None:
            if frame.get("note") is not None and instance.cause is None:
                self._note(instance.run, frame["note"])
            self.begin_stop(instance, frame["cause"], frame.get("by"), force=bool(frame.get("force")))

    def note(self, frame: Frame) -> None:
        """Add a line of the scheduler to the log of a run."""
        instance = self.live.get(frame["run"])
        if instance is not None and instance.phase is not ProcessState.SEALING:
            self._note(instance.run, frame["text"])

    def _note(self, run: str, text: str) -> None:
        """Add a line of our own to the log of an instance."""
        self._noted.add(run)
        self._pump.note(run, text)

    def stop_all(self, cause: str) -> None:
        """Have everything end."""
        for instance in self.live.values():
            self.begin_stop(instance, cause, None)
        for run in list(self._waiting):
            self.stop({"run": run, "cause": cause})
        for start in self.starts.under_way.values():
            start.stops.append({"run": start.spawn.run, "cause": cause})

    def begin_stop(self, instance: ManagedProcess, cause: str, by: str | None, *, force: bool = False) -> None:
        """Put an instance on the stop ladder."""
        if instance.phase is ProcessState.DRAINING and self._begins_again(instance):
            instance.cause, instance.by = cause, by
        before = instance.kill_at_s
        if instance.spawn.launched and instance.cause is None and instance.phase is ProcessState.RUNNING:
            self._send({"op": "stopping", "run": instance.run})
        stop.begin(self._trees, instance, cause, by, time.monotonic(), force=force)
        if instance.kill_at_s is not None and instance.kill_at_s != before:
            self._timers.add(instance.kill_at_s, instance.run)
        self._records.update(instance)

    def run_timers(self, now_s: float) -> None:
        """Take the steps that are due (monotonic seconds)."""
        self.starts.tend(now_s)
        self._waiting.tend(now_s)
        self._trees.tend(now_s)
        self.memory.tend(now_s)
        self._left.tend(now_s)
        for run in self._timers.due(now_s):
            self._check_times(self.live[run], now_s)

    def _check_times(self, instance: ManagedProcess, now_s: float) -> None:
        if instance.deadline_s is not None and now_s >= instance.deadline_s:
            self._note(instance.run, f"timed out after {instance.spawn.timeout_ms} ms: stopping")
            self.begin_stop(instance, "timeout", None)
        self._notify_sockets.tend(instance, now_s)
        if instance.phase is ProcessState.DRAINING:
            self._settle(instance, now_s)
        elif instance.lines is not None:
            self._report(instance, instance.lines)
        elif instance.phase is ProcessState.RUNNING and stop.due(instance, now_s):
            told = instance.killed
            text = stop.step(self._trees, instance, now_s)
            self._records.update(instance)
            self._note(instance.run, text)
            if told:
                self._log.error(f"{instance.spawn.task} {instance.run}: {text}")
            if instance.kill_at_s is not None:
                self._timers.add(instance.kill_at_s, instance.run)
