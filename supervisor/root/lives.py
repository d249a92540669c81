"""The lives of instances: started, pumped, drained, sealed, reaped, reported. Belongs to the control thread."""

import collections
import contextlib
import heapq
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from supervisor.logline import Log
from supervisor.messages import Exited, Frame, Spawn
from supervisor.osport import Wakeup
from supervisor.root import leftovers, spawn, stop
from supervisor.root.instances import Instance, Phase
from supervisor.root.limits import Descriptors
from supervisor.root.pump import Pump
from supervisor.root.watch import Watch

_DRAIN_S = 0.25
"""How long pipes may stay open after the main process has exited, when nobody asked for a stop."""
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
        reap: Callable[[], None],
    ) -> None:
        """`send` takes a frame to the scheduler; `reap` reaps orphans that became ours."""
        self._watch = watch
        self._pump = pump
        self._log = log
        self._base_env = base_env
        self._send = send
        self._reap_strangers = reap
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
            }
            for instance in self.live.values()
        ]
        return {"op": "snapshot", "instances": instances, "exits": [asdict(exited) for exited in self.exits.values()]}

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
        self._descriptors.reserve(len(self.live) + 1)
        try:
            started = spawn.start(wanted, self._base_env, self._descriptors.restore())
        except (OSError, ValueError) as err:
            # ENOENT: no /bin/sh; E2BIG: arguments or environment too long; EMFILE, EAGAIN, ENOMEM: out of
            # descriptors, processes or memory; ValueError: a NUL byte. The reason stands in the run's own log.
            self.stillborn[wanted.run] = f"cannot be started: {getattr(err, 'strerror', None) or err}"
            self._pump.add(wanted, None, None)
            self._pump.seal(wanted.run, [self.stillborn[wanted.run]])
            return
        now_ms = _now_ms()
        instance = Instance(wanted, started.pid, started.pidfd, now_ms, started.status_fd)
        self.live[wanted.run] = instance
        self._pump.add(wanted, *started.pipes)
        self._watch.add(started.pidfd, lambda _mask: self._on_exit(instance))
        if wanted.timeout_ms is not None:
            instance.deadline_s = time.monotonic() + wanted.timeout_ms / 1000
            self._at(instance.deadline_s, wanted.run)
        self._send({"op": "started", "run": wanted.run, "pid": started.pid, "at": now_ms})

    # Ending: the main process exits, the pipes reach their end, the log is sealed, the process is reaped.

    def _on_exit(self, instance: Instance) -> None:
        self._watch.remove(instance.pidfd)
        os.close(instance.pidfd)
        instance.ended_at = _now_ms()
        instance.phase = Phase.DRAINING
        instance.deadline_s = None
        if instance.status_fd is not None:
            with contextlib.suppress(BlockingIOError):  # EAGAIN: something of the command's holds it; it did start
                word = os.read(instance.status_fd, 64).decode(errors="replace").strip()
                instance.reason = spawn.explain(instance.spawn, word) if word else None
            os.close(instance.status_fd)
            instance.status_fd = None
        if instance.run in self._ended_pipes:
            self._seal(instance)
        else:
            # A stop gives the whole tree its grace, not only the main process.
            graceful = instance.cause is not None and not instance.killed
            if not graceful or instance.kill_at_s is None:
                instance.kill_at_s = time.monotonic() + _DRAIN_S
                instance.killed = False
            self._at(instance.kill_at_s, instance.run)

    def _on_pipes_ended(self, run: str, _lines: int) -> None:
        instance = self.live.get(run)
        if instance is None:
            return
        self._ended_pipes.add(run)
        if instance.phase is Phase.DRAINING:
            self._seal(instance)

    def _on_overflow(self, run: str, _lines: int) -> None:
        instance = self.live.get(run)
        if instance is None:
            return
        if instance.phase is Phase.RUNNING:
            self._pump.note(run, "the log reached log_max_size: stopping")
            self.begin_stop(instance, "overflow", None)
        elif instance.cause is None:  # it printed all that in its last moments
            instance.cause = "overflow"

    def _cut_off(self, instance: Instance) -> None:
        """Something outlived the main process and keeps the pipes open: kill it and take what it wrote."""
        instance.kill_at_s = None
        instance.killed = True
        instance.leftovers += leftovers.members(instance.pid)
        stop.signal_group(instance, signal.SIGKILL)
        self._pump.drain(instance.run)

    def _seal(self, instance: Instance) -> None:
        instance.phase = Phase.SEALING
        instance.kill_at_s = None
        stop.signal_group(instance, signal.SIGKILL)  # what is left closed its pipes and would stay unseen
        lines = [instance.reason] if instance.reason else []
        if instance.leftovers:
            lines.append(f"killed what outlived the main process: {', '.join(instance.leftovers)}")
        self._pump.seal(instance.run, lines)

    def _on_sealed(self, run: str, lines: int) -> None:
        reason = self.stillborn.pop(run, None)
        if reason is not None:
            self._exited(
                Exited(run=run, status=None, cause="start_failed", reason=reason, ended_at=_now_ms(), lines=lines)
            )
            return
        instance = self.live.pop(run)
        self._ended_pipes.discard(run)
        _, status, usage = os.wait4(instance.pid, 0)
        self._reap_strangers()  # those that this zombie hid
        self._exited(
            Exited(
                run=run,
                status=status,
                cause="start_failed" if instance.reason else instance.cause,
                by=instance.by,
                reason=instance.reason,
                started_at=instance.started_at,
                ended_at=instance.ended_at or _now_ms(),
                user_us=int(usage.ru_utime * 1e6),
                system_us=int(usage.ru_stime * 1e6),
                max_rss_bytes=usage.ru_maxrss * 1024,
                lines=lines,
                leftovers=instance.leftovers,
            )
        )

    def _exited(self, exited: Exited) -> None:
        self.exits[exited.run] = exited
        self._send({"op": "exited", **asdict(exited)})

    # Stopping.

    def stop(self, frame: Frame) -> None:
        """The scheduler wants an instance to end."""
        instance = self.live.get(frame["run"])
        if instance is not None:
            self.begin_stop(instance, frame["cause"], frame.get("by"), force=bool(frame.get("force")))

    def begin_stop(self, instance: Instance, cause: str, by: str | None, *, force: bool = False) -> None:
        """Put an instance on the stop ladder."""
        before = instance.kill_at_s
        stop.begin(instance, cause, by, time.monotonic(), force=force)
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
        if not stop.due(instance, now_s):
            return
        if instance.phase is Phase.DRAINING:
            self._cut_off(instance)
        elif instance.phase is Phase.RUNNING:
            if not instance.killed:
                self._pump.note(instance.run, "did not end in time: sending SIGKILL")
            warning = stop.step(instance, now_s)
            if warning:
                self._log.error(warning)
        if instance.kill_at_s is not None:
            self._at(instance.kill_at_s, instance.run)
