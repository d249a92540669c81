"""A helper process of the scheduler: starts for its requests, and restarts when it dies.

The scheduler and the helper exchange messages over a socketpair. The helper exits when the socket closes.
"""

import contextlib
import os
import select
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

from supervisor.host.signal_sets import signal_name
from supervisor.ipc.backoff import backoff
from supervisor.ipc.child_process import RINGWARD
from supervisor.ipc.helper_messages import HelperMessage, decoder, encode
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import ProtocolError
from supervisor.scheduler.loop.loop import Loop

_READ_BYTES = 65536
_DELAYS_MS = (0, 100, 500, 1000, 5000)
_HEALTHY_S = 10.0


class HelperClient:
    """The owner of a helper process."""

    answers: tuple[type[HelperMessage], ...]
    """The classes of the helper's messages."""

    def helper_started(self) -> None:
        """Prepare for a helper that has just started and has not received the requests yet."""

    def helper_sent(self, message: Any) -> None:
        """Handle a message from the helper, of one of the classes in :attr:`answers`."""
        raise NotImplementedError

    def helper_failed(self, reason: str) -> None:
        """Handle a failed start or an unexpected exit for the reason `reason`; the helper will be started again."""


class HelperProcess:
    """One kind of helper, with at most one process at a time, which starts when there are requests.

    Args:
        name: name of the subcommand that runs as the helper, such as ``watcher``.
        client: its owner.
        title: its name in the log; defaults to `name`.
    """

    def __init__(self, loop: Loop, log: Log, name: str, client: HelperClient, title: str | None = None) -> None:
        self._loop = loop
        self._log = log
        self._name = name
        self._title = title or name
        self._client = client
        self._requests: dict[str, HelperMessage] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._sock: socket.socket | None = None
        self._decoder = decoder(*client.answers)
        self._unsent = bytearray()
        self._waiting = False
        """Whether a restart is scheduled."""
        self._failures = 0
        self._started_s = 0.0

    @property
    def running(self) -> bool:
        """Whether the helper can receive messages."""
        return self._sock is not None

    def request(self, key: str, message: HelperMessage) -> None:
        """Send a message to the helper, which is started if necessary, and to its successors until :meth:`forget`."""
        self._requests[key] = message
        if self._process is None and not self._waiting:
            self._start()
        else:
            self.send(message)

    def forget(self, key: str) -> None:
        """Forget a request. The helper goes on."""
        self._requests.pop(key, None)

    def send(self, message: HelperMessage) -> None:
        """Send a message, without blocking; drop it if the helper is not running."""
        if self._sock is not None:
            self._unsent += encode(message)
            self._flush(self._sock)

    def _start(self) -> None:
        self._waiting = False
        if not self._requests:
            return
        self._started_s = self._loop.now_s()
        try:
            with contextlib.ExitStack() as undo:
                ours, theirs = socket.socketpair()
                undo.callback(ours.close)
                with theirs:
                    argv = [sys.executable, *RINGWARD, self._name, "--fd", str(theirs.fileno())]
                    process = undo.enter_context(
                        subprocess.Popen(
                            argv, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
                        )
                    )
                undo.callback(process.kill)
                self._pidfd = os.pidfd_open(process.pid)
                undo.pop_all()
        except OSError as err:  # EMFILE, EAGAIN, ENOMEM
            self._failed(f"cannot start the {self._title}: {err.strerror}")
            return
        ours.setblocking(False)
        self._process, self._sock = process, ours
        self._decoder, self._unsent = decoder(*self._client.answers), bytearray()
        self._loop.watch(self._pidfd, lambda _mask: self._ended(process))
        self._loop.watch(ours.fileno(), self._ready)
        self._client.helper_started()
        for message in list(self._requests.values()):
            self.send(message)

    def _again(self) -> None:
        if self._loop.now_s() - self._started_s >= _HEALTHY_S:
            self._failures = 0
        delay = backoff(_DELAYS_MS, self._failures)
        self._failures += 1
        self._waiting = True
        self._loop.after(delay, self._start)

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        self._loop.unwatch(self._pidfd)
        os.close(self._pidfd)
        if self._sock is not None:
            self._read(self._sock)
        dismissed = self._sock is None
        self.replace()
        status = process.wait()
        self._process = None
        if dismissed and status == 0:
            self._start()
            return
        how = f"exited with code {status}" if status >= 0 else f"was killed by {signal_name(-status)}"
        self._failed(f"the {self._title} {how}")

    def _failed(self, reason: str) -> None:
        self._log.warning(reason)
        self._again()
        self._client.helper_failed(reason)

    def close(self) -> None:
        """Forget all requests, and close the connection, which makes the helper exit."""
        self._requests.clear()
        self.replace()

    def replace(self) -> None:
        """Close the connection, which makes the helper exit; its successor receives the requests."""
        if self._sock is not None:
            self._loop.unwatch(self._sock.fileno())
            self._sock.close()
            self._sock = None

    def _flush(self, sock: socket.socket) -> None:
        if self._unsent:
            with suppress(
                BlockingIOError, BrokenPipeError, ConnectionResetError
            ):  # it is busy, or it exited, which its pidfd reports
                del self._unsent[: sock.send(self._unsent)]
        self._loop.change(sock.fileno(), select.EPOLLIN | (select.EPOLLOUT if self._unsent else 0))

    def _ready(self, mask: int) -> None:
        if self._sock is not None and mask & select.EPOLLOUT:
            self._flush(self._sock)
        if self._sock is not None and mask & (select.EPOLLIN | select.EPOLLHUP) and not self._read(self._sock):
            self.replace()
            if self._process is not None:
                self._process.kill()

    def _read(self, sock: socket.socket) -> bool:
        """Read and dispatch messages; return False if the connection has ended."""
        try:
            data = sock.recv(_READ_BYTES)
            for message in self._decoder.feed(data):
                self._client.helper_sent(message)
        except BlockingIOError:
            return True
        except (ConnectionResetError, ProtocolError):
            return False
        return bool(data)
