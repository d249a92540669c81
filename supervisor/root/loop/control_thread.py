"""The control thread: messages, timers, signals, helpers and subscriptions to the doorbell, in one epoll loop.

It uses only file systems without a disk (shared memory, proc, cgroups) and no name service. So no disk and no network
can keep it from stopping a run.
"""

import errno
import functools
import mmap
import os
import select
import signal
from collections.abc import Callable
from dataclasses import replace

from supervisor.host.pidfds import has_ended
from supervisor.host.shortage import REST_S, SHORTAGES, is_shortage, reason_of, take_all
from supervisor.host.signal_sets import signal_name
from supervisor.ipc.doorbell import DoorbellServer
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings, Message, ProtocolError
from supervisor.ipc.plural import counted
from supervisor.root.handover.fd_store import DescriptorStore
from supervisor.root.handover.inherited_state import InheritedState
from supervisor.root.handover.quiesce import Quiesce
from supervisor.root.handover.run_records import RunRecords
from supervisor.root.handover.run_recovery import recover_stored
from supervisor.root.handover.state_schema import HeldSocketState, KeptDescriptors, RootState
from supervisor.root.handover.table import KeptDescriptorList
from supervisor.root.handover.upgrade import Upgrade
from supervisor.root.helper_processes import Helper
from supervisor.root.loop.epoll_watch import EpollWatch
from supervisor.root.loop.signals import IgnoredSignals, SignalRoles, Signals
from supervisor.root.output.pump_thread import Pump
from supervisor.root.output.runtime_directory_monitor import RuntimeDirectoryMonitor
from supervisor.root.process.process_manager import ProcessManager
from supervisor.root.process.process_tree import ProcessTrees
from supervisor.root.process.stop_ladder import ShutdownProgress
from supervisor.root.service_manager.reload_signal import ReloadSignal, Terminal
from supervisor.root.service_manager.sd_notify import Watchdog, notify, tell_descriptor
from supervisor.root.spawn.socket_holder import SocketHolder

_HELPER_END_S = 3.0
_EX_LEFT = 1
"""A process could not be killed, or an exit could not be stored."""
_EX_CANTCREAT = 73
_READ_BYTES = 8192
"""How much is read from a helper in one round: about a dozen requests to start a run."""
_QUIET_S = 60.0
"""The least time between two log lines about shortages."""


class ControlThread:
    """The root's main loop; :meth:`run` returns when everything has ended."""

    def __init__(
        self,
        settings: DaemonSettings,
        log: Log,
        pump: Pump,
        bell: DoorbellServer,
        base_env: dict[str, str],
        helpers: tuple[Helper, Helper],
    ) -> None:
        self._settings = settings
        self._log = log
        self._pump = pump
        self._bell = bell
        self._base_env = base_env
        self._scheduler, self._api = helpers
        self._clock = pump.clock
        self._watch = EpollWatch(self._clock)
        self._trees = ProcessTrees(settings.daemon_id, self._helper_pids, log.warning, self._clock)
        runs_env = {name: value for name, value in base_env.items() if name not in settings.private_variables}
        is_init = os.getpid() == 1
        # If process 1 ends, the kernel kills all other processes, so there is nothing to recover.
        self._store = DescriptorStore("" if is_init else os.environ.get("NOTIFY_SOCKET", ""), self._clock)
        self._watchdog = Watchdog(os.environ, self._clock.monotonic_s())
        self._records = RunRecords(settings, self._store, log)
        self._processes = ProcessManager(
            settings.daemon_id, self._watch, pump, log, runs_env, self._scheduler.send, self._trees, self._records
        )
        self._sockets = self._processes.starts.sockets = SocketHolder(self._store)
        pump.connect(self._processes.pump_reports)
        self._roles = SignalRoles.of_init() if is_init else SignalRoles.of_daemon()
        self._ignored = IgnoredSignals(log.info)
        self._terminal = Terminal(2)
        self.reloading = ReloadSignal(self._scheduler.send, self._clock)
        self._ending: ShutdownProgress | None = None
        """The shutdown, once it has begun."""
        self._ready_reported = False
        self._exit_status = 0
        self._scheduler_done = False
        self._short: OSError | MemoryError | None = None
        """The shortage that interrupted the previous round."""
        self._quiet_until_s = 0.0
        """Monotonic time until which shortages are not logged again."""
        self._signals: Signals | None = None
        self._caught: set[int] = set()
        """Signals that the previous root had caught but not handled."""
        self._upgrade_requested = False
        """Whether the scheduler requested the upgrade and must be told if it is refused."""
        self.kept = KeptDescriptors([], [])
        """Descriptors that are only kept for the next root."""
        self.ready_fd: int | None = None
        """Receives the report of readiness, in addition to the service manager's socket."""
        quiesce = Quiesce(self._watch, pump, pump.files)
        self._upgrade = Upgrade(self._watch, log, settings.runtime_dir, base_env, quiesce, self)
        self._runtime_dir_quiesce = Quiesce(self._watch, pump, pump.files)
        self._runtime_directory = RuntimeDirectoryMonitor(
            settings, log, pump, self._runtime_dir_quiesce, self._api.listeners, self
        )
        self._received = memoryview(mmap.mmap(-1, _READ_BYTES))
        """Allocated in advance, so that messages can be read when memory is short."""
        self._snapshot_for: int | None = None
        """The epoch of the scheduler that waits for a snapshot; None: none waits."""
        self._operations = self._operations_of_the_scheduler()

    @property
    def settings(self) -> DaemonSettings:
        """Return the present settings."""
        return self._settings

    def run(self) -> int:
        """Run until everything has ended after a shutdown signal; return the exit status of the daemon."""
        self._processes.use_cgroups(self._settings.cgroups)
        self._signals = Signals(self._roles.caught)
        self._watch.add(self._signals.fileno(), lambda _mask: self._take_signals())
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if self._upgrade.predecessor is None:
            self._upgrade.introduce()
        self._on_signals(self._caught)
        self._watch.add(self._bell.listener.fileno(), self._on_bell_connection)
        while not self._is_over():
            self.round()
        for step in (self._end_helpers, self._processes.close, self._sockets.close, self._store.close):
            self._attempt(step)
        return self._exit_status

    def round(self) -> None:
        """Wait for work and do it, then pause if a shortage has interrupted it."""
        self._attempt(self._wait_and_act)

    def _attempt(self, step: Callable[[], None]) -> None:
        """Take a step. A shortage interrupts only this step, and the next round completes it."""
        try:
            step()
        except SHORTAGES as err:
            if not is_shortage(err):
                raise
            self._short = err.with_traceback(None)  # a traceback would keep memory in use
        if self._short is not None:
            self._clock.sleep(REST_S)

    def _wait_and_act(self) -> None:
        ready = self._watch.wait(self._due_s())
        self._pump.wakeup.hold()
        # Signals come first, because a shutdown signal that was sent to all processes may have ended runs too.
        events = (self._take_signals, functools.partial(self._watch.call, ready))
        take_all((*events, self._pump.wakeup.release, self._recover_from_shortage))
        now_s = self._clock.monotonic_s()
        timed = (self._watchdog, self._store, self._upgrade, self._runtime_dir_quiesce)
        steps = (
            self._processes.run_timers,
            *(component.tick for component in timed),
            self._check_shutdown,
            self._check_helpers,
        )
        take_all(
            (
                *(functools.partial(step, now_s) for step in steps),
                functools.partial(self._check_runtime_directory, now_s),
                self._answer_snapshot,
                self._send_messages,
            )
        )

    def _check_runtime_directory(self, now_s: float) -> None:
        if self._ending is None and not self._upgrade.under_way:
            self._runtime_directory.tick(now_s, scheduler_works=self._scheduler.at_work)

    def _recover_from_shortage(self) -> None:
        """Complete the work that a shortage has interrupted in the previous round."""
        err, self._short = self._short, None
        if err is None:
            return
        if isinstance(err, MemoryError):
            # Messages may be lost in both directions. The next scheduler starts from a complete snapshot.
            self._scheduler.kill()
        now_s = self._clock.monotonic_s()
        if now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + _QUIET_S
            self._log.error(f"{reason_of(err)}: retrying the failed call; active runs continue")
        self._processes.ran_short(err)
        self._processes.check_all_again()
        for helper in (self._scheduler, self._api):
            self._watch_helper(helper)

    def _due_s(self) -> float | None:
        """Return when the next round is due (monotonic seconds); None: at the next event."""
        if self._short is not None:
            return 0.0
        helpers = (self._scheduler, self._api)
        times = [at for helper in helpers for at in (helper.start_at_s, helper.kill_at_s) if at is not None]
        due = (self._processes.next_s(), self._upgrade.due_s(), self._store.due_s, self._watchdog.due_s)
        if self._ending is None and not self._upgrade.under_way:
            times.append(self._runtime_directory.due_s)
        times += [at for at in (*due, self._runtime_dir_quiesce.due_s) if at is not None]
        if self._ending is not None:
            times.append(self._ending.due_s(self._clock.monotonic_s()))
        return min(times, default=None)

    def _take_signals(self) -> None:
        if self._signals is not None:
            self._on_signals(self._signals.take())

    def _on_signals(self, numbers: set[int]) -> None:
        if signal.SIGCHLD in numbers:
            self._trees.reap_soon()
        self._processes.shutdown_signals |= numbers & (self._roles.shutdown | self._roles.immediate_shutdown)
        for number in numbers & self._roles.shutdown:
            self._shut_down(signal_name(number))
        for number in numbers & self._roles.immediate_shutdown:
            self._shut_down(signal_name(number), at_once=True)
        if signal.SIGHUP in numbers:
            if self._terminal.has_hung_up:
                self._shut_down("the terminal was closed")
            elif self._ending is None:
                self.reloading.request_reload()
        if signal.SIGUSR2 in numbers:
            ready = (
                self._ready_reported and self._upgrade.predecessor is None
            )  # otherwise the last upgrade is unfinished
            self._upgrade.request(ready=ready, ending=self._ending is not None)
        self._ignored.note(numbers & self._roles.ignored, self._clock.monotonic_s())

    def _helper_pids(self) -> set[int]:
        pids = (self._scheduler.pid, self._api.pid, self._upgrade.trial_pid, *self._processes.starts.prefork.pids)
        return {pid for pid in pids if pid is not None}

    # The helpers.

    def _check_helpers(self, now_s: float) -> None:
        for helper in (self._scheduler, self._api):
            if helper.kill_at_s is not None and now_s >= helper.kill_at_s:
                helper.kill_at_s = None
                helper.kill()
            if helper.start_at_s is not None and now_s >= helper.start_at_s:
                try:
                    helper.start(self._base_env, now_s)
                except OSError as err:  # EMFILE, EAGAIN, ENOMEM: try again; active runs continue
                    self._log.error(f"cannot start {helper.name}: {err}")
                    helper.kill()
                    helper.ended(now_s)
            output = helper.take_output()
            if output is not None:
                self._log.info(f"{helper.name} started, pid {helper.pid}")
                self._pump.add_helper(output)
                self._watch_helper(helper)

    def _watch_helper(self, helper: Helper) -> None:
        """Watch the pidfd and the socket of a helper, unless they are watched already."""
        if helper.pidfd is not None and helper.pidfd not in self._watch:
            self._watch.add(helper.pidfd, lambda _mask: self._on_helper_exit(helper))
        if helper.sock is not None and helper.sock.fileno() not in self._watch:
            self._watch.add(helper.sock.fileno(), lambda mask: self._on_helper_socket(helper, mask))

    def _on_helper_exit(self, helper: Helper) -> None:
        if helper.pid is None or helper.pidfd is None or helper.has_unread_messages:
            return  # read its last messages first; the pidfd stays readable
        helper.kill()  # gunicorn's workers may be alive; the zombie keeps the process group from being reused
        _, status = os.waitpid(helper.pid, 0)
        self._watch.remove(helper.pidfd)
        if helper.sock is not None:
            self._watch.remove(helper.sock.fileno())
        self._trees.reap_soon()  # its children may have become ours
        say = self._log.info if helper.replaced else self._log.warning
        delay_s = helper.ended(self._clock.monotonic_s())
        code = os.waitstatus_to_exitcode(status)
        if helper is self._scheduler and code == _EX_CANTCREAT and not self._ready_reported:
            # The scheduler has logged the reason. Restarting it would not help, so the daemon ends.
            self._exit_status = code
            self._scheduler_done = True
            self._shut_down("the scheduler cannot start", at_once=True)
            helper.start_at_s = None
            return
        if helper is self._scheduler and self._upgrade.scheduler_retires:
            helper.start_at_s = None
            self._upgrade.scheduler_retired()
            return
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        if self._ending is not None and (helper is self._api or self._scheduler_done):
            helper.start_at_s = None
            return
        say(f"{helper.name} exited with {how}; restarting it in {delay_s:g} s")

    def _on_helper_socket(self, helper: Helper, mask: int) -> None:
        if helper.sock is None:
            return
        if mask & (select.EPOLLIN | select.EPOLLHUP):
            try:
                count = helper.receive(self._received, may_send_fds=helper is self._scheduler)
            except BlockingIOError:
                return
            except ConnectionResetError:
                count = 0
            except OSError:  # EMFILE: a descriptor is lost, and the messages with it
                helper.kill()
                raise
            if not count:
                self._watch.remove(helper.sock.fileno())
                helper.hang_up()
                helper.kill_at_s = self._clock.monotonic_s() + _HELPER_END_S
                return
            self._on_messages(helper, self._received[:count])

    def _on_messages(self, helper: Helper, data: memoryview) -> None:
        operations = self._operations if helper is self._scheduler else {}  # the API server sends no messages
        if self._ending is not None and helper is self._scheduler:
            self._ending.note_message(self._clock.monotonic_s())
        try:
            for message in helper.decoder.feed(data):
                operations[message["op"]](message)
        except (ProtocolError, KeyError, TypeError) as err:
            # A message of another version, or a bug. The next process of this kind starts from a complete snapshot.
            self._log.error(f"{helper.name} sent an invalid message ({err!r}); stopping it")
            helper.kill()
        except SHORTAGES:  # its remaining messages are lost as well
            helper.kill()
            raise

    def _send_messages(self) -> None:
        """Send the messages of this round, and watch a full socket until it has room."""
        for helper in (self._scheduler, self._api):
            helper.flush()
            if helper.sock is not None and helper.backlog != helper.watched_backlog:
                helper.watched_backlog = helper.backlog
                self._watch.writing(helper.sock.fileno(), helper.backlog)

    # Messages of the scheduler.

    def _operations_of_the_scheduler(self) -> dict[str, Callable[[Message], None]]:
        return {
            "snapshot": self._on_snapshot,
            "prepare": self._processes.prepare,
            "spawn": self._processes.spawn,
            "stop": self._processes.stop,
            "note": self._processes.note,
            "hold": self._on_hold,
            "release": lambda message: self._sockets.release(message["service"], message["name"]),
            "ack": self._processes.acknowledge,
            "ready": self._on_ready,
            "ready_to_end": self._on_ready_to_end,
            "reloaded": lambda _message: self.reloading.reloaded(),
            "settings": self._on_settings,
            "upgrade": self._on_upgrade,
        }

    def _on_hold(self, message: Message) -> None:
        if not self._scheduler.received_fds:
            raise ProtocolError("a socket is missing")
        fd = self._scheduler.received_fds.pop(0)
        self._sockets.hold(HeldSocketState(message["service"], message["name"], message["identity"], fd))

    def _on_snapshot(self, _message: Message) -> None:
        self._snapshot_for = self._scheduler.epoch

    def _answer_snapshot(self) -> None:
        """Send the snapshot once no start is in progress: it has running and ended processes, nothing between."""
        if self._snapshot_for != self._scheduler.epoch or self._processes.starts.under_way:
            return
        self._snapshot_for = None
        self._processes.expect_starts()
        ending = self._ending is not None
        self._scheduler.send({**self._processes.snapshot(), "ending": ending, "sockets": self._sockets.listed()})
        if self._processes.memory.released:
            self._scheduler.send({"op": "memory", "short": True})
        self._pump.report_logs_again()
        if ending:
            self._scheduler.send({"op": "shutdown"})

    def _on_ready(self, _message: Message) -> None:
        self._scheduler.at_work = self._scheduler.has_worked = True
        if not self._ready_reported:
            self._ready_reported = True
            notify("READY=1\nSTATUS=running")
            if self.ready_fd is not None:
                tell_descriptor(self.ready_fd)
        self.reloading.scheduler_started()
        if self._upgrade.predecessor is not None:
            self._api.replace(self._clock.monotonic_s())
        self._upgrade.ready()

    def _on_settings(self, message: Message) -> None:
        """Apply settings that a reload has changed."""
        desired = DaemonSettings.from_dict(message["boot"])
        # The scheduler may have sent this before it learned that the runtime directory has moved.
        self._set_settings(
            replace(desired, runtime_dir=self._settings.runtime_dir, runtime_bases=self._settings.runtime_bases)
        )
        self._log.set_level(self._settings.log_level)
        self._processes.use_cgroups(self._settings.cgroups)
        self._pump.files.disk_space.configure(self._settings)
        if message["api"] and self._ending is None and self._api.replace(self._clock.monotonic_s()):
            self._log.info("restarting gunicorn with new settings")

    def _set_settings(self, settings: DaemonSettings) -> None:
        self._settings = settings
        for helper in (self._scheduler, self._api):
            helper.settings = settings

    def _on_ready_to_end(self, _message: Message) -> None:
        self._scheduler_done = True

    # Upgrades.

    def _on_upgrade(self, _message: Message) -> None:
        """Begin an upgrade, because the scheduler's version differs from ours."""
        self._upgrade_requested = True
        self._upgrade.request(ready=True, ending=self._ending is not None)

    def refuse_upgrade(self, why: str) -> None:
        """Report to the scheduler why the upgrade was refused, if it requested one."""
        if self._upgrade_requested:
            self._upgrade_requested = False
            self._scheduler.send({"op": "upgrade_refused", "why": why})

    def retire_scheduler(self) -> None:
        """Ask the scheduler to exit before the next root takes over."""
        if not self._scheduler.retire(self._clock.monotonic_s()):
            self._upgrade.scheduler_retired()

    def restart_scheduler(self) -> None:
        """Start a scheduler again after a refused upgrade."""
        if self._scheduler.pid is None:
            self._scheduler.start_at_s = self._clock.monotonic_s()

    def is_starting(self) -> bool:
        """Return whether a run is being started."""
        return bool(self._processes.starts.under_way)

    def caught_signals(self) -> set[int]:
        """Return the signals that were caught but not handled yet."""
        return set() if self._signals is None else self._signals.caught

    def dump(self, keep: KeptDescriptorList) -> RootState:
        """Return the state for the next root, while the threads wait."""
        while self._pump.catch_up() | self._processes.pump_reports.catch_up():
            pass
        lives, pump = self._processes.dump(keep), self._pump.dump(keep)
        logs = {log.name: log for log in pump.logs}
        runs = self._processes.runs(logs, keep)
        for fd in (*self.kept.lock, *self.kept.listeners):
            keep(fd)
        return RootState(
            boot=self._settings,
            number=self._upgrade.number,
            told_ready=self._ready_reported,
            terminal=self._terminal.ends_us,
            reload=self.reloading.pending,
            kept=self.kept,
            scheduler=self._scheduler.dump(keep),
            api=self._api.dump(keep),
            runs=runs,
            lives=lives,
            store=self._store.dump(keep),
            sockets=self._sockets.dump(keep),
            pump=replace(pump, logs=list(logs.values())),
        )

    def load(self, inherited_state: InheritedState) -> None:
        """Take over from the previous root in an upgrade, before :meth:`run`."""
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # drops requests that arrived during the upgrade
        state = inherited_state.state
        self._caught = {signal.SIGCHLD, *state.signals}
        self._ready_reported = self._scheduler.has_worked = state.told_ready
        self._terminal.ends_us = state.terminal
        self.reloading.resume(pending=state.reload)
        self._upgrade.number, self._upgrade.predecessor = state.number, state.version
        logs = [
            *(run.log for run in inherited_state.runs if run.log is not None),
            *(log for log, _ in inherited_state.logs),
        ]
        self._pump.load(logs, inherited_state.daemon, state.pump)
        self._processes.load(state.lives)
        for run in inherited_state.runs:
            self._processes.adopt(run)
        for log, stalled_at_s in inherited_state.logs:
            self._pump.adopt(log, stalled_at_s)
        self._store.load(state.store)
        self._sockets.load(state.sockets)
        for log in logs:
            if log.writer.masking:
                log.record = self._records.record_of(log.name)
        for helper, helper_state in ((self._scheduler, state.scheduler), (self._api, state.api)):
            helper.load(helper_state)
            self._watch_helper(helper)

    def adopt(self, stored: dict[str, list[int]]) -> None:
        """Recover the runs and sockets of a killed root from its stored descriptors, before :meth:`run`."""
        stored = self._sockets.adopt(stored)
        self._processes.reserve_descriptors(len(stored))
        recovered, refused = recover_stored(stored, self._settings, self._log)
        for recovered_run in recovered:
            self._processes.adopt(recovered_run)
        for run in refused:
            self._store.forget(run)
        if recovered:
            self._log.info(f"continuing {counted(len(recovered), 'run')} of a killed supervisor")

    # The doorbell.

    def _on_bell_connection(self, _mask: int) -> None:
        reader = self._bell.accept()
        if reader is None and self._bell.listener.stuck:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))  # it stays readable, so pause
        if reader is not None:
            fd = reader.fileno()
            self._watch.add(fd, lambda _mask: self._on_bell_reader(fd))

    def _on_bell_reader(self, fd: int) -> None:
        self._watch.remove(fd)  # reading may close it
        goes_on = True
        try:
            goes_on = self._bell.readable(fd, self._clock.monotonic_s())
        finally:
            if goes_on:
                self._watch.add(fd, lambda _mask: self._on_bell_reader(fd))

    # The runtime directory.

    def listen_again(self) -> None:
        """Make the doorbell listen on a new socket."""
        self._watch.remove(self._bell.listener.fileno())
        try:
            self._bell.listen_again(self._settings.root_bell)
        finally:
            self._watch.add(self._bell.listener.fileno(), self._on_bell_connection)

    def on_runtime_directory_moved(self, settings: DaemonSettings) -> None:
        """Use another runtime directory."""
        self._set_settings(settings)
        self._pump.move(settings.runtime_dir)
        self._upgrade.move(settings.runtime_dir)

    def on_runtime_directory_restored(self, anew: bool) -> None:
        """Restart the helpers, which hold removed files. A new directory also gets the records of all runs."""
        data_lock, runtime_lock = self.kept.lock
        if self._runtime_directory.new_lock is not None:
            os.close(runtime_lock)
            runtime_lock, self._runtime_directory.new_lock = self._runtime_directory.new_lock, None
        self.kept = KeptDescriptors([data_lock, runtime_lock], [listener.fileno() for listener in self._api.listeners])
        if anew:
            self._processes.record_again(self._settings)
        self._upgrade.introduce()
        now_s = self._clock.monotonic_s()
        self._api.replace(now_s)
        if self._scheduler.retire(now_s):
            self._log.info("restarting scheduler and gunicorn")
        else:  # it has exited because the directory was missing
            self._scheduler.start_at_s = now_s

    # The end.

    def _shut_down(self, why: str, *, at_once: bool = False) -> None:
        """Begin the shutdown. With `at_once`, or if it has begun already, kill the remaining runs."""
        now_s = self._clock.monotonic_s()
        if self._ending is not None:
            self._log.info(f"{why} again: killing all remaining runs")
            self._ending.kill_remaining(now_s)
            return
        self._upgrade.cancel("the daemon is shutting down")
        self._log.info(f"{why}: shutting down with {counted(len(self._processes.live), 'active run')}")
        managed = "NOTIFY_SOCKET" in os.environ
        self._ending = ShutdownProgress(
            now_s, self._settings.shutdown_timeout_ms / 1000, managed=managed, at_once=at_once
        )
        notify(f"STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC={self._ending.patience_us(now_s)}")
        self._scheduler.send({"op": "shutdown"})
        if not self._scheduler.at_work:
            self._processes.stop_all("shutdown")

    def _check_shutdown(self, now_s: float) -> None:
        """Stop the runs that the scheduler has not stopped. Kill the remaining runs when the time is up."""
        ending = self._ending
        if ending is None:
            return
        if ending.ask_at_s is not None and now_s >= ending.ask_at_s:
            ending.ask_at_s = None
            self._processes.stop_all("shutdown")
        if now_s >= ending.kill_at_s:
            self._processes.kill_all("shutdown")
        ending.note_live(now_s, len(self._processes.live))
        extension_us = ending.extension_us(now_s)
        if extension_us is not None:
            notify(f"EXTEND_TIMEOUT_USEC={extension_us}")

    def _is_over(self) -> bool:
        if self._ending is None:
            return False
        if self._scheduler_done and self._processes.is_idle:
            return True
        if self._clock.monotonic_s() < self._ending.give_up_at_s:
            return False
        # A process is in uninterruptible sleep, a log cannot be written, or the scheduler cannot store exits.
        self._exit_status = self._exit_status or _EX_LEFT
        lost = len(self._processes.live) + len(self._processes.exits)
        if lost:
            self._log.error(f"gave up waiting for {counted(lost, 'run')}: each will show as crashed")
        else:
            self._log.error("gave up waiting for the scheduler: some of its changes are not stored")
        return True

    def _end_helpers(self) -> None:
        """End the API server, then the scheduler, which stores audit entries until the API server's last request.

        If exits could not be stored, the time is used up and both are killed at once.
        """
        for helper, ask in ((self._api, self._api.terminate), (self._scheduler, self._scheduler.hang_up)):
            ask()
            if helper.pid is None or helper.pidfd is None:
                continue
            if self._exit_status != _EX_LEFT and not has_ended(helper.pidfd, _HELPER_END_S):
                self._log.warning(f"{helper.name} did not exit in time: killing it")
            helper.kill()
            if not has_ended(helper.pidfd, _HELPER_END_S):
                self._log.error(f"{helper.name} is still there after SIGKILL (uninterruptible?)")
            os.waitpid(helper.pid, os.WNOHANG)
