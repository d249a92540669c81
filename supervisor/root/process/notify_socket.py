"""Status that runs report by sd_notify(3): datagrams to its ``NOTIFY_SOCKET``.

Each run with ``notify`` has its own socket in the abstract namespace: a run of another user cannot enter our
directories. The kernel names the sender of each datagram (SCM_CREDENTIALS, unix(7)); a datagram from outside the run is
discarded. The root stores the last status, so that each later scheduler gets it.

Descriptors that arrive with a datagram are closed, so a sender that waits with ``BARRIER=1`` learns that everything
before was read. Any process in our network namespace can send descriptors. The sender can make close(2) take as long as
it likes (SO_LINGER, socket(7); a file system in user space). So a separate thread closes them, and only it can hang.
"""

import array
import contextlib
import functools
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from logring.mask import Mask
from supervisor.ipc.messages import Frame, Spawn
from supervisor.root.loop.epoll_watch import EpollWatch

BATCH = 64
"""Datagrams that are read at once. Pause after a full batch, so that a flood costs little."""
REST_S = 0.1

CLOSING = "closing"
"""Name of the threads that close received descriptors."""
_MAX_BYTES = 4096
_MAX_STATUS = 200
_UCRED = struct.Struct("3i")
_FDS = 253
"""Maximum per datagram (SCM_MAX_FD). With a smaller buffer, the kernel would close the rest during the receive call."""
_MOST_CLOSED = 16
"""While the descriptors of this many datagrams of a run wait to be closed, the socket is not read."""
_ANCILLARY_BYTES = socket.CMSG_SPACE(_UCRED.size) + socket.CMSG_SPACE(_FDS * array.array("i").itemsize)


class NotifySocket:
    """The socket of one run, and the state that the run reported on it.

    Args:
        spawn: the run; `notify` is the address.

    Raises:
        OSError: the address is taken, or there are no more descriptors.
    """

    def __init__(self, spawn: Spawn) -> None:
        self.run = spawn.run
        self.ready_at: int | None = None
        """When it said that it is ready, ms since the epoch."""
        self.status: str | None = None
        """The newest status text, on one line."""
        self.resume_at_s: float | None = None
        """Monotonic time from which on it is listened to again, after a flood."""
        self._mask = _mask(spawn)
        self._room = threading.BoundedSemaphore(_MOST_CLOSED)
        self._came: list[array.array[int]] = []
        """Descriptors to close that no thread has taken yet."""
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._sock.bind("\0" + (spawn.notify or "")[1:])
        except OSError:
            self._sock.close()
            raise

    @classmethod
    def adopt(cls, spawn: Spawn, fd: int, resume_at_s: float | None) -> "NotifySocket":
        """Restore the socket that the previous program left open."""
        self = cls.__new__(cls)
        self.run = spawn.run
        self._mask = _mask(spawn)
        self._room = threading.BoundedSemaphore(_MOST_CLOSED)
        self._came = []
        self._sock = socket.socket(fileno=fd)
        self.ready_at, self.status, self.resume_at_s = None, None, resume_at_s
        return self

    def serve(self, spawn: Spawn) -> None:
        """Serve another spawn request of the run, with the same address."""
        self._mask = _mask(spawn)

    def fileno(self) -> int:
        """Return the descriptor, for epoll."""
        return self._sock.fileno()

    def listen(self, belongs: Callable[[int], bool], now_ms: int) -> tuple[dict[str, Any], bool]:
        """Read the waiting datagrams.

        Args:
            belongs: whether a process is one of the run.
            now_ms: wall clock.

        Returns:
            The changes: ``ready_at``, ``status``, ``alive`` (the watchdog was fed). And whether more may be waiting.
        """
        news: dict[str, Any] = {}
        known: dict[int, bool] = {}
        self._close_what_came()
        for _ in range(BATCH):
            if not self._room.acquire(blocking=False):
                return news, True
            try:
                data, ancillary, _flags, _address = self._sock.recvmsg(
                    _MAX_BYTES, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:  # EAGAIN: that was all
                self._room.release()
                return news, False
            pid, fds = _sent(ancillary)
            if fds:
                self._came.append(fds)
                self._close_what_came()
            else:
                self._room.release()
            if pid not in known:
                known[pid] = pid > 0 and belongs(pid)
            if known[pid]:
                self._take(data, news, now_ms)
        return news, True

    def heard(self) -> dict[str, Any] | None:
        """Return the current state, as in :meth:`listen`; None: none."""
        known = {"ready_at": self.ready_at, "status": self.status}
        return {name: value for name, value in known.items() if value is not None} or None

    def _close_what_came(self) -> None:
        while self._came and _aside(functools.partial(_close, self._came[0]), self._room.release):
            del self._came[0]

    def _take(self, data: bytes, news: dict[str, Any], now_ms: int) -> None:
        for line in data.split(b"\n"):
            name, _, value = line.partition(b"=")
            if name == b"READY" and value == b"1" and self.ready_at is None:
                self.ready_at = news["ready_at"] = now_ms
            elif name == b"WATCHDOG" and value == b"1":
                news["alive"] = True
            elif name == b"STATUS":
                self._say(value.decode(errors="replace"), news)
            elif name == b"STOPPING" and value == b"1":
                self._say(self.status or "stopping", news)

    def _say(self, text: str, news: dict[str, Any]) -> None:
        clean = self._mask.clean(text.encode()).decode(errors="replace")
        shown = "".join(char if char.isprintable() else " " for char in clean).strip()[:_MAX_STATUS] or None
        if shown != self.status:
            self.status = news["status"] = shown

    def close(self) -> None:
        """Close the socket. Unread datagrams may carry descriptors, so they are read first."""
        self._close_what_came()
        _aside(self._sock.close, lambda: None)


class NotifySockets:
    """The notify sockets of all runs; each change goes to the scheduler as ``notified``.

    Args:
        watch: reports datagrams.
        belongs: returns whether a run has a process with this id.
        send: takes a message to the scheduler.
        at: calls :meth:`tend` for a run at that time (monotonic seconds).
    """

    def __init__(
        self,
        watch: EpollWatch,
        belongs: Callable[[str, int], bool],
        send: Callable[[Frame], None],
        at: Callable[[float, str], None],
    ) -> None:
        self._watch = watch
        self._belongs = belongs
        self._send = send
        self._at = at

    def open(self, one: NotifySocket) -> None:
        """Listen to a socket, unless that is the case or a pause follows a flood."""
        if one.resume_at_s is None and one.fileno() not in self._watch:
            self._watch.add(one.fileno(), lambda _mask: self._readable(one))

    def tend(self, one: NotifySocket, now_s: float) -> None:
        """Listen again after the pause that follows a flood."""
        if one.resume_at_s is not None and now_s >= one.resume_at_s:
            one.resume_at_s = None
            self.open(one)

    def close(self, one: NotifySocket) -> None:
        """Read the last datagrams, and close the socket."""
        self._listen(one)
        self.release(one)
        one.close()

    def release(self, one: NotifySocket) -> None:
        """Stop listening; the socket stays open for the process that replaces this one."""
        if one.fileno() in self._watch:
            self._watch.remove(one.fileno())

    def _readable(self, one: NotifySocket) -> None:
        if self._listen(one):
            self._watch.remove(one.fileno())
            one.resume_at_s = time.monotonic() + REST_S
            self._at(one.resume_at_s, one.run)

    def _listen(self, one: NotifySocket) -> bool:
        """Read the waiting datagrams, up to a batch; return whether more may be waiting."""
        news, more = one.listen(functools.partial(self._belongs, one.run), time.time_ns() // 1_000_000)
        if news:
            self._send({"op": "notified", "run": one.run, **news})
        return more


def _mask(spawn: Spawn) -> Mask:
    return Mask(spawn.env[name].encode("utf-8", "surrogateescape") for name in spawn.secrets)


def _sent(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, "array.array[int]"]:
    """Return a datagram's sender in our process ids, 0 if unknown, and its descriptors."""
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


def _aside(close: Callable[[], object], closed: Callable[[], None]) -> bool:
    """Close something in a thread, because close(2) may block; return False if no thread can be started."""

    def run() -> None:
        # As in supervisor.host.process_environ: sending to the process must not wait for a hanging thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        with contextlib.suppress(OSError):
            close()
        closed()

    try:
        threading.Thread(target=run, name=CLOSING, daemon=True).start()
    except RuntimeError:  # better open than waiting
        return False
    return True
