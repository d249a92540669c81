"""Upgrades: the root executes the installed version in the same process, which keeps its descriptors and children.

::

    SIGUSR2 --> threads wait, table is written --> threads continue, the new version is tested --fails--> as before
                                                                     | works
    as before <--execve fails-- threads wait, table is written <-- the scheduler exits

The root asks the scheduler to exit and reads its last messages. Once the final table is written, only the control
thread runs, and all signals are blocked. All that runs notice is that their pipes may be full for some milliseconds.
"""

import contextlib
import enum
import json
import os
import select
import signal
import stat
import sys
from collections.abc import Callable
from typing import Protocol

from supervisor.host.files import DAMAGED, exposed, replace_file
from supervisor.host.shortage import reason_of
from supervisor.host.signal_sets import CATCHABLE
from supervisor.installation import installation_hash
from supervisor.ipc.child_process import RINGWARD
from supervisor.ipc.log_line import Log
from supervisor.root.handover.quiesce import Quiesce
from supervisor.root.handover.state_schema import RootState
from supervisor.root.handover.table import KeptDescriptorList, write
from supervisor.root.loop.epoll_watch import EpollWatch
from supervisor.root.service_manager.reload_signal import ReloadSignal
from supervisor.version import VERSION

LIMIT_S = 60.0
_MAX_OUTPUT = 65536
_MAX_WHY = 500


class Trial:
    """A test of the installed version, before this root changes anything.

    A child process executes ``python -m ringward root --check FD``. It loads the whole table and the modules of all
    processes, then exits. If it fails, the last line of its output is the reason.

    Args:
        watch: The control thread's epoll object.
        python: The interpreter of the version.
        env: The environment of the child process.
        table: A descriptor of the table, which is closed here.
        keep: The descriptors that the table refers to.
        then: Called with None if the version works, otherwise with the reason.

    Raises:
        OSError: the child process cannot be started.
    """

    def __init__(
        self,
        watch: EpollWatch,
        python: str,
        env: dict[str, str],
        table: int,
        keep: set[int],
        then: Callable[[str | None], None],
    ) -> None:
        self._watch = watch
        self._then = then
        self._output = b""
        self.due_s = self._watch.clock.monotonic_s() + LIMIT_S
        """Monotonic time at which :meth:`end` is called if there is no answer."""
        self._reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self.pid = os.posix_spawn(
                python,
                [python, *RINGWARD, "root", "--check", str(table)],
                env,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, writing, 1),
                    (os.POSIX_SPAWN_DUP2, writing, 2),
                    *((os.POSIX_SPAWN_DUP2, fd, fd) for fd in sorted({table, *keep})),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=CATCHABLE,
            )
        except OSError:
            os.close(self._reading)
            raise
        finally:
            os.close(table)
            os.close(writing)
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError:
            os.killpg(self.pid, signal.SIGKILL)
            os.close(self._reading)
            raise
        watch.add(self._pidfd, lambda _mask: self._ended())
        watch.add(self._reading, lambda _mask: self._read())

    def _read(self) -> None:
        try:
            data = os.read(self._reading, _MAX_OUTPUT)
        except BlockingIOError:
            return
        self._output = (self._output + data)[-_MAX_OUTPUT:]
        if not data:
            self._watch.remove(self._reading)
            os.close(self._reading)
            self._reading = -1

    def _ended(self) -> None:
        self._stop_watching()
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if status == 0:
            self._then(None)
            return
        how = f"exit status {status}" if status > 0 else f"signal {-status}"
        self._then(_reason(self._output.decode(errors="replace")) or f"it exited with {how} and printed nothing")

    def _stop_watching(self) -> None:
        self._watch.remove(self._pidfd)
        os.close(self._pidfd)
        if self._reading >= 0:
            poll = select.poll()
            poll.register(self._reading, select.POLLIN)
            if poll.poll(0):
                self._read()
        if self._reading >= 0:
            self._watch.remove(self._reading)
            os.close(self._reading)
            self._reading = -1

    def end(self) -> None:
        """Kill the child process without calling `then`. It may hang on a disk, so it is not reaped here."""
        os.killpg(self.pid, signal.SIGKILL)
        self._stop_watching()


def _reason(output: str) -> str:
    """Return the last line of the output; after a Python traceback, with the last file and line."""
    lines = [line.strip() for line in output.strip().splitlines()]
    file_lines = [line for line in lines if line.startswith("File ")]
    return ": ".join(filter(None, (file_lines[-1] if file_lines else "", lines[-1] if lines else "")))[:_MAX_WHY]


ANSWER = "upgrade.json"
"""A file in the runtime directory that answers the client: {number, state, why, version, environment, request}.

`state` is none, trying, refused or done. `environment` is the prefix of this version's Python, `request` is
:data:`REQUEST`.
"""
REQUEST = "upgrade-from.json"
"""A file in the runtime directory in which the client names the environment of the next version: {python, prefix,
packages}. Without it, an upgrade uses this root's own environment."""
_MAX_REQUEST = 65536


class NotTrusted(Exception):
    """Other users could change the environment, or may have written the request."""


def requested_python(path: str) -> str | None:
    """Read and remove the request, and return its interpreter; None if there is no request.

    The root executes these files as its own user. So each component of each path must belong to root or to that user,
    and no other user may be able to write to it.

    Raises:
        NotTrusted: a path or the request itself does not fulfil this.
        OSError: a file cannot be examined.
    """
    owners = {0, os.geteuid()}
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        os.unlink(path)  # a request is for one upgrade
        if status.st_uid not in owners or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise NotTrusted(f"{path} is writable by users other than root and the daemon's user")
        data = file.read(_MAX_REQUEST)
    try:
        request = json.loads(data)
        python, *more = map(str, (request["python"], request["prefix"], *request["packages"]))
    except DAMAGED:
        raise NotTrusted(f"{path} does not name an environment") from None
    for executable in (python, *more):
        exposed_path = exposed(executable, owners)
        if exposed_path is not None:
            raise NotTrusted(f"the daemon would execute files that other users can change: {exposed_path}")
    return python


_PATIENCE_S = 10.0
"""How long an upgrade waits for runs that are being started."""


class Stage(enum.Enum):
    """The stage of an upgrade."""

    IDLE = "idle"
    REQUESTED = "requested"
    TRIAL = "trial"
    SCHEDULER_RETIRES = "scheduler retires"
    SCHEDULER_RETIRED = "scheduler retired"
    PAUSING = "pausing"


class UpgradingRoot(Protocol):
    """The root that an upgrade replaces."""

    reloading: ReloadSignal
    """Reports to the service manager, for which an upgrade is a reload."""

    def dump(self, keep: KeptDescriptorList) -> RootState:
        """Return the state to hand over; `keep` registers a descriptor that the next root needs."""

    def retire_scheduler(self) -> None:
        """Ask the scheduler to exit, and call :meth:`Upgrade.scheduler_retired` when it has."""

    def restart_scheduler(self) -> None:
        """Start a scheduler again after :meth:`retire_scheduler`."""

    def is_starting(self) -> bool:
        """Return whether a run is just being started."""

    def refuse_upgrade(self, reason: str) -> None:
        """Report to the scheduler why the upgrade was refused."""

    def caught_signals(self) -> set[int]:
        """Return the signals that were caught and not yet acted upon."""


class Upgrade:
    """One upgrade at a time; belongs to the control thread.

    Args:
        watch: The control thread's epoll object.
        log: The daemon's log.
        runtime_dir: The directory for the answer to the command line.
        env: The environment of our helpers.
        quiesce: Stops the pump and the file thread.
        root: The root that hands over.
    """

    def __init__(
        self,
        watch: EpollWatch,
        log: Log,
        runtime_dir: str,
        env: dict[str, str],
        quiesce: Quiesce,
        root: UpgradingRoot,
    ) -> None:
        self._watch = watch
        self._log = log
        self.move(runtime_dir)
        self._env = env
        self._quiesce = quiesce
        self._root = root
        self._stage = Stage.IDLE
        self._python = sys.executable
        """The interpreter of the next version."""
        self._installation = _own_hash()
        self._trial: Trial | None = None
        self._no_start_by_s = 0.0
        self.number = 0
        """The number of upgrades so far, over all versions."""
        self.predecessor: str | None = None
        """The version that handed over to this one; None: there was no handover."""

    def move(self, runtime_dir: str) -> None:
        """Write answers to another runtime directory from now on."""
        self._answer, self._request = f"{runtime_dir}/{ANSWER}", f"{runtime_dir}/{REQUEST}"

    @property
    def trial_pid(self) -> int | None:
        """Return the pid of the process that tests the next version; None: there is none."""
        return self._trial.pid if self._trial is not None else None

    @property
    def under_way(self) -> bool:
        """Return whether another version is being tested or about to take over."""
        return self._stage not in (Stage.IDLE, Stage.REQUESTED)

    @property
    def scheduler_retires(self) -> bool:
        """Return whether an upgrade keeps the scheduler from being started."""
        return self._stage in (Stage.SCHEDULER_RETIRES, Stage.SCHEDULER_RETIRED, Stage.PAUSING)

    def due_s(self) -> float | None:
        """Return when :meth:`tick` is due (monotonic seconds)."""
        times = [
            self._quiesce.due_s,
            self._trial.due_s if self._trial is not None else None,
            self._no_start_by_s if self._stage is Stage.SCHEDULER_RETIRED else None,
        ]
        return min((at for at in times if at is not None), default=None)

    def introduce(self) -> None:
        """Write the first answer, which names the running version, when the daemon starts."""
        self._report("none")

    def request(self, *, ready: bool, ending: bool) -> None:
        """Begin an upgrade at once, or as soon as the daemon is ready.

        While the daemon shuts down (`ending`), or while another upgrade is in progress, the request is refused.
        """
        if ending:
            self._log.info("upgrade ignored: the daemon is shutting down")
            self.number += 1
            self._report("refused", "the daemon is shutting down")
            self._root.refuse_upgrade("the daemon is shutting down")
        elif self._stage not in (Stage.IDLE, Stage.REQUESTED):
            self._log.info("upgrade ignored: another upgrade is in progress")
        elif not ready:
            self._stage = Stage.REQUESTED
        else:
            self._start()

    def ready(self) -> None:
        """Complete an upgrade, or begin a deferred one, now that the scheduler works."""
        if self.predecessor is not None:
            self._log.info(f"upgraded from {self.predecessor} to {VERSION}")
            self._report("done")
            self.predecessor = None
        if self._stage is Stage.REQUESTED:
            self._start()

    def _start(self) -> None:
        self.number += 1
        self._stage = Stage.TRIAL
        self._report("trying")
        self._root.reloading.announce()
        try:
            self._python = requested_python(self._request) or sys.executable
        except (OSError, ValueError, NotTrusted) as err:  # EACCES, ELOOP; a NUL in a path
            self._refuse(f"{err.filename}: {err.strerror}" if isinstance(err, OSError) else str(err))
            return
        where = "is installed" if self._python == sys.executable else f"{self._python} has"
        self._log.info(f"upgrade: testing the version that {where}")
        self._quiesce.start(self._start_trial)

    def _start_trial(self, quiesced: bool) -> None:
        if not quiesced:
            self._refuse("a disk with logs does not respond")
            return
        keep = KeptDescriptorList()
        try:
            state = self._root.dump(keep)
            needed = keep.fds - _unneeded_in_trial(state)
            self._trial = Trial(
                self._watch, self._python, self._env, write(state, keep, set()), needed, self._on_trial_end
            )
        except (OSError, MemoryError, TypeError, ValueError) as err:  # EMFILE, EAGAIN; values that cannot be serialised
            self._refuse(f"cannot start the test of {self._python}: {reason_of(err)}")
        finally:
            self._quiesce.release()

    def _on_trial_end(self, reason: str | None) -> None:
        self._trial = None
        if reason is not None:
            self._refuse(reason)
            return
        self._stage = Stage.SCHEDULER_RETIRES
        self._root.retire_scheduler()

    def scheduler_retired(self) -> None:
        """Continue the upgrade: the scheduler has exited, so it can start no more runs."""
        self._stage = Stage.SCHEDULER_RETIRED
        self._no_start_by_s = self._watch.clock.monotonic_s() + _PATIENCE_S

    def _execute(self, quiesced: bool) -> None:
        if not quiesced:
            self._refuse("a disk with logs does not respond")
            return
        # From here on, signals stay pending in the kernel until the next root handles them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        keep = KeptDescriptorList()
        fd = -1
        try:
            fd = write(self._root.dump(keep), keep, self._root.caught_signals() - {signal.SIGUSR2})
            for descriptor in (fd, *keep.fds):
                os.set_inheritable(descriptor, True)
            os.execv(self._python, [self._python, *RINGWARD, "root", "--resume", str(fd)])  # noqa: S606 - no shell is wanted
        except (OSError, MemoryError, TypeError, ValueError) as err:  # ENOENT, EACCES, EMFILE; as above
            for descriptor in keep.fds:
                os.set_inheritable(descriptor, False)
            if fd >= 0:
                os.close(fd)
            self._refuse(f"{self._python} cannot be executed: {reason_of(err)}")
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def tick(self, now_s: float) -> None:
        """Take the next step, or refuse the upgrade if the current step takes too long."""
        self._quiesce.tick(now_s)
        if self._trial is not None and now_s >= self._trial.due_s:
            self._end_trial()
            self._refuse(f"it did not answer within {LIMIT_S:g} s")
        if self._stage is Stage.SCHEDULER_RETIRED and not self._root.is_starting():
            self._stage = Stage.PAUSING
            self._quiesce.start(self._execute)
        elif self._stage is Stage.SCHEDULER_RETIRED and now_s >= self._no_start_by_s:
            self._refuse("a run has not finished starting")

    def cancel(self, reason: str) -> None:
        """Refuse the upgrade at any stage."""
        if self._stage is not Stage.IDLE:
            self._end_trial()
            self._refuse(reason)

    def _end_trial(self) -> None:
        if self._trial is not None:
            self._trial.end()
            self._trial = None

    def _refuse(self, reason: str) -> None:
        self._quiesce.release()
        retires = self.scheduler_retires
        self._stage = Stage.IDLE
        if retires:
            self._root.restart_scheduler()
        self._log.error(f"upgrade refused, {VERSION} continues: {reason}")
        self._report("refused", reason)
        self._root.refuse_upgrade(reason)
        self._root.reloading.end()

    def _report(self, state: str, reason: str | None = None) -> None:
        answer = {
            "number": self.number,
            "state": state,
            "why": reason,
            "version": VERSION,
            "environment": sys.prefix,
            "installation": self._installation,
            "request": REQUEST,
        }
        text = json.dumps(answer)
        with contextlib.suppress(OSError):  # the daemon's log contains the answer as well
            try:
                replace_file(self._answer, text)
            except OSError:  # ENOSPC, EDQUOT: the present file has memory for another answer
                with open(self._answer, "r+b", buffering=0) as file:
                    file.write(text.encode().ljust(os.fstat(file.fileno()).st_size))


def _own_hash() -> str | None:
    """Return the hash of the files from which this process was loaded; None if they are gone already."""
    try:
        return installation_hash()
    except OSError:
        return None


def _unneeded_in_trial(state: RootState) -> set[int | None]:
    """Return the descriptors that a trial does not need and that a hung trial must not keep open."""
    helpers = {fd for helper in (state.scheduler, state.api) for fd in (helper.sock, helper.pidfd)}
    return helpers.union(state.kept.lock, state.kept.listeners, (held.fd for held in state.sockets))
