"""The control thread: frames, timers, stop ladders, reaping and the doorbell's subscriptions.

One epoll loop. It never touches a file system or a name service, so nothing on a disk or a network can stop it from
stopping a run.
"""

import collections
import contextlib
import heapq
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from supervisor.doorbell import DoorbellServer
from supervisor.logline import Log
from supervisor.messages import Boot, Exited, Frame, ProtocolError, Spawn
from supervisor.osport import Wakeup
from supervisor.root import leftovers, spawn, stop
from supervisor.root.helpers import Helper
from supervisor.root.instances import Instance, Phase, Registry
from supervisor.root.limits import Descriptors
from supervisor.root.pump import Pump
from supervisor.root.sdnotify import notify

_DRAIN_S = 0.25
"""How long pipes may stay open after the main process has exited, when nobody asked for a stop."""
_BLOCK_BYTES = 65536
_ABANDON_S = 2.0
"""How long after the shutdown deadline the scheduler may take to store the last exits."""
_HELPER_END_S = 3.0

_SHUTDOWN_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_IGNORED_SIGNALS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Control:
    """The root's main loop; :meth:`run` returns when everything has ended."""

    def __init__(
        self,
        boot: Boot,
        log: Log,
        pump: Pump,
        bell: DoorbellServer,
        base_env: dict[str, str],
        helpers: tuple[Helper, Helper],
    ) -> None:
        self._boot = boot
        self._log = log
        self._pump = pump
        self._bell = bell
        self._base_env = base_env
        self._scheduler, self._api = helpers
        self._registry = Registry()
        self._stillborn: dict[str, str] = {}
        self._ended_pipes: set[str] = set()
        self._descriptors = Descriptors()
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[float, str]] = []
        self._notices: collections.deque[tuple[Callable[..., None], str, int]] = collections.deque()
        self._wakeup = Wakeup()
        self._signals, self._signals_end = socket.socketpair()
        self._shutdown_at_s: float | None = None
        self._told_ready = False
        self._scheduler_done = False
        self._operations: dict[str, Callable[[Frame], None]] = {
            "snapshot": self._on_snapshot,
            "spawn": self._on_spawn,
            "stop": self._on_stop,
            "ack": self._on_ack,
            "ready": self._on_ready,
            "ready_to_end": self._on_ready_to_end,
        }

    # The pump's listener; called in the pump thread.

    def at_end(self, run: str) -> None:
        """All pipes of `run` have reached their end."""
        self._notices.append((self._on_pipes_ended, run, 0))
        self._wakeup.set()

    def sealed(self, run: str, lines: int) -> None:
        """The log of `run` is complete."""
        self._notices.append((self._on_sealed, run, lines))
        self._wakeup.set()

    # The loop.

    def run(self) -> None:
        """Until everything has ended after a shutdown signal."""
        self._catch_signals()
        self._watch(self._wakeup.fileno(), self._on_wakeup)
        self._watch(self._signals.fileno(), self._on_signals)
        self._watch(self._bell.listener.fileno(), self._on_bell_connection)
        while not self._over():
            for fd, mask in self._epoll.poll(self._timeout_s()):
                handler = self._handlers.get(fd)
                if handler is not None:
                    handler(mask)
            now_s = time.monotonic()
            self._run_timers(now_s)
            self._start_helpers(now_s)
            self._send_frames()
        self._end_helpers()

    def _catch_signals(self) -> None:
        self._signals.setblocking(False)
        self._signals_end.setblocking(False)
        for number in (*_SHUTDOWN_SIGNALS, *_IGNORED_SIGNALS, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._signals_end.fileno(), warn_on_full_buffer=False)

    def _watch(self, fd: int, handler: Callable[[int], None], mask: int = select.EPOLLIN) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, mask)

    def _unwatch(self, fd: int) -> None:
        del self._handlers[fd]
        self._epoll.unregister(fd)

    def _timeout_s(self) -> float:
        now_s = time.monotonic()
        times = [helper.start_at_s for helper in (self._scheduler, self._api) if helper.start_at_s is not None]
        if self._timers:
            times.append(self._timers[0][0])
        if self._shutdown_at_s is not None:
            times.append(self._shutdown_at_s if now_s < self._shutdown_at_s else self._shutdown_at_s + _ABANDON_S)
        return max(0.0, min(times) - now_s) if times else -1

    def _on_wakeup(self, _mask: int) -> None:
        self._wakeup.clear()
        while self._notices:
            function, run, lines = self._notices.popleft()
            function(run, lines)

    def _on_signals(self, _mask: int) -> None:
        numbers = set(self._signals.recv(4096))
        if signal.SIGCHLD in numbers:
            self._reap_strangers()
        for number in numbers.intersection(_SHUTDOWN_SIGNALS):
            self._shut_down(signal.Signals(number).name)
        for number in numbers.intersection(_IGNORED_SIGNALS):
            self._log.info(f"{signal.Signals(number).name} ignored")

    # Starting.

    def _on_spawn(self, frame: Frame) -> None:
        wanted = Spawn(**frame["spawn"])
        if self._registry.known(wanted.run) or wanted.run in self._stillborn:
            return
        blocks = max(1, wanted.log_max_bytes // _BLOCK_BYTES)
        self._descriptors.reserve(len(self._registry.live) + 1)
        try:
            started = spawn.start(wanted, self._base_env, self._descriptors.restore())
        except (OSError, ValueError) as err:
            # ENOENT: no /bin/sh; E2BIG: arguments or environment too long; EMFILE, EAGAIN, ENOMEM: out of
            # descriptors, processes or memory; ValueError: a NUL byte. The reason stands in the run's own log.
            self._stillborn[wanted.run] = f"cannot be started: {getattr(err, 'strerror', None) or err}"
            self._pump.add(wanted.run, wanted.log, blocks, None, None)
            self._pump.seal(wanted.run, [self._stillborn[wanted.run]])
            return
        now_ms = _now_ms()
        instance = Instance(wanted, started.pid, started.pidfd, now_ms, started.status_fd)
        self._registry.live[wanted.run] = instance
        self._pump.add(wanted.run, wanted.log, blocks, *started.pipes)
        self._watch(started.pidfd, lambda _mask: self._on_exit(instance))
        if wanted.timeout_ms is not None:
            instance.deadline_s = time.monotonic() + wanted.timeout_ms / 1000
            self._at(instance.deadline_s, wanted.run)
        self._scheduler.send({"op": "started", "run": wanted.run, "pid": started.pid, "at": now_ms})

    # Ending: the main process exits, the pipes reach their end, the log is sealed, the process is reaped.

    def _on_exit(self, instance: Instance) -> None:
        self._unwatch(instance.pidfd)
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
        instance = self._registry.live.get(run)
        if instance is None:
            return
        self._ended_pipes.add(run)
        if instance.phase is Phase.DRAINING:
            self._seal(instance)

    def _cut_off(self, instance: Instance) -> None:
        """Something outlived the main process and keeps the pipes open: kill it and take what it wrote."""
        instance.kill_at_s = None
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
        reason = self._stillborn.pop(run, None)
        if reason is not None:
            self._exited(
                Exited(run=run, status=None, cause="start_failed", reason=reason, ended_at=_now_ms(), lines=lines)
            )
            return
        instance = self._registry.live.pop(run)
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
        self._registry.exits[exited.run] = exited
        self._scheduler.send({"op": "exited", **asdict(exited)})

    def _reap_strangers(self) -> None:
        """Reap orphans that became ours; instances and helpers are reaped where their ends are handled.

        The peek shows the oldest zombie first. When that is an instance that is still being drained, strangers
        behind it wait for at most the drain's time: each reaping of an instance is followed by another look.
        """
        ours = {instance.pid for instance in self._registry.live.values()}
        ours.update(helper.pid for helper in (self._scheduler, self._api) if helper.pid is not None)
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:  # ECHILD: no children at all
                return
            if found is None or found.si_pid in ours:
                return
            os.waitpid(found.si_pid, 0)

    # Stopping.

    def _on_stop(self, frame: Frame) -> None:
        instance = self._registry.live.get(frame["run"])
        if instance is not None:
            self._begin_stop(instance, frame["cause"], frame.get("by"), force=bool(frame.get("force")))

    def _begin_stop(self, instance: Instance, cause: str, by: str | None, *, force: bool = False) -> None:
        stop.begin(instance, cause, by, time.monotonic(), force=force)
        if instance.kill_at_s is not None:
            self._at(instance.kill_at_s, instance.run)

    def _at(self, when_s: float, run: str) -> None:
        heapq.heappush(self._timers, (when_s, run))

    def _run_timers(self, now_s: float) -> None:
        while self._timers and self._timers[0][0] <= now_s:
            _, run = heapq.heappop(self._timers)
            instance = self._registry.live.get(run)
            if instance is not None:
                self._check_times(instance, now_s)
        if self._shutdown_at_s is not None and now_s >= self._shutdown_at_s:
            for instance in self._registry.live.values():
                if instance.phase is Phase.RUNNING and not instance.killed:
                    self._begin_stop(instance, "shutdown", None, force=True)

    def _check_times(self, instance: Instance, now_s: float) -> None:
        if instance.deadline_s is not None and now_s >= instance.deadline_s:
            self._pump.note(instance.run, f"timed out after {instance.spawn.timeout_ms} ms: stopping")
            self._begin_stop(instance, "timeout", None)
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

    # The helpers.

    def _start_helpers(self, now_s: float) -> None:
        for helper in (self._scheduler, self._api):
            if helper.start_at_s is None or now_s < helper.start_at_s:
                continue
            try:
                output = helper.start(self._base_env, now_s)
            except OSError as err:  # EMFILE, EAGAIN, ENOMEM: try again, what runs goes on
                self._log.error(f"{helper.name} cannot be started: {err}")
                helper.ended(now_s)
                continue
            self._log.info(f"{helper.name} started, pid {helper.pid}")
            self._pump.add_helper(output)
            self._watch_helper(helper)

    def _watch_helper(self, helper: Helper) -> None:
        if helper.pidfd is None or helper.sock is None:
            return
        self._watch(helper.pidfd, lambda _mask: self._on_helper_exit(helper))
        self._watch(helper.sock.fileno(), lambda mask: self._on_helper_socket(helper, mask))

    def _on_helper_exit(self, helper: Helper) -> None:
        if helper.pid is None or helper.pidfd is None:
            return
        self._unwatch(helper.pidfd)
        if helper.sock is not None:
            self._unwatch(helper.sock.fileno())
        helper.kill()  # gunicorn's workers may be left; the zombie still holds the group's id
        _, status = os.waitpid(helper.pid, 0)
        delay_s = helper.ended(time.monotonic())
        code = os.waitstatus_to_exitcode(status)
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        if self._shutdown_at_s is not None and (helper is self._api or self._scheduler_done):
            helper.start_at_s = None
            return
        self._log.warning(f"{helper.name} ended with {how}; starting it again in {delay_s:g} s")

    def _on_helper_socket(self, helper: Helper, mask: int) -> None:
        if helper.sock is None:
            return
        if mask & (select.EPOLLIN | select.EPOLLHUP):
            try:
                data = helper.sock.recv(262144)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            if not data:
                self._unwatch(helper.sock.fileno())
                helper.hang_up()
                helper.terminate()
                return
            self._on_frames(helper, data)

    def _on_frames(self, helper: Helper, data: bytes) -> None:
        try:
            for frame in helper.decoder.feed(data):
                self._operations[frame["op"]](frame)
        except (ProtocolError, KeyError, TypeError) as err:
            # Another version's frame, or a defect: its next incarnation starts from a fresh snapshot.
            self._log.error(f"{helper.name} sent what cannot be understood ({err!r}); ending it")
            helper.kill()

    def _send_frames(self) -> None:
        """Send what this round of the loop has queued, and watch for room where it did not fit."""
        for helper in (self._scheduler, self._api):
            helper.flush()
            if helper.sock is not None and helper.backlog != helper.watched_backlog:
                helper.watched_backlog = helper.backlog
                mask = select.EPOLLIN | (select.EPOLLOUT if helper.backlog else 0)
                self._epoll.modify(helper.sock.fileno(), mask)

    def _on_snapshot(self, _frame: Frame) -> None:
        instances: list[dict[str, Any]] = [
            {
                "run": instance.run,
                "task": instance.spawn.task,
                "pid": instance.pid,
                "started_at": instance.started_at,
                "cause": instance.cause,
                "by": instance.by,
            }
            for instance in self._registry.live.values()
        ]
        exits = [asdict(exited) for exited in self._registry.exits.values()]
        self._scheduler.send({"op": "snapshot", "instances": instances, "exits": exits})
        if self._shutdown_at_s is not None:
            self._scheduler.send({"op": "shutdown", "hurry": False})

    def _on_ack(self, frame: Frame) -> None:
        self._registry.acknowledge(frame["runs"])

    def _on_ready(self, _frame: Frame) -> None:
        if not self._told_ready:
            self._told_ready = True
            notify("READY=1\nSTATUS=running")

    def _on_ready_to_end(self, _frame: Frame) -> None:
        self._scheduler_done = True

    # The doorbell.

    def _on_bell_connection(self, _mask: int) -> None:
        reader = self._bell.accept()
        if reader is not None:
            fd = reader.fileno()
            self._watch(fd, lambda _mask: self._on_bell_reader(fd))

    def _on_bell_reader(self, fd: int) -> None:
        self._epoll.unregister(fd)
        if self._bell.readable(fd):
            self._epoll.register(fd, select.EPOLLIN)
        else:
            del self._handlers[fd]

    # The end.

    def _shut_down(self, why: str) -> None:
        now_s = time.monotonic()
        if self._shutdown_at_s is not None:
            self._log.info(f"{why} again: killing what still runs")
            self._shutdown_at_s = min(self._shutdown_at_s, now_s)
            return
        self._log.info(f"{why}: shutting down, {len(self._registry.live)} instances run")
        notify("STOPPING=1\nSTATUS=stopping")
        self._shutdown_at_s = now_s + self._boot.shutdown_timeout_ms / 1000
        if self._scheduler.sock is not None:
            self._scheduler.send({"op": "shutdown", "hurry": False})
        else:
            for instance in self._registry.live.values():
                self._begin_stop(instance, "shutdown", None)

    def _over(self) -> bool:
        if self._shutdown_at_s is None or self._registry.live or self._stillborn:
            return False
        abandoned = time.monotonic() >= self._shutdown_at_s + _ABANDON_S
        if abandoned and self._registry.exits:
            self._log.error(f"{len(self._registry.exits)} exits were not stored: they will show as crashed")
        return self._scheduler_done or abandoned

    def _end_helpers(self) -> None:
        self._scheduler.hang_up()
        self._api.terminate()
        self._api.hang_up()
        deadline_s = time.monotonic() + _HELPER_END_S
        for helper in (self._scheduler, self._api):
            if helper.pid is None or helper.pidfd is None:
                continue
            poll = select.poll()
            poll.register(helper.pidfd, select.POLLIN)
            if not poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
                self._log.warning(f"{helper.name} did not end in time: killing it")
            helper.kill()
            os.waitpid(helper.pid, 0)
