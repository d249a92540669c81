"""The control thread: frames, timers, signals, our helpers and the doorbell's subscriptions.

One epoll loop. It never touches a file system or a name service, so nothing on a disk or a network can stop it from
stopping a run.
"""

import os
import select
import signal
import time
from collections.abc import Callable

from supervisor.doorbell import DoorbellServer
from supervisor.logline import Log
from supervisor.messages import Boot, Frame, ProtocolError
from supervisor.root import stop
from supervisor.root.helpers import Helper
from supervisor.root.instances import Phase
from supervisor.root.lives import Lives
from supervisor.root.pump import Pump
from supervisor.root.reloading import Reloading, Terminal
from supervisor.root.sdnotify import notify
from supervisor.root.signals import Signals
from supervisor.root.tree import Trees
from supervisor.root.watch import Watch

_ABANDON_S = 2.0
"""How long after the shutdown deadline the killed may take to end, and the scheduler to store their exits."""
_HELPER_END_S = 3.0
_EX_CANTCREAT = 73

_SHUTDOWN_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_INIT_SHUTDOWN_SIGNALS = (signal.SIGQUIT, signal.SIGPWR, signal.SIGRTMIN + 3)
"""By which container engines and service managers, too, ask a process 1 to end; else they would be lost there."""
_IGNORED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)


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
        self._watch = Watch()
        self._trees = Trees(boot.daemon_id, self._helper_pids)
        runs_env = {name: value for name, value in base_env.items() if name not in boot.private_variables}
        self._lives = Lives(self._watch, pump, log, runs_env, self._scheduler.send, self._trees)
        pump.connect(self._lives)
        self._shutdown_signals = _SHUTDOWN_SIGNALS + (_INIT_SHUTDOWN_SIGNALS if os.getpid() == 1 else ())
        self._terminal = Terminal(2)
        self._reloading = Reloading(self._scheduler.send)
        self.on_settings: Callable[[Boot], None] = lambda _boot: None
        """Called with the boot settings when a reload has changed them."""
        self._shutdown_at_s: float | None = None
        self._told_ready = False
        self._exit_status = 0
        self._scheduler_done = False
        self._operations: dict[str, Callable[[Frame], None]] = {
            "snapshot": self._on_snapshot,
            "spawn": self._lives.spawn,
            "stop": self._lives.stop,
            "ack": self._lives.acknowledge,
            "ready": self._on_ready,
            "ready_to_end": self._on_ready_to_end,
            "reloaded": lambda _frame: self._reloading.end(),
            "settings": self._on_settings,
        }

    def run(self) -> int:
        """Until everything has ended after a shutdown signal; returns the exit status of the daemon."""
        self._lives.use_cgroups(self._boot.cgroups)
        signals = Signals((*self._shutdown_signals, signal.SIGHUP, *_IGNORED_SIGNALS, signal.SIGCHLD))
        self._watch.add(signals.fileno(), lambda _mask: self._on_signals(signals.take()))
        self._watch.add(self._bell.listener.fileno(), self._on_bell_connection)
        while not self._over():
            self._watch.round(self._timeout_s())
            now_s = time.monotonic()
            self._lives.run_timers(now_s)
            self._tend_shutdown(now_s)
            self._tend_helpers(now_s)
            self._send_frames()
        self._end_helpers()
        self._lives.close()
        return self._exit_status

    def _timeout_s(self) -> float:
        now_s = time.monotonic()
        helpers = (self._scheduler, self._api)
        times = [at for helper in helpers for at in (helper.start_at_s, helper.kill_at_s) if at is not None]
        next_s = self._lives.next_s()
        if next_s is not None:
            times.append(next_s)
        if self._shutdown_at_s is not None:
            times.append(self._shutdown_at_s if now_s < self._shutdown_at_s else self._shutdown_at_s + _ABANDON_S)
        return max(0.0, min(times) - now_s) if times else -1

    def _on_signals(self, numbers: set[int]) -> None:
        if signal.SIGCHLD in numbers:
            self._trees.reap_strangers()
        for number in numbers.intersection(self._shutdown_signals):
            self._shut_down(stop.signal_name(number))
        if signal.SIGHUP in numbers:
            if self._terminal.gone:
                self._shut_down("the terminal is gone")
            elif self._shutdown_at_s is None:
                self._reloading.begin()
        for number in numbers.intersection(_IGNORED_SIGNALS):
            self._log.info(f"{signal.Signals(number).name} ignored")

    def _helper_pids(self) -> set[int]:
        return {helper.pid for helper in (self._scheduler, self._api) if helper.pid is not None}

    # The helpers.

    def _tend_helpers(self, now_s: float) -> None:
        for helper in (self._scheduler, self._api):
            if helper.kill_at_s is not None and now_s >= helper.kill_at_s:
                helper.kill_at_s = None
                helper.kill()
            if helper.start_at_s is None or now_s < helper.start_at_s:
                continue
            try:
                output = helper.start(self._base_env, now_s)
            except OSError as err:  # EMFILE, EAGAIN, ENOMEM: try again, what runs goes on
                self._log.error(f"{helper.name} cannot be started: {err}")
                helper.kill()
                helper.ended(now_s)
                continue
            self._log.info(f"{helper.name} started, pid {helper.pid}")
            self._pump.add_helper(output)
            self._watch_helper(helper)

    def _watch_helper(self, helper: Helper) -> None:
        if helper.pidfd is None or helper.sock is None:
            return
        self._watch.add(helper.pidfd, lambda _mask: self._on_helper_exit(helper))
        self._watch.add(helper.sock.fileno(), lambda mask: self._on_helper_socket(helper, mask))

    def _on_helper_exit(self, helper: Helper) -> None:
        if helper.pid is None or helper.pidfd is None:
            return
        self._watch.remove(helper.pidfd)
        if helper.sock is not None:
            self._watch.remove(helper.sock.fileno())
        helper.kill()  # gunicorn's workers may be left; the zombie still holds the group's id
        _, status = os.waitpid(helper.pid, 0)
        self._trees.reap_strangers()  # those that this zombie hid
        delay_s = helper.ended(time.monotonic())
        code = os.waitstatus_to_exitcode(status)
        if helper is self._scheduler and code == _EX_CANTCREAT and not self._told_ready:
            # It said why. What does not even start once is for whoever started us to repair.
            self._exit_status = code
            self._scheduler_done = True
            self._shut_down("the scheduler cannot start")
            self._shutdown_at_s = time.monotonic()
            helper.start_at_s = None
            return
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
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
                self._watch.remove(helper.sock.fileno())
                helper.hang_up()
                helper.kill_at_s = time.monotonic() + _HELPER_END_S
                return
            self._on_frames(helper, data)

    def _on_frames(self, helper: Helper, data: bytes) -> None:
        operations = self._operations if helper is self._scheduler else {}  # the API only listens
        try:
            for frame in helper.decoder.feed(data):
                operations[frame["op"]](frame)
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
                self._watch.writing(helper.sock.fileno(), helper.backlog)

    # What the scheduler says besides instances.

    def _on_snapshot(self, _frame: Frame) -> None:
        ending = self._shutdown_at_s is not None
        self._scheduler.send({**self._lives.snapshot(), "ending": ending})
        if ending:
            self._scheduler.send({"op": "shutdown"})

    def _on_ready(self, _frame: Frame) -> None:
        self._scheduler.at_work = True
        if not self._told_ready:
            self._told_ready = True
            notify("READY=1\nSTATUS=running")
        self._reloading.end()

    def _on_settings(self, frame: Frame) -> None:
        """A reload has changed what was settled before the start."""
        self._boot = Boot.from_dict(frame["boot"])
        for helper in (self._scheduler, self._api):
            helper.boot = self._boot
        self._log.set_level(self._boot.log_level)
        self._lives.use_cgroups(self._boot.cgroups)
        self.on_settings(self._boot)
        if frame["api"] and self._shutdown_at_s is None and self._api.replace(time.monotonic()):
            self._log.info("replacing gunicorn, for other settings")

    def _on_ready_to_end(self, _frame: Frame) -> None:
        self._scheduler_done = True

    # The doorbell.

    def _on_bell_connection(self, _mask: int) -> None:
        reader = self._bell.accept()
        if reader is not None:
            fd = reader.fileno()
            self._watch.add(fd, lambda _mask: self._on_bell_reader(fd))

    def _on_bell_reader(self, fd: int) -> None:
        self._watch.remove(fd)  # reading may close it
        if self._bell.readable(fd):
            self._watch.add(fd, lambda _mask: self._on_bell_reader(fd))

    # The end.

    def _shut_down(self, why: str) -> None:
        now_s = time.monotonic()
        if self._shutdown_at_s is not None:
            self._log.info(f"{why} again: killing what still runs")
            self._shutdown_at_s = min(self._shutdown_at_s, now_s)
            return
        self._log.info(f"{why}: shutting down, {len(self._lives.live)} instances run")
        notify("STOPPING=1\nSTATUS=stopping")
        self._shutdown_at_s = now_s + self._boot.shutdown_timeout_ms / 1000
        self._scheduler.send({"op": "shutdown"})
        if not self._scheduler.at_work:
            for instance in self._lives.live.values():
                self._lives.begin_stop(instance, "shutdown", None)

    def _tend_shutdown(self, now_s: float) -> None:
        """When the time for a clean shutdown is over, kill what still runs."""
        if self._shutdown_at_s is not None and now_s >= self._shutdown_at_s:
            for instance in self._lives.live.values():
                if instance.phase is not Phase.SEALING and not instance.killed:
                    self._lives.begin_stop(instance, "shutdown", None, force=True)

    def _over(self) -> bool:
        if self._shutdown_at_s is None:
            return False
        if time.monotonic() >= self._shutdown_at_s + _ABANDON_S:
            # A process in uninterruptible sleep, a log that no disk takes, a scheduler that cannot store.
            lost = len(self._lives.live) + len(self._lives.exits)
            if lost:
                self._log.error(f"giving up on the ends of {lost} instances: they will show as crashed")
            return True
        return self._scheduler_done and self._lives.over

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
