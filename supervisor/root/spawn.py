"""Starting an instance: posix_spawn, and a shell shim for what it cannot do.

posix_spawn(3) does not copy the page tables of the root and gives the child its own session, default signal
dispositions and an empty signal mask. It cannot change the directory, and while the child has not yet executed its
program the whole root waits: a command or directory on a hung network mount would stop everything. So the root itself
executes only ``/bin/sh``. Where the command is another program, or a directory is wanted, a shim goes there in the
child::

    stdin = status pipe      "cwd"         the working directory cannot be entered
                             "exec 127"    not found, or its interpreter is missing
                             "exec 126"    found but not executable
                             end of file   the command runs

The status pipe is the shim's standard input. While ``exec`` runs, the shell's saved copy of it is close-on-exec, so a
command that starts closes it; when ``exec`` fails the copy is put back and the trap (or, in bash, the next line)
reports. Tested with dash, busybox and bash.

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

_SHELL = "/bin/sh"

_SHIM = """\
trap '_ringward=$?; [ "$_ringward" = 125 ] || echo "exec $_ringward" >&0' EXIT
[ -z "$BASH_VERSION" ] || shopt -s execfail 2>/dev/null
if [ -n "$1" ]; then cd -- "$1" 2>/dev/null || { echo cwd >&0; exit 125; }; fi
[ -z "$2" ] || ulimit -Sn "$2"
shift 2
unset OLDPWD
{ exec "$@"; } </dev/null
exit $?
"""

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


def needs_shim(spawn: Spawn, nofile: int | None) -> bool:
    """True when more than ``/bin/sh`` has to be executed, a directory entered, or a limit restored."""
    return spawn.cwd is not None or spawn.argv[0] != _SHELL or nofile is not None


def start(spawn: Spawn, base_env: dict[str, str], nofile: int | None) -> Started:
    """Start the process group of an instance; `nofile` is the soft limit on descriptors to give back, if we raised it.

    Raises:
        ValueError: a NUL byte in the command or the environment.
        OSError: no descriptors, no processes, no terminal, or no ``/bin/sh``: nothing runs and nothing is left open.
    """
    opened: list[int] = []

    def channel(*, terminal: bool = False) -> tuple[int, int]:
        ours, theirs = _terminal() if terminal else os.pipe2(os.O_CLOEXEC)
        opened.extend((ours, theirs))
        os.set_blocking(ours, False)
        return ours, theirs

    env = {**base_env, **spawn.env}
    try:
        out = channel(terminal=spawn.tty)
        err = None if spawn.merge_stderr or spawn.tty else channel()
        status = channel() if needs_shim(spawn, nofile) else None
        stdout: tuple[object, ...] = (os.POSIX_SPAWN_DUP2, out[1], 1)
        if spawn.tty:
            stdout = (os.POSIX_SPAWN_OPEN, 1, os.ttyname(out[1]), os.O_RDWR, 0)
            env.setdefault("TERM", _TERM)
        shim = [_SHELL, "-c", _SHIM, "ringward", spawn.cwd or "", str(nofile or ""), *spawn.argv]
        stdin = (os.POSIX_SPAWN_DUP2, status[1], 0) if status else (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
        pid = os.posix_spawn(
            _SHELL,
            shim if status else spawn.argv,
            env,
            file_actions=[stdin, stdout, (os.POSIX_SPAWN_DUP2, err[1] if err else 1, 2)],
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


def explain(spawn: Spawn, word: str) -> str:
    """What the shim's report means, in words for the log of the run."""
    if word == "cwd":
        return f"working_dir {spawn.cwd} cannot be entered: it does not exist, is no directory, or permission is denied"
    if word == "exec 126":
        return f"{spawn.argv[0]} cannot be executed: permission denied, or it is no program"
    return f"{spawn.argv[0]} cannot be executed: it does not exist, or the interpreter named in its first line does not"
