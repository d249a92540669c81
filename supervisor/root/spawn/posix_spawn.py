"""Starts a run: a shell in its own session, which prepares and executes the command (:mod:`.shim`).

posix_spawn(3) does not copy the page tables of the root. It gives the child its own session, default signal actions and
an empty signal mask. A run that would have to wait to join its cgroup starts in a pre-forked child instead
(:mod:`.start_queue`).

A run with a terminal has it as its controlling terminal. Output processing is off, so a newline stays a newline.
"""

import contextlib
import fcntl
import os
import signal
import struct
import termios
from collections.abc import Sequence

from logring.redraw.unsettled_rows import COLUMNS, LINES
from supervisor.host import prepared_command
from supervisor.host.cgroups import Cgroup
from supervisor.host.signal_sets import CATCHABLE
from supervisor.ipc.messages import Spawn
from supervisor.root.spawn import shim

_TERM = "xterm-256color"
"""TERM of a run with a terminal, if the daemon's environment has none."""
_WINDOW = struct.Struct("HHHH")


Pipes = tuple[int, int | None]


class StartedProcess:
    """The parts of a new process that the root keeps."""

    __slots__ = ("pid", "pidfd", "pipes", "status_fd")

    def __init__(self, pid: int, pidfd: int, pipes: Pipes, status_fd: int | None) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self.pipes = pipes
        """Read ends of standard output and standard error (None: merged), or a terminal's master; non-blocking."""
        self.status_fd = status_fd


class PidfdFailed(OSError):
    """A process was started, but no pidfd could be opened for it. It was killed, and may have done something."""


class SpawnPlan:
    """A run that is about to be started, and the descriptors that were opened for it.

    Args:
        spawn: The request.
        base_env: The environment of the daemon, without our own variables.
        nofile: The original soft limit on descriptors, if we have raised it.
        cgroup: The cgroup in which the command must be executed.
        inside: The process is created in the cgroup; otherwise it must join it.
        sockets: The held sockets that the run gets.

    Raises:
        OSError: no descriptor or no terminal is left. Nothing stays open.
    """

    def __init__(
        self,
        spawn: Spawn,
        base_env: dict[str, str],
        nofile: int | None,
        cgroup: Cgroup | None = None,
        *,
        inside: bool = False,
        sockets: Sequence[int] = (),
    ) -> None:
        self.env = {**({} if spawn.clean_env else base_env), **spawn.env}
        if spawn.tty:
            self.env.setdefault("TERM", _TERM)
        first = prepared_command.FirstEnvironment(
            self.env, spawn.env, other_user=spawn.uid is not None, by_python=shim.SETPRIV is None
        )
        procs = cgroup.procs if cgroup is not None and not inside else None
        self.argv, reports_status = shim.wrapped(spawn, nofile, first, procs)
        self._procs = None if reports_status else procs
        """The file by which the child joins its cgroup, if it finds that as a descriptor."""
        self.paths = shim.candidates(spawn, self.env) if inside and reports_status else []
        """Possible paths of a command that the pre-forked child executes without a shell; empty: it needs the shell."""
        self.carried = first.lost if reports_status else {}
        """Variables that the shell would lose. `env` contains them in carriers (:mod:`.prepared_command`)."""
        if reports_status:
            self.env = dict(first.variables)
        self.spawn = spawn
        self.nofile = nofile
        self.terminal = spawn.tty
        self._ours: list[int] = []
        self._theirs: list[int] = []
        """Descriptors that only the child needs."""
        try:
            self._out = self._channel(terminal=spawn.tty)
            self._err = None if spawn.merge_stderr or spawn.tty else self._channel()
            self._status = self._channel() if reports_status else None
            self._stdin = self._open_pipe() if spawn.stdin_open else None
            self._sockets = self._above(sockets)
            if spawn.uid is not None:  # so that the user may open the outputs by name, such as /dev/stderr
                for pipe in (self._out, self._err):
                    if pipe is not None:
                        with contextlib.suppress(PermissionError):  # EPERM: without CAP_CHOWN, opening by name fails
                            os.fchown(pipe[1], spawn.uid, -1)
        except OSError:
            self.close()
            raise

    def _channel(self, *, terminal: bool = False) -> tuple[int, int]:
        """Return our end of a new pipe or terminal, and the child's end."""
        ends = _terminal() if terminal else os.pipe2(os.O_CLOEXEC)
        self._ours.append(ends[0])
        self._theirs.append(ends[1])
        os.set_blocking(ends[0], False)
        return ends

    def _open_pipe(self) -> int:
        """Return a pipe that never ends, because its one descriptor holds both ends (fifo(7), O_RDWR)."""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            both = os.open(f"/proc/self/fd/{reading}", os.O_RDWR | os.O_CLOEXEC)
        finally:
            os.close(reading)
            os.close(writing)
        self._theirs.append(both)
        return both

    def _above(self, sockets: Sequence[int]) -> list[int]:
        """Return copies of sockets whose numbers are above all that the child has."""
        first_free = shim.FIRST_FD + len(sockets) + 1
        copies = []
        for fd in sockets:
            copies.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, first_free))
            self._theirs.append(copies[-1])
        return copies

    def start_directly(self) -> StartedProcess:
        """Start it.

        Raises:
            ValueError: a NUL byte in the command or the environment.
            OSError: no descriptors, no processes, no ``/bin/sh``, or no cgroup: nothing runs.
        """
        out, err, status = self._out, self._err, self._status
        stdout: tuple[object, ...] = (os.POSIX_SPAWN_DUP2, out[1], 1)
        if self.terminal:  # opened by a session leader without a terminal, so it becomes the controlling terminal
            stdout = (os.POSIX_SPAWN_OPEN, 1, os.ttyname(out[1]), os.O_RDWR, 0)
        stdin: tuple[object, ...] = (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
        if status:
            stdin = (os.POSIX_SPAWN_DUP2, status[1], 0)
        elif self._stdin is not None:
            stdin = (os.POSIX_SPAWN_DUP2, self._stdin, 0)
        actions = [stdin, stdout, (os.POSIX_SPAWN_DUP2, err[1] if err else 1, 2)]
        if status and self._stdin is not None:  # first, because the others may have the number of this descriptor
            actions.append((os.POSIX_SPAWN_DUP2, self._stdin, shim.stdin_fd(self.spawn)))
        actions += [(os.POSIX_SPAWN_DUP2, fd, shim.FIRST_FD + index) for index, fd in enumerate(self._sockets)]
        if self._procs is not None:
            actions.append((os.POSIX_SPAWN_OPEN, shim.FIRST_FD, self._procs, os.O_WRONLY, 0))
        pid = os.posix_spawn(
            shim.SHELL,
            self.argv,
            self.env,
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=CATCHABLE,
        )
        self._close_theirs()  # first, which frees a descriptor for the pidfd
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as err:
            # EMFILE, ENFILE, ENOMEM: the command may have begun, so the run must not be started again.
            os.killpg(pid, signal.SIGKILL)
            raise PidfdFailed(f"its process was killed, because it could not be tracked: {err.strerror}") from err
        return self._started(pid, pidfd, status[0] if status else None)

    def child_outputs(self) -> list[int]:
        """Return the standard descriptors of the pre-forked child: output, error, and input if it is a status pipe."""
        status = [self._status[1]] if self._status else []
        return [self._out[1], self._err[1] if self._err else self._out[1], *status]

    def start_in_child(self, pid: int, pidfd: int, channel: int) -> StartedProcess:
        """Let the pre-forked child become the run; it reports on `channel` why it cannot execute the shell."""
        if self._status:
            os.close(channel)
            return self._started(pid, pidfd, self._status[0])
        return self._started(pid, pidfd, channel)

    def _started(self, pid: int, pidfd: int, status_fd: int | None) -> StartedProcess:
        self._close_theirs()
        return StartedProcess(pid, pidfd, (self._out[0], self._err[0] if self._err else None), status_fd)

    def _close_theirs(self) -> None:
        while self._theirs:
            os.close(self._theirs.pop())

    def close(self) -> None:
        """Close everything after a failed start."""
        self._close_theirs()
        while self._ours:
            os.close(self._ours.pop())


def start(
    spawn: Spawn,
    base_env: dict[str, str],
    nofile: int | None,
    cgroup: Cgroup | None = None,
    sockets: Sequence[int] = (),
) -> StartedProcess:
    """Start a run directly.

    Raises:
        ValueError, OSError: as :class:`SpawnPlan` and :meth:`SpawnPlan.start_directly`; nothing is left open.
    """
    plan = SpawnPlan(spawn, base_env, nofile, cgroup, sockets=sockets)
    try:
        return plan.start_directly()
    except (OSError, ValueError):
        plan.close()
        raise


def _terminal() -> tuple[int, int]:
    """Open a pseudo-terminal and return master and slave, both close-on-exec.

    Raises:
        OSError: no terminal is left, or devpts is not mounted.
    """
    master, slave = os.openpty()
    try:
        attributes = termios.tcgetattr(slave)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, _WINDOW.pack(LINES, COLUMNS, 0, 0))
    except (OSError, termios.error) as err:
        os.close(master)
        os.close(slave)
        raise OSError(*err.args) from err  # termios.error is not an OSError
    return master, slave
