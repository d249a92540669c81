"""Starts helper processes, each with a socketpair for messages and a pipe for its output.

The process gets its socket as descriptor 3 and ends when the other end closes. ``hello`` brings everything else.
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
"""The Python arguments that start a Ringward process; the name of the process follows."""
SOCKET_FD = 3
FIRST_EPOCH = 1
_OURS = ("RINGWARD_", "WATCHDOG_", "LISTEN_")
_SYSTEMD = ("NOTIFY_SOCKET", "FDSTORE")


class ChildProcess(NamedTuple):
    """A started process that is not reaped yet."""

    pid: int
    """The process id, which is also the id of its session and process group."""
    pidfd: int
    sock: socket.socket
    output: int
    """The read end of the pipe with its standard output and standard error."""


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the daemon's environment that helpers and runs inherit."""
    return {name: value for name, value in environ.items() if not name.startswith(_OURS) and name not in _SYSTEMD}


def start(
    process: str, env: Mapping[str, str], kind: socket.SocketKind = socket.SocketKind.SOCK_STREAM
) -> ChildProcess:
    """Start the helper called `process`, with a socket of type `kind`.

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
    """Start Python in a session of its own, with all signals unblocked and at their default actions; return its pid.

    Args:
        program: The arguments of Python; ``--fd 3`` is appended.
        env: The environment of the process.
        sock: The descriptor that becomes descriptor 3.
        output: The descriptor that becomes standard output and standard error.

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
    """Return the ancillary data that passes descriptors to the receiver (SCM_RIGHTS, unix(7))."""
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())] if fds else []
