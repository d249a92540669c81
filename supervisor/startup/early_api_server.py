"""The early start of the API server: it loads its modules on another core, while ``up`` takes its other steps.

It takes longer to start than everything else. Its settings and sockets follow in ``hello``.
"""

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from supervisor.ipc import child_process
from supervisor.ipc.child_process import FIRST_EPOCH, ChildProcess

if TYPE_CHECKING:
    import socket

    from supervisor.ipc.messages import DaemonSettings

_HELP = {"-h", "--help"}
_started: ChildProcess | None = None


def started() -> ChildProcess | None:
    """Return the server that the root takes over; None if the root must start one."""
    return _started


@contextlib.contextmanager
def starting(arguments: Sequence[str], environ: Mapping[str, str]) -> Iterator[None]:
    """Start the server if the command line starts a daemon, and kill it when the block ends.

    The root process never leaves the block, so this kills only the server of a failed start.
    """
    global _started  # noqa: PLW0603 - a program has one command line
    if arguments[:1] == ["up"] and _HELP.isdisjoint(arguments):
        with contextlib.suppress(OSError):  # EAGAIN, ENOMEM, EMFILE: the root tries again, and reports the error
            _started = child_process.start("api", child_process.environment(environ))
    try:
        yield
    finally:
        if _started is not None:
            _end(_started)
            _started = None


def _end(server: ChildProcess) -> None:
    os.killpg(server.pid, signal.SIGKILL)
    os.waitpid(server.pid, 0)
    server.sock.close()
    for fd in (server.pidfd, server.output):
        os.close(fd)


def say_hello(server: ChildProcess, settings: "DaemonSettings", listeners: "list[socket.socket]") -> None:
    """Send the server its settings and sockets. If it has already exited, the root notices that."""
    from supervisor.ipc.messages import hello

    message = hello(settings, FIRST_EPOCH)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        sent = server.sock.sendmsg([message], child_process.rights([sock.fileno() for sock in listeners]))
        server.sock.sendall(message[sent:])
