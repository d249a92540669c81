"""The lives of instances: started, pumped, drained, sealed, reaped, reported. Belongs to the control thread."""

import collections
import contextlib
import heapq
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from supervisor.logline import Log
from supervisor.messages import Exited, Frame, Spawn
from supervisor.osport import Wakeup
from supervisor.root import leftovers, shim, spawn, stop
from supervisor.root.cgroups import Cgroup, Cgroups
from supervisor.root.ear import Ear
from supervisor.root.ears import Ears
from supervisor.root.instances import Instance, Phase
from supervisor.root.limits import Descriptors
from supervisor.root.processes import io_bytes
from supervisor.root.pump import Pump
from supervisor.root.tree import Trees
from supervisor.root.watch import Watch

_DRAIN_S = 0.25
"""How long pipes may stay open, and processes live on, after the main process has exited, without a stop."""
_GIVE_UP_S = 10.0
"""How long the killed may take to end before the run ends without them."""
_LOOK_S = (0.001, 0.1)
"""Between two looks whether somebody is left: the first time, and at most."""
_MIN_SWEEP = 256


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Lives:
    """All instances, and the exits that nobody has acknowledged."""

    def __init__(
        self,
        watch: Watch,
        pump: Pump,
        log: Log,
        base_env: dict[str, str],
        send: Callable[[Frame], None],
        trees: Trees,
    ) -> None:
        """`send` takes a frame to the scheduler."""
        self._watch = watch
        self._pump = pump
        self._log = log
        self._base_env = base_env
        self._send = send
        self._trees = trees
        self._ears = Ears(watch, trees, send, self._at)
        self._cgroups: Cgroups | None = None
        self._left: list[Cgroup] = []
        """Cgroups with processes that were left on purpose."""
        self.live: dict[str, Instance] = {}
        """By run id, as are the others."""
        self.exits: dict[str, Exited] = {}
        self.stillborn: dict[str, str] = {}
        """Why nothing could be started, until the log that says so is sealed."""
        self._ended_pipes: set[str] = set()
        self._descriptors = Descriptors()
        self._timers: list[tuple[float, str]] = []
        self._sweep_at = _MIN_SWEEP
        self._notices: collections.deque[tuple[Callable[..., None], str, int]] = collections.deque()
        self._news: collections.deque[Frame] = collections.deque()
        self._wakeup = Wakeup()
        watch.add(self._wakeup.fileno(), self._on_wakeup)

    def use_cgroups(self, wanted: bool) -> None:
        """Whether what is started from now on has cgroups, if there are some to be had."""
        if wanted and self._cgroups is None:
            self._cgroups = Cgroups.find()
            if self._cgroups is None:
                self._log.info("runs have no cgroups: there is no version 2 hierarchy in which we may make some")
        elif not wanted:
            self._cgroups = None

    def close(self) -> None:
        """Remove what we made for cgroups."""
        for cgroup in self._left:
            cgroup.remove()
        if self._cgroups is not None:
            self._cgroups.close()

    # The pump's listener; called in the pump thread.

    def at_end(self, run: str) -> None:
        """All pipes of `run` have reached their end."""
        self._notices.append((self._on_pipes_ended, run, 0))
        self._wakeup.set()

    def sealed(self, run: str, lines: int) -> None:
        """The log of `run` is complete."""
        self._notices.append((self._on_sealed, run, lines))
        self._wakeup.set()

    def overflowed(self, run: str) -> None:
        """The output of `run` passed the size at which it is to be stopped."""
        self._notices.append((self._on_overflow, run, 0))
        self._wakeup.set()

    def log_changed(self, run: str, state: str, reason: str | None) -> None:
        """The log of `run` gets on in another way."""
        self._news.append({"op": "log", "run": run, "state": state, "reason": reason})
        self._wakeup.set()

    def _on_wakeup(self, _mask: int) -> None:
        self._wakeup.clear()
        while self._news:
            self._send(self._news.popleft())
        while self._notices:
            function, run, lines = self._notices.popleft()
            function(run, lines)

    # What the scheduler wants to know.

    def snapshot(self) -> Frame:
        """What runs, and what ended unacknowledged."""
        instances: list[dict[str, Any]] = [
            {
                "run": instance.run,
                "task": instance.spawn.task,
                "pid": instance.pid,
                "started_at": instance.started_at,
                "cause": instance.cause,
                "by": instance.by,
                "recipe": instance.spawn.recipe,
                "heard": None if instance.ear is None else instance.ear.heard(),
            }
            for instance in self.live.values()
        ]
        return {
            "op": "snapshot",
            "instances": instances,
            "exits": [asdict(exited) for exited in self.exits.values()],
            "cgroups": None if self._cgroups is None else self._cgroups.directory,
        }

    def acknowledge(self, frame: Frame) -> None:
        """The scheduler has stored these exits; unknown ids are ignored (it may repeat itself)."""
        for run in frame["runs"]:
            self.exits.pop(run, None)

    @property
    def over(self) -> bool:
        """True when nothing lives or is about to be reported."""
        return not self.live and not self.stillborn

    def next_s(self) -> float | None:
        """When :meth:`run_timers` is due (monotonic seconds)."""
        return self._timers[0][0] if self._timers else None

    # Starting.

    def spawn(self, frame: Frame) -> None:
        """The scheduler wants an instance; a run id that is known already changes nothing."""
        wanted = Spawn(**frame["spawn"])
        if wanted.run in self.live or wanted.run in self.exits or wanted.run in self.stillborn:
            return
        if wanted.refusal is not None:
            self._refuse(wanted, wanted.refusal)
            return
        self._descriptors.reserve(len(self.live) + 1)
        cgroup = ear = None
        try:
            ear = Ear(wanted) if wanted.notify is not None else None
            cgroup, remarks = self._cgroup(wanted)
            started = spawn.start(wanted, self._base_env, self._descriptors.restore(), cgroup)
        except (OSError, ValueError) as err:
            # ENOENT: no /bin/sh; E2BIG: arguments or environment too long; EMFILE, EAGAIN, ENOMEM: out of
            # descriptors, processes or memory; ValueError: a NUL byte. The reason stands in the run's own log.
            if cgroup is not None:
                cgroup.remove()
            if ear is not None:
                ear.close()
            self._refuse(wanted, getattr(err, "strerror", None) or str(err))
            return
        now_ms = _now_ms()
        instance = Instance(wanted, started.pid, started.pidfd, now_ms, started.status_fd, cgroup, ear)
        self.live[wanted.run] = instance
        self._trees.mains.add(started.pid)
        self._pump.add(wanted, *started.pipes)
        for remark in remarks:
            self._pump.note(wanted.run, remark)
        self._watch.add(started.pidfd, lambda _mask: self._on_exit(instance))
        self._ears.open(instance)
        if wanted.timeout_ms is not None:
            instance.deadline_s = time.monotonic() + wanted.timeout_ms / 1000
            self._at(instance.deadline_s, wanted.run)
        self._send({"op": "started", "run": wanted.run, "pid": started.pid, "at": now_ms})

    def _refuse(self, wanted: Spawn, why: str) -> None:
        self.stillborn[wanted.run] = f"cannot be started: {why}"
        self._pump.add(wanted, None, None)
        self._pump.seal(wanted.run, [self.stillborn[wanted.run]])

    def _cgroup(self, wanted: Spawn) -> tuple[Cgroup | None, list[str]]:
        """A cgroup with the limits of a run, and what of them cannot hold.

        Raises:
            OSError: one that could be made cannot be limited.
        """
        memory, cpu = wanted.limits.get("memory"), wanted.limits.get("cpu")
        there = frozenset() if self._cgroups is None else self._cgroups.controllers
        remarks = []
        if cpu is not None and "cpu" not in there:
            remarks.append("limits.cpu does not hold: there is no cgroup with the controller cpu to be had")
            cpu = None
        if self._cgroups is None:
            return None, remarks
        try:
            cgroup = self._cgroups.make(wanted.run)
        except OSError as err:  # ENOMEM, EAGAIN: too many; ENOENT: somebody removed our place
            self._log.warning(f"{wanted.task} {wanted.run} has no cgroup: {err.strerror}")
            return None, remarks
        try:
            cgroup.limit(int(memory) if memory is not None and "memory" in there else None, cpu)
        except OSError:
            cgroup.remove()
            raise
        return cgroup, remarks

    # Ending: the main process exits, the pipes reach their end, the log is sealed, the process is reaped.

    def _on_exit(self, instance: Instance) -> None:
        self._watch.remove(instance.pidfd)
        os.close(instance.pidfd)
        self._ears.close(instance)
        instance.ended_at = _now_ms()
        instance.phase = Phase.DRAINING
        instance.deadline_s = None
        if instance.status_fd is not None:
            with contextlib.suppress(BlockingIOError):  # EAGAIN: something of the command's holds it; it did start
                words = os.read(instance.status_fd, 256).decode(errors="replace")
                if words or instance.cause is None:  # else we ended it before it had come that far
                    instance.reason = shim.explain(instance.spawn, words)
            os.close(instance.status_fd)
            instance.status_fd = None
        now_s = time.monotonic()
        # A stop gives the whole tree its time, not only the main process.
        if instance.cause is None or instance.killed or instance.kill_at_s is None:
            instance.kill_at_s = now_s if instance.killed else now_s + _DRAIN_S
        instance.killed = False
        self._settle(instance, now_s)
        if instance.phase is Phase.DRAINING:
            self._at(instance.kill_at_s, instance.run)

    def _on_pipes_ended(self, run: str, _lines: int) -> None:
        instance = self.live.get(run)
        if instance is None:
            return
        self._ended_pipes.add(run)
        if instance.phase is Phase.DRAINING:
            self._settle(instance, time.monotonic())

    def _settle(self, instance: Instance, now_s: float) -> None:
        """The main process has exited: seal the log when the pipes are at their end and nobody is left.

        Both have until `kill_at_s`. Then the pipes are closed, and who is left is killed, unless it is to be left.
        """
        run = instance.run
        ended = run in self._ended_pipes
        over = instance.kill_at_s is not None and now_s >= instance.kill_at_s
        if not ended and not over:
            return
        alone = instance.abandoned or leftovers.nobody_left(self._trees, instance)
        if not alone and instance.spawn.leave:
            alone = self._abandon(instance, "left running")
        elif not alone and over:
            alone = self._end_leftovers(instance, now_s)
        if over:
            instance.killed = True
            if not ended and not instance.cut_off:
                instance.cut_off = True
                self._pump.drain(run)
        if ended and alone:
            self._seal(instance)
        elif not alone:
            instance.look_s = min(max(_LOOK_S[0], 2 * instance.look_s), _LOOK_S[1])
            self._at(now_s + instance.look_s, run)

    def _end_leftovers(self, instance: Instance, now_s: float) -> bool:
        """Kill who is left; returns True when that has been tried for long enough."""
        if instance.kill_at_s is None or now_s < instance.kill_at_s + _GIVE_UP_S:
            leftovers.kill(self._trees, instance)
            return False
        why = "may not be signalled" if instance.untouchable else "uninterruptible?"
        told = self._abandon(instance, f"still there {_GIVE_UP_S:g} s after SIGKILL ({why})")
        self._log.error(f"{instance.spawn.task} {instance.run}: {instance.remarks[-1]}")
        return told

    def _abandon(self, instance: Instance, how: str) -> bool:
        """The run ends without those who are left; returns True."""
        instance.abandoned = True
        living = list(self._trees.members(instance).values())
        for process in living:
            instance.leftovers.pop((process.pid, process.start), None)
        instance.remarks.append(f"{how}: {leftovers.names(living)}")
        if instance.cgroup is not None:
            self._left.append(instance.cgroup)
            instance.cgroup = None
        return True

    def _on_overflow(self, run: str, _lines: int) -> None:
        instance = self.live.get(run)
        if instance is None:
            return
        if instance.phase is Phase.RUNNING:
            self._pump.note(run, "the log reached log_max_size: stopping")
            self.begin_stop(instance, "overflow", None)
        elif instance.cause is None:  # it printed all that in its last moments
            instance.cause = "overflow"

    def _seal(self, instance: Instance) -> None:
        instance.phase = Phase.SEALING
        instance.kill_at_s = None
        lines = [instance.reason] if instance.reason else []
        if instance.usage is not None and instance.usage.oom_kills:
            lines.append("the kernel killed a process of this run: its memory was used up (limits.memory)")
        if instance.leftovers:
            named = leftovers.names(list(instance.leftovers.values()))
            lines.append(f"killed what outlived the main process: {named}")
        self._pump.seal(instance.run, lines + instance.remarks)

    def _on_sealed(self, run: str, lines: int) -> None:
        reason = self.stillborn.pop(run, None)
        if reason is not None:
            self._exited(
                Exited(run=run, status=None, cause="start_failed", reason=reason, ended_at=_now_ms(), lines=lines)
            )
            return
        instance = self.live.pop(run)
        self._ended_pipes.discard(run)
        io = io_bytes(instance.pid)
        _, status, usage = os.wait4(instance.pid, 0)
        self._trees.mains.discard(instance.pid)
        self._trees.reap_strangers()  # those that this zombie hid
        self._left = [cgroup for cgroup in self._left if not cgroup.remove()]
        user_us, system_us = int(usage.ru_utime * 1e6), int(usage.ru_stime * 1e6)
        if instance.usage is not None and instance.usage.user_us + instance.usage.system_us > user_us + system_us:
            # It counts those, too, for whom nobody waited.
            user_us, system_us = instance.usage.user_us, instance.usage.system_us
        self._exited(
            Exited(
                run=run,
                status=status,
                cause="start_failed" if instance.reason else instance.cause,
                by=instance.by,
                reason=instance.reason,
                started_at=instance.started_at,
                ended_at=instance.ended_at or _now_ms(),
                user_us=user_us,
                system_us=system_us,
                max_rss_bytes=usage.ru_maxrss * 1024,
                read_bytes=io[0] if io else None,
                write_bytes=io[1] if io else None,
                oom_kills=instance.usage.oom_kills if instance.usage is not None else 0,
                lines=lines,
                leftovers=list(instance.leftovers.values()),
            )
        )

    def _exited(self, exited: Exited) -> None:
        self.exits[exited.run] = exited
        self._send({"op": "exited", **vars(exited)})

    # Stopping.

    def stop(self, frame: Frame) -> None:
        """The scheduler wants an instance to end."""
        instance = self.live.get(frame["run"])
        if instance is not None:
            if frame.get("note") is not None and instance.cause is None:
                self._pump.note(instance.run, frame["note"])
            self.begin_stop(instance, frame["cause"], frame.get("by"), force=bool(frame.get("force")))

    def begin_stop(self, instance: Instance, cause: str, by: str | None, *, force: bool = False) -> None:
        """Put an instance on the stop ladder."""
        before = instance.kill_at_s
        stop.begin(self._trees, instance, cause, by, time.monotonic(), force=force)
        if instance.kill_at_s is not None and instance.kill_at_s != before:
            self._at(instance.kill_at_s, instance.run)

    def _at(self, when_s: float, run: str) -> None:
        heapq.heappush(self._timers, (when_s, run))
        if len(self._timers) >= self._sweep_at:  # mostly time-outs of runs that ended long ago
            self._timers = [timer for timer in self._timers if timer[1] in self.live]
            heapq.heapify(self._timers)
            self._sweep_at = max(_MIN_SWEEP, 2 * len(self._timers))

    def run_timers(self, now_s: float) -> None:
        """Take the steps that are due (monotonic seconds)."""
        while self._timers and self._timers[0][0] <= now_s:
            _, run = heapq.heappop(self._timers)
            instance = self.live.get(run)
            if instance is not None:
                self._check_times(instance, now_s)

    def _check_times(self, instance: Instance, now_s: float) -> None:
        if instance.deadline_s is not None and now_s >= instance.deadline_s:
            self._pump.note(instance.run, f"timed out after {instance.spawn.timeout_ms} ms: stopping")
            self.begin_stop(instance, "timeout", None)
        self._ears.tend(instance, now_s)
        if instance.phase is Phase.DRAINING:
            self._settle(instance, now_s)
        elif instance.phase is Phase.RUNNING and stop.due(instance, now_s):
            told = instance.killed
            text = stop.step(self._trees, instance, now_s)
            self._pump.note(instance.run, text)
            if told:
                self._log.error(f"{instance.spawn.task} {instance.run}: {text}")
            if instance.kill_at_s is not None:
                self._at(instance.kill_at_s, instance.run)
