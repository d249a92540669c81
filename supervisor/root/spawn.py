"""Starting an instance: posix_spawn, and a shell in the child for what it cannot do (see :mod:`.shim`).

posix_spawn(3) does not copy the page tables of the root and gives the child its own session, default signal
dispositions and an empty signal mask.

A run with a terminal opens the slave by its path, as leader of a new session without one: so it becomes the
controlling terminal. Output processing is off, so a newline stays a newline.
"""

import fcntl
import os
import signal
import struct
import termios

from logring.rows import COLUMNS, LINES
from supervisor.messages import Spawn
from supervisor.root import shim
from supervisor.root.cgroups import Cgroup

_TERM = "xterm-256color"
"""Of a run with a terminal, when the daemon has no TERM."""
_WINDOW = struct.Struct("HHHH")

_DEFAULTED = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})

Pipes = tuple[int, int | None]


class Started:
    """The parts of a new instance that the root holds on to."""

    __slots__ = ("pid", "pidfd", "pipes", "status_fd")

    def __init__(self, pid: int, pidfd: int, pipes: Pipes, status_fd: int | None) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self.pipes = pipes
        """Read ends of standard output and standard error (None: merged), or a terminal's master; non-blocking."""
        self.status_fd = status_fd


def start(spawn: Spawn, base_env: dict[str, str], nofile: int | None, cgroup: Cgroup | None = None) -> Started:
    """Start the process group of an instance, in its cgroup.

    Args:
        spawn: what to start.
        base_env: the environment of the daemon, without our own variables.
        nofile: the soft limit on descriptors to give back, if we raised it.
        cgroup: it joins this one before anything of its own runs.

    Raises:
        ValueError: a NUL byte in the command or the environment.
        OSError: no descriptors, no processes, no terminal, no ``/bin/sh``, or no cgroup: nothing runs and nothing is
            left open.
    """
    opened: list[int] = []

    def channel(*, terminal: bool = False) -> tuple[int, int]:
        ours, theirs = _terminal() if terminal else os.pipe2(os.O_CLOEXEC)
        opened.extend((ours, theirs))
        os.set_blocking(ours, False)
        return ours, theirs

    env = {**({} if spawn.clean_env else base_env), **spawn.env}
    limited = cgroup is not None and "memory" in cgroup.limits
    argv, told = shim.wrapped(spawn, nofile, cgroup=cgroup is not None, limited=limited)
    try:
        out = channel(terminal=spawn.tty)
        err = None if spawn.merge_stderr or spawn.tty else channel()
        status = channel() if told else None
        stdout: tuple[object, ...] = (os.POSIX_SPAWN_DUP2, out[1], 1)
        if spawn.tty:
            stdout = (os.POSIX_SPAWN_OPEN, 1, os.ttyname(out[1]), os.O_RDWR, 0)
            env.setdefault("TERM", _TERM)
        stdin = (os.POSIX_SPAWN_DUP2, status[1], 0) if status else (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
        actions = [stdin, stdout, (os.POSIX_SPAWN_DUP2, err[1] if err else 1, 2)]
        if cgroup is not None:
            actions.append((os.POSIX_SPAWN_OPEN, shim.CGROUP_FD, cgroup.procs, os.O_WRONLY, 0))
        if spawn.uid is not None:  # so that it may open its outputs by their names, such as /dev/stderr
            for one in (out, err):
                if one is not None:
                    os.fchown(one[1], spawn.uid, -1)
        pid = os.posix_spawn(
            shim.SHELL,
            argv,
            env,
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=_DEFAULTED,
        )
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:  # EMFILE, ENFILE, ENOMEM: it runs, but we could not hold it
            os.killpg(pid, signal.SIGKILL)
            raise
    except (OSError, ValueError):
        for fd in opened:
            os.close(fd)
        raise
    for ends in (out, err, status):
        if ends:
            os.close(ends[1])
    return Started(pid, pidfd, (out[0], err[0] if err else None), status[0] if status else None)


def _terminal() -> tuple[int, int]:
    """A pseudo-terminal: master and slave, both close-on-exec.

    Raises:
        OSError: there are no more, or no file system of them.
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
        raise OSError(*err.args) from err  # termios.error is none
    return master, slave
