"""The root's helpers, the scheduler and the API server: starting, restarting with backoff, ending.

Each helper holds one end of a socketpair and exits when the other end is closed, so none outlives the root.
"""

import errno
import os
import signal
import socket
import sys
from collections.abc import Callable

from supervisor.ipc import child_process, stale_helpers
from supervisor.ipc.backoff import backoff
from supervisor.ipc.child_process import FIRST_EPOCH, ChildProcess
from supervisor.ipc.messages import DaemonSettings, Decoder, Message, encode, hello
from supervisor.root.handover.state_schema import HelperState

_AT_ONCE = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
_DELAYS_S = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)
_HEALTHY_S = 10.0
_REPLACED_S = 10.0
"""How long a helper that is being replaced may take to finish its work."""
_FD_BYTES = 4
"""Size of a descriptor in a message (SCM_RIGHTS, unix(7))."""
_MAX_UNSENT_BYTES = 64 * 1024 * 1024


class Helper:
    """One kind of helper, of which at most one process exists at a time."""

    def __init__(self, name: str, process: str, settings: DaemonSettings, listeners: list[socket.socket]) -> None:
        self.name = name
        self.epoch = 0
        self.pid: int | None = None
        self.pidfd: int | None = None
        self.sock: socket.socket | None = None
        self.output: int | None = None
        """The read end of its output pipe, until the pump takes it over."""
        self.start_at_s: float | None = 0.0
        """Monotonic time of the next start; None: it is running or must not run."""
        self.kill_at_s: float | None = None
        """Monotonic time at which to kill it, if it has hung up or was asked to end."""
        self.at_work = False
        """Whether it has reported readiness and is still connected."""
        self.has_worked = False
        """Whether a process of this kind has ever reported readiness, to this root or to one before an upgrade."""
        self.decoder = Decoder()
        self.received_fds: list[int] = []
        """Descriptors that came with messages which are not handled yet, in order."""
        self.watched_backlog = False
        """Whether the loop watches the socket for writing."""
        self.settings = settings
        """The settings for the next process."""
        self._process = process
        self.listeners = listeners
        """The listening sockets that the process receives."""
        self._unsent = bytearray()
        self._unsent_fds: list[int] = []
        """Descriptors to send with the first byte."""
        self._failures = 0
        self._started_s = 0.0
        self.replaced = False
        """Whether it was asked to end, so its exit is no failure."""

    def start(self, env: dict[str, str], now_s: float) -> None:
        """Start the process and queue its ``hello`` message for the next :meth:`flush`.

        Raises:
            OSError: it cannot be started. Call :meth:`ended`, which sets the time of the next try.
        """
        self.start_at_s = None
        self.epoch += 1
        self._started_s = now_s
        self._take_over(child_process.start(self._process, env))
        self._unsent = bytearray(hello(self.settings, self.epoch, worked=self.has_worked))
        self._unsent_fds = [listener.fileno() for listener in self.listeners]

    def adopt(self, started: ChildProcess, now_s: float) -> None:
        """Take over a process that was started before the root and has received ``hello`` already."""
        self.start_at_s = None
        self.epoch = FIRST_EPOCH
        self._started_s = now_s
        self._take_over(started)

    def _take_over(self, started: ChildProcess) -> None:
        self.pid, self.pidfd, self.sock, self.output = started
        stale_helpers.note(self.settings.runtime_dir, self.name, self.pid)
        self.sock.setblocking(False)
        os.set_blocking(self.output, False)
        self.decoder = Decoder()
        self.watched_backlog = False
        self._unsent = bytearray()
        self._unsent_fds = []
        while self.received_fds:
            os.close(self.received_fds.pop())

    def take_output(self) -> int | None:
        """Return its output pipe once after each start, otherwise None."""
        output, self.output = self.output, None
        return output

    def send(self, message: Message) -> None:
        """Queue a message for the next :meth:`flush`; drop it if the helper is not connected."""
        if self.sock is not None:
            self._unsent += encode(message)

    def flush(self) -> None:
        """Send the queued messages. If the socket is full, keep the rest."""
        if self.sock is None or not self._unsent:
            return
        try:
            sent = self.sock.sendmsg([self._unsent], child_process.rights(self._unsent_fds), _AT_ONCE)
            self._unsent_fds = []
        except BlockingIOError:
            sent = 0
        except (BrokenPipeError, ConnectionResetError):  # it is ending, which its pidfd will report
            self._unsent.clear()
            return
        del self._unsent[:sent]
        if len(self._unsent) > _MAX_UNSENT_BYTES:  # it hangs; the next snapshot contains all that it missed
            self.kill()

    def receive(self, buffer: memoryview, *, may_send_fds: bool) -> int:
        """Receive data from the connected helper into a buffer, and any descriptor that comes with it.

        One call returns the descriptors of one call of the sender at most, and each message has one.

        Returns:
            The number of bytes; 0: the helper has hung up.

        Raises:
            OSError: as of recvmsg(2); EMFILE: a descriptor was lost.
        """
        if self.sock is None:
            return 0
        space = socket.CMSG_SPACE(_FD_BYTES) if may_send_fds else 0
        count, ancillary, flags, _ = self.sock.recvmsg_into([buffer], space, socket.MSG_CMSG_CLOEXEC)
        if may_send_fds and flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.received_fds += [int.from_bytes(part[:_FD_BYTES], sys.byteorder) for *_, part in ancillary]
        return count

    @property
    def backlog(self) -> bool:
        """Return whether unsent data waits until the socket is writable."""
        return bool(self._unsent)

    @property
    def has_unread_messages(self) -> bool:
        """Return whether the helper has sent messages that are not read yet."""
        if self.sock is None:
            return False
        try:
            return bool(self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except (BlockingIOError, ConnectionResetError):
            return False

    def hang_up(self) -> None:
        """Close our end of the socketpair, which makes the helper exit."""
        self.at_work = False
        if self.sock is not None:
            self.sock.close()
            self.sock = None

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._signal(signal.SIGTERM)

    def replace(self, now_s: float) -> bool:
        """Ask it to end, so that a new process replaces it at once. Return False if it is not running."""
        if self.pid is None:
            return False
        self.replaced = True
        self.kill_at_s = now_s + _REPLACED_S
        self.terminate()
        return True

    def retire(self, now_s: float) -> bool:
        """Ask it to exit without a restart, and still read its last messages. Return False if it is not running."""
        self.start_at_s = None
        if self.pid is None:
            return False
        self.replaced = True
        self.at_work = False
        self.kill_at_s = now_s + _REPLACED_S
        self._unsent.clear()  # its successor gets this in the snapshot
        if self.sock is not None:
            self.sock.shutdown(socket.SHUT_WR)
        return True

    def dump(self, keep: Callable[[int], int]) -> HelperState:
        """Return the state for the next root; `keep` registers descriptors."""
        if self.pid is None or self.pidfd is None or self.sock is None:
            return HelperState(self.epoch, None, None, None)
        return HelperState(self.epoch, self.pid, keep(self.pidfd), keep(self.sock.fileno()))

    def load(self, state: HelperState) -> None:
        """Restore the helper in the next root. If it was not running, it will be started."""
        self.epoch = state.epoch
        if state.pid is not None:
            self.pid, self.pidfd = state.pid, state.pidfd
            self.sock = socket.socket(fileno=state.sock)
            self.sock.setblocking(False)
            self.start_at_s = None

    def kill(self) -> None:
        """Send SIGKILL to its process group. Call it only while the process is not reaped."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is None:
            return
        try:
            if number is signal.SIGKILL:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)
        except ProcessLookupError:  # ESRCH: a zombie without a process group, which will be reaped
            return

    def ended(self, now_s: float) -> float:
        """Note that the process was reaped, and schedule the next start; return the delay in seconds."""
        if self.pidfd is not None:
            os.close(self.pidfd)
        stale_helpers.forget(self.settings.runtime_dir, self.name)
        self.pid = self.pidfd = self.kill_at_s = None
        self.hang_up()
        if now_s - self._started_s >= _HEALTHY_S:
            self._failures = 0
        if self.replaced:
            self.replaced = False
            self.start_at_s = now_s
            return 0.0
        delay = backoff(_DELAYS_S, self._failures)
        self._failures += 1
        self.start_at_s = now_s + delay
        return delay
