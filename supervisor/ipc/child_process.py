"""A helper process and its connections: a socketpair for messages, and a pipe for its output.

The process has the socket as descriptor 3, and ends when our end closes. ``hello`` brings everything else it needs.
"""

import array
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import NamedTuple

from supervisor.host.signal_sets import CATCHABLE

RINGWARD = ("-I", "-m", "ringward")
"""Arguments with which Python is a process of ours; its name follows."""
SOCKET_FD = 3
FIRST_EPOCH = 1
_OURS = ("RINGWARD_", "WATCHDOG_", "LISTEN_")
_SYSTEMD = ("NOTIFY_SOCKET", "FDSTORE")


class ChildProcess(NamedTuple):
    """A started process that is not reaped yet."""

    pid: int
    """Its process group is its own, and has its id."""
    pidfd: int
    sock: socket.socket
    output: int
    """Read end of the pipe."""


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the daemon's environment that our own processes and runs have."""
    return {name: value for name, value in environ.items() if not name.startswith(_OURS) and name not in _SYSTEMD}


def start(
    process: str, env: Mapping[str, str], kind: socket.SocketKind = socket.SocketKind.SOCK_STREAM
) -> ChildProcess:
    """Start a process of this name, whose socket has this kind.

    Raises:
        OSError: it cannot be started.
    """
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        sock, their_sock = socket.socketpair(socket.AF_UNIX, kind)
        ours.callback(sock.close)
        theirs.callback(their_sock.close)
        output, output_end = os.pipe2(os.O_CLOEXEC)
        ours.callback(os.close, output)
        theirs.callback(os.close, output_end)
        pid = execute([*RINGWARD, process], env, their_sock.fileno(), output_end)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            os.killpg(pid, signal.SIGKILL)  # the root reaps it with the children that it did not start
            raise
        ours.pop_all()
    return ChildProcess(pid, pidfd, sock, output)


def execute(program: list[str], env: Mapping[str, str], sock: int, output: int) -> int:
    """Start a Python with these arguments and the number of its socket; return its pid.

    Every signal has its default action there.

    Args:
        program: arguments of Python.
        env: its environment.
        sock: becomes its descriptor 3.
        output: becomes its standard output and standard error.

    Raises:
        OSError: it cannot be started.
    """
    return os.posix_spawn(
        sys.executable,
        [sys.executable, *program, "--fd", str(SOCKET_FD)],
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
            (os.POSIX_SPAWN_DUP2, sock, SOCKET_FD),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=CATCHABLE,
    )


def rights(fds: list[int]) -> list[tuple[int, int, bytes]]:
    """Return the ancillary data that hands these descriptors to the reader (SCM_RIGHTS, unix(7))."""
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())] if fds else []
