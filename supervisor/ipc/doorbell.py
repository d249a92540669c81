"""Doorbells: the writer of rings notifies readers in other processes of new lines.

Only names of rings cross these sockets, never log lines. A reader connects to the doorbell of the writing process,
sends the token, and then subscribes. SOCK_SEQPACKET keeps each packet whole::

    reader -> writer   token
    reader -> writer   "+name" or "-name", several joined by newlines
    writer -> reader   names of rings with new lines, joined by newlines (a bell)
    writer -> reader   "?name": a bell for this name is about to follow (a pre-wake)

A reader subscribes first, *then* reads the head of the ring, then waits. If the ring had new lines within the last
second, the writer answers the subscription with a bell, so none is missed. A name can be subscribed before its ring
exists. Names whose packet does not fit into the reader's socket buffer stay in the dirty set for a later packet. A
reader gets at most one bell every 2 ms; the first bell after a pause is immediate. Readers also poll slowly, so a lost
bell delays lines but never loses them.

A sleeping reader takes about as long to wake as the writer takes to read a pipe and publish a line. With a pre-wake,
both happen at once: the writer sends it to readers that have had no bell for 10 ms. It is only a hint. A bell follows
if there was something to read.

Standard library only: the root process loads this.
"""

import contextlib
import hmac
import os
import socket
import threading
from collections.abc import Collection
from itertools import islice

from supervisor.host.osport import UnixListener, UnverifiedConnections

_MAX_PACKET = 65536
_AT_ONCE = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
_NAMES_PER_PACKET = 512
_INTERVAL_S = 0.002
_DEAF_INTERVAL_S = 0.05
"""The interval for a reader whose socket buffer is full: it still has unread bells."""
_QUIET_S = 0.01
_RECENT_S = 1.0
"""A subscription within this time after new lines is answered with a bell."""

PRE_WAKE = "?"
"""Precedes the ring's name in a pre-wake."""


class _Recent:
    """Names of rings with new lines within the last second, and some from up to a second before that."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._older: set[str] = set()
        self._since_s = 0.0

    def add(self, names: Collection[str], now_s: float) -> None:
        self._expire(now_s)
        self._names.update(names)

    def has(self, name: str, now_s: float) -> bool:
        self._expire(now_s)
        return name in self._names or name in self._older

    def _expire(self, now_s: float) -> None:
        age_s = now_s - self._since_s
        if age_s >= _RECENT_S:
            self._older, self._names = self._names if age_s < 2 * _RECENT_S else set(), set()
            self._since_s = now_s


class _BellReader:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.trusted = False
        self.names: set[str] = set()
        self.dirty: set[str] = set()
        self.next_s = 0.0


class DoorbellServer:
    """The writer's end.

    One thread, the owner's loop, accepts connections and handles subscriptions. Any thread may ring. Nothing blocks.
    """

    def __init__(self, path: str, token: str, account: tuple[int, int] | None = None) -> None:
        """Listen at `path`, replacing a socket that an earlier process left there.

        Args:
            path: The path of the socket.
            token: The token that readers must send.
            account: The ids of a user and a group that may connect too (:class:`supervisor.host.osport.UnixListener`).

        Raises:
            OSError: the path cannot be bound.
        """
        self._token = token.encode()
        self._lock = threading.Lock()
        self._readers: dict[int, _BellReader] = {}
        self._counts: dict[str, int] = {}
        self._recent = _Recent()
        self._due_s: float | None = None
        self._account = account
        self.listener = self._listen(path)
        self._unverified = UnverifiedConnections()

    def _listen(self, path: str) -> UnixListener:
        return UnixListener(path, socket.SOCK_SEQPACKET, 64, self._account)

    def listen_again(self, path: str) -> None:
        """Listen on a new socket at `path` after the previous socket file was removed. Existing connections stay open.

        Raises:
            OSError: the path cannot be bound.
        """
        listener = self._listen(path)
        self.listener.close()
        self.listener = listener

    def accept(self) -> socket.socket | None:
        """Accept one connection, which the caller must watch for reading; None if there is none."""
        sock = self.listener.accept()
        if sock is not None:
            with self._lock:
                self._readers[sock.fileno()] = _BellReader(sock)
            self._unverified.add(sock)
        return sock

    def readable(self, fd: int, now_s: float) -> bool:
        """Handle one packet from a reader; return False if its connection has ended and was closed.

        `now_s` is the monotonic time in seconds.
        """
        reader = self._readers[fd]
        try:
            packet = reader.sock.recv(_MAX_PACKET)
        except BlockingIOError:
            return True
        except ConnectionResetError:
            packet = b""
        if packet and not reader.trusted:
            reader.trusted = hmac.compare_digest(packet, self._token)
            if reader.trusted:
                self._unverified.discard(reader.sock)
                return True
            packet = b""
        if not packet:
            self._drop(reader, fd)
            return False
        with self._lock:
            for line in packet.decode("ascii", "replace").split("\n"):
                if line.startswith("+"):
                    self._subscribe(reader, line[1:], now_s)
                elif line.startswith("-"):
                    self._unsubscribe(reader, line[1:])
            if reader.dirty:
                self._send(reader)
        return True

    def _subscribe(self, reader: _BellReader, name: str, now_s: float) -> None:
        if name not in reader.names:
            reader.names.add(name)
            self._counts[name] = self._counts.get(name, 0) + 1
            if self._recent.has(name, now_s):
                reader.dirty.add(name)

    def _unsubscribe(self, reader: _BellReader, name: str) -> None:
        if name in reader.names:
            reader.names.discard(name)
            reader.dirty.discard(name)
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name]

    def _drop(self, reader: _BellReader, fd: int) -> None:
        with self._lock:
            del self._readers[fd]
            for name in list(reader.names):
                self._unsubscribe(reader, name)
        self._unverified.discard(reader.sock)
        reader.sock.close()

    def ring(self, names: Collection[str], now_s: float) -> None:
        """Notify subscribers that these rings have new lines; `now_s` is the monotonic time in seconds."""
        with self._lock:
            self._recent.add(names, now_s)
            rung = self._counts.keys() & names
            if not rung and self._due_s is None:
                return
            for reader in self._readers.values():
                reader.dirty |= reader.names.intersection(rung)
            self._flush(now_s)

    def pre_wake(self, name: str, now_s: float) -> None:
        """Send a pre-wake for this ring, just before its bell; `now_s` is the monotonic time in seconds."""
        if name not in self._counts:
            return
        with self._lock:
            for reader in self._readers.values():
                if name in reader.names and now_s > reader.next_s + _QUIET_S:
                    try:
                        reader.sock.send((PRE_WAKE + name).encode(), _AT_ONCE)
                    except OSError:  # EAGAIN, EPIPE: the bell follows anyway
                        continue

    def due_s(self) -> float | None:
        """Return when to call :meth:`ring` again, in monotonic seconds; None if no bell is pending."""
        return self._due_s

    def _flush(self, now_s: float) -> None:
        due: float | None = None
        for reader in self._readers.values():
            if not reader.dirty:
                continue
            if now_s >= reader.next_s:
                reader.next_s = now_s + (_INTERVAL_S if self._send(reader) else _DEAF_INTERVAL_S)
            if reader.dirty and (due is None or reader.next_s < due):
                due = reader.next_s
        self._due_s = due

    @staticmethod
    def _send(reader: _BellReader) -> bool:
        batch = list(islice(reader.dirty, _NAMES_PER_PACKET))
        try:
            reader.sock.send("\n".join(batch).encode(), _AT_ONCE)
        except OSError:  # EAGAIN: its buffer is full; ENOBUFS, ENOMEM: no memory; EPIPE, ECONNRESET: it has hung up
            return False
        reader.dirty.difference_update(batch)
        return True

    def close(self) -> None:
        """Stop listening and close all connections."""
        self.listener.close()
        with self._lock:
            for reader in self._readers.values():
                reader.sock.close()
            self._readers.clear()
            self._counts.clear()


class DoorbellClient:
    """The reader's end, one for each doorbell in a process; it can connect again after the writer was replaced.

    The owner's loop waits until the descriptor is readable, then calls :meth:`receive`. Sending blocks, and works with
    gevent's patched sockets.

    Attributes:
        names: The rings whose bells it receives.
    """

    def __init__(self, path: str, token: str) -> None:
        self.names: set[str] = set()
        self._path = path
        self._token = token
        self._sock: socket.socket | None = None
        self._sending = threading.Lock()
        """Only one greenlet at a time may wait until the writer accepts a message."""

    def connect(self) -> int | None:
        """Return the descriptor to wait for, connected and subscribed to all names; None if no writer is listening."""
        with self._sending:
            if self._sock is None:
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                try:
                    sock.connect(self._path)
                    sock.sendall(self._token.encode())
                    for name in list(self.names):  # the set can change while a send waits
                        sock.sendall(b"+" + name.encode())
                except OSError:
                    sock.close()
                    return None
                self._sock = sock
            return self._sock.fileno()

    def subscribe(self, name: str) -> None:
        """Receive bells for this ring from now on."""
        self.names.add(name)
        self._send(b"+" + name.encode())

    def unsubscribe(self, name: str) -> None:
        """Receive no more bells for this ring."""
        self.names.discard(name)
        self._send(b"-" + name.encode())

    def _send(self, packet: bytes) -> None:
        with self._sending:
            if self._sock is not None:
                with contextlib.suppress(OSError):  # EPIPE, ECONNRESET: `receive` reports that the writer is gone
                    self._sock.sendall(packet)

    def receive(self) -> Collection[str] | None:
        """Return the names in a bell or pre-wake that has arrived, or none; None if the writer is gone.

        After None, bells may be lost: close the client, connect again, and look at all rings.
        """
        if self._sock is None:
            return None
        try:
            packet = os.read(self._sock.fileno(), _MAX_PACKET)  # gevent's socket would wait
        except BlockingIOError:
            return ()
        except OSError:  # ECONNRESET
            return None
        return packet.decode().split("\n") if packet else None

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None
