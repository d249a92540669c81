"""Status that runs report by sd_notify(3): datagrams to their ``NOTIFY_SOCKET``.

Each run with ``notify`` has its own socket in the abstract namespace, because a run of another user cannot access our
directories. The kernel attaches the sender to each datagram (SCM_CREDENTIALS, unix(7)), and datagrams from outside the
run are discarded. The root keeps the last status for later schedulers.

Descriptors that arrive with a datagram are closed. That tells a sender which waits after ``BARRIER=1`` that everything
before was read. But any process in our network namespace can send descriptors, and close(2) may then take as long as
the sender likes (SO_LINGER, socket(7); a FUSE file system). So separate threads close them, and only these can hang.
"""

import array
import contextlib
import functools
import os
import socket
import struct
import threading
from collections.abc import Callable

from logring.mask import Mask
from supervisor.host.detached_thread import DetachedThread
from supervisor.ipc.messages import Message, Spawn
from supervisor.root.loop.epoll_watch import EpollWatch

BATCH = 64
"""The most datagrams read at once. A pause follows a full batch, so that a flood costs little."""
REST_S = 0.1

_MAX_BYTES = 4096
_MAX_STATUS = 200
_UCRED = struct.Struct("3i")
_FDS = 253
"""The most descriptors per datagram (SCM_MAX_FD). With less room, the kernel would close the rest in recvmsg(2)."""
_MOST_CLOSED = 16
"""The socket is not read while the descriptors of this many datagrams wait to be closed."""
_ANCILLARY_BYTES = socket.CMSG_SPACE(_UCRED.size) + socket.CMSG_SPACE(_FDS * array.array("i").itemsize)


class NotifySocket:
    """The socket of one run, and the state that the run reported on it.

    Args:
        spawn: The request of the run; its `notify` is the address.
        fd: The socket that the previous root left open; None: create the socket.

    Raises:
        OSError: the address is in use, or no descriptor is left.
    """

    def __init__(self, spawn: Spawn, fd: int | None = None) -> None:
        self.run = spawn.run
        self.ready_at: int | None = None
        """When the run reported that it is ready, in milliseconds since the epoch."""
        self.stopping_at: int | None = None
        """When the run reported that it is stopping, in milliseconds since the epoch."""
        self.triggered = False
        """Whether the run asked for the action of an expired watchdog."""
        self.status: str | None = None
        """The newest status text, on one line."""
        self.resume_at_s: float | None = None
        """Monotonic time at which reading resumes after a flood; None: the socket is being read."""
        self._mask = _mask(spawn)
        self._slots = threading.BoundedSemaphore(_MOST_CLOSED)
        self._unclosed: list[array.array[int]] = []
        """Received descriptors that no thread is closing yet."""
        self._sock = _bound_socket(spawn) if fd is None else socket.socket(fileno=fd)

    def mask_secrets_of(self, spawn: Spawn) -> None:
        """Mask the secrets of another request of the same run, which has the same address."""
        self._mask = _mask(spawn)

    def fileno(self) -> int:
        """Return the descriptor, for epoll."""
        return self._sock.fileno()

    def receive(self, belongs: Callable[[int], bool], now_ms: int) -> tuple[dict[str, object], bool]:
        """Read the waiting datagrams.

        Args:
            belongs: Returns whether a process belongs to the run.
            now_ms: The wall-clock time in milliseconds.

        Returns:
            The changes (``ready_at``, ``stopping_at``, ``triggered``, ``status``, ``alive``: the run fed its watchdog),
            and whether more datagrams may be waiting.
        """
        news: dict[str, object] = {}
        is_member: dict[int, bool] = {}
        self._close_received()
        for _ in range(BATCH):
            if not self._slots.acquire(blocking=False):
                return news, True
            try:
                data, ancillary, _flags, _address = self._sock.recvmsg(
                    _MAX_BYTES, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:  # EAGAIN: no more datagrams
                self._slots.release()
                return news, False
            pid, fds = _sender_and_fds(ancillary)
            if fds:
                self._unclosed.append(fds)
                self._close_received()
            else:
                self._slots.release()
            if pid not in is_member:
                is_member[pid] = pid > 0 and belongs(pid)
            if is_member[pid]:
                self._apply(data, news, now_ms)
        return news, True

    def state(self) -> dict[str, object] | None:
        """Return the current state, with the keys of :meth:`receive`; None: nothing was reported."""
        details = {
            "ready_at": self.ready_at,
            "stopping_at": self.stopping_at,
            "triggered": self.triggered or None,
            "status": self.status,
        }
        return {name: value for name, value in details.items() if value is not None} or None

    def _close_received(self) -> None:
        while self._unclosed and _close_in_thread(functools.partial(_close, self._unclosed[0]), self._slots.release):
            del self._unclosed[0]

    def _apply(self, data: bytes, news: dict[str, object], now_ms: int) -> None:
        for line in data.removesuffix(b"\0").split(b"\n"):  # as in systemd: C programs may send the end of the string
            if line == b"READY=1" and self.ready_at is None:
                self.ready_at = news["ready_at"] = now_ms
            elif line == b"WATCHDOG=1":
                news["alive"] = True
            elif line == b"WATCHDOG=trigger" and not self.triggered:
                self.triggered = news["triggered"] = True
            elif line.startswith(b"STATUS="):
                self._set_status(line.removeprefix(b"STATUS=").decode(errors="replace"), news)
            elif line == b"STOPPING=1" and self.stopping_at is None:
                self.stopping_at = news["stopping_at"] = now_ms
                self._set_status(self.status or "stopping", news)

    def _set_status(self, text: str, news: dict[str, object]) -> None:
        clean = self._mask.clean(text.encode()).decode(errors="replace")
        shown = "".join(char if char.isprintable() else " " for char in clean).strip()[:_MAX_STATUS] or None
        if shown != self.status:
            self.status = news["status"] = shown

    def close(self) -> None:
        """Close the socket. Unread datagrams may carry descriptors, so they are read first."""
        self._close_received()
        _close_in_thread(self._sock.close, lambda: None)


class NotifySockets:
    """The notify sockets of all runs. Each change is sent to the scheduler as a ``notified`` message.

    Args:
        watch: The control thread's epoll object.
        belongs: Returns whether a run has a process with this id.
        send: Sends a message to the scheduler.
        make_due: Makes a run due at a time (monotonic seconds), when :meth:`tick` is called for it.
    """

    def __init__(
        self,
        watch: EpollWatch,
        belongs: Callable[[str, int], bool],
        send: Callable[[Message], None],
        make_due: Callable[[float, str], None],
    ) -> None:
        self._watch = watch
        self._belongs = belongs
        self._send = send
        self._make_due = make_due

    def open(self, notify_socket: NotifySocket) -> None:
        """Watch a socket, unless it is watched already or pauses after a flood."""
        if notify_socket.resume_at_s is None and notify_socket.fileno() not in self._watch:
            self._watch.add(notify_socket.fileno(), lambda _mask: self._on_readable(notify_socket))

    def tick(self, notify_socket: NotifySocket, now_s: float) -> None:
        """Watch a socket again once the pause after a flood has passed."""
        if notify_socket.resume_at_s is not None and now_s >= notify_socket.resume_at_s:
            notify_socket.resume_at_s = None
            self.open(notify_socket)

    def close(self, notify_socket: NotifySocket) -> None:
        """Read the last datagrams, and close the socket."""
        self._receive(notify_socket)
        self.release(notify_socket)
        notify_socket.close()

    def release(self, notify_socket: NotifySocket) -> None:
        """Stop watching a socket. It stays open for the process that replaces this one."""
        if notify_socket.fileno() in self._watch:
            self._watch.remove(notify_socket.fileno())

    def _on_readable(self, notify_socket: NotifySocket) -> None:
        if self._receive(notify_socket):
            self._watch.remove(notify_socket.fileno())
            notify_socket.resume_at_s = self._watch.clock.monotonic_s() + REST_S
            self._make_due(notify_socket.resume_at_s, notify_socket.run)

    def _receive(self, notify_socket: NotifySocket) -> bool:
        """Read the waiting datagrams, up to a batch; return whether more may be waiting."""
        news, more = notify_socket.receive(
            functools.partial(self._belongs, notify_socket.run), self._watch.clock.wall_ms()
        )
        if news:
            self._send({"op": "notified", "run": notify_socket.run, **news})
        return more


def _bound_socket(spawn: Spawn) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        sock.bind("\0" + (spawn.notify or "")[1:])
    except OSError:
        sock.close()
        raise
    return sock


def _mask(spawn: Spawn) -> Mask:
    return Mask(spawn.env[name].encode("utf-8", "surrogateescape") for name in spawn.secrets)


def _sender_and_fds(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, "array.array[int]"]:
    """Return a datagram's sender as a process id in our namespace, 0 if unknown, and its descriptors."""
    pid, fds = 0, array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) >= _UCRED.size:
            pid = _UCRED.unpack_from(data)[0]
        elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return pid, fds


def _close(fds: "array.array[int]") -> None:
    for fd in fds:
        os.close(fd)


def _close_in_thread(close: Callable[[], object], closed: Callable[[], None]) -> bool:
    """Call `close` in a thread, because close(2) may block; return False if no thread can be started."""

    def run() -> None:
        with contextlib.suppress(OSError):
            close()
        closed()

    try:
        DetachedThread(run)
    except RuntimeError:  # leave it open rather than block here
        return False
    return True
