"""The types ``syslog`` and ``journald``: one message per line, over a socket without acknowledgements.

A syslog message has the format of RFC 5424. Over a Unix socket it has that of RFC 3164 as syslog(3) writes it, without
a host name and in local time, because rsyslog's imuxsock, BusyBox and journald understand no other::

    <30>1 2026-11-26T08:00:00.123Z db1 web 01J… stdout [ringward@32473 instance="0" line="17"] GET / 200
    <30>Nov 26 09:00:00 web[01J…]: GET / 200

Over UDP and Unix datagram sockets, each message is a datagram. On a stream, the length in bytes and a space precede
each message of RFC 5424 (RFC 6587, 3.4.1; RFC 5425, 4.3), and a newline ends each one of RFC 3164. Ringward has no
enterprise number of its own, so it uses 32473, which RFC 5612 reserves for examples.

A journald message consists of fields (https://systemd.io/JOURNAL_NATIVE_PROTOCOL/). A message that does not fit into a
datagram is written to a sealed memfd, whose descriptor is sent instead.
"""

import array
import errno
import fcntl
import os
import socket
import ssl
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress

from logring.layout import STDERR, STDOUT, STREAM_NAMES, SYSTEM
from supervisor.helpers.exporter.log_records import CUT, DeliveryFailed, LogGap, Piece, lines_of
from supervisor.ipc.log_jobs import ExportJob
from supervisor.ipc.log_line import stamp

JOURNAL = "/run/systemd/journal/socket"
FACILITIES = {
    "user": 1,
    "daemon": 3,
    **{f"local{number}": 16 + number for number in range(8)},
}
_SEVERITIES = {STDOUT: 6, STDERR: 3, SYSTEM: 5}
"""Informational, error and notice. journald and Docker use the first two for a program's streams."""
_TIMEOUT_S = 10.0
_TURN_S = 2.0
"""A delivery ends after this time, so that the cursors are stored even if the receiver is slow."""
_MAX_APP_NAME = 48
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()
_SHORT_MESSAGE = 480
"""Every receiver must accept messages of this size (RFC 5424, 6.1)."""


class _SocketSink(ABC):
    """Sends lines over the socket that :meth:`_connect` returns."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._sock: socket.socket | None = None

    def deliver(self, pieces: list[Piece]) -> int:
        """Send the lines; return how many pieces were sent.

        Raises:
            DeliveryFailed: the receiver cannot be reached, or does not accept them.
        """
        delivered = 0
        end_s = time.monotonic() + _TURN_S
        try:
            if self._sock is not None and self._sock.type == socket.SOCK_STREAM and _is_closed(self._sock):
                self.close()
            sock = self._sock = self._sock or self._connect()
            for piece in pieces:
                if time.monotonic() > end_s and delivered:
                    break
                self._send(sock, self._messages(piece))
                delivered += 1
        except (OSError, UnicodeError) as err:  # including ssl.SSLError; UnicodeError: an impossible host name
            self.close()
            raise DeliveryFailed(f"cannot send to {self._address}: {_reason(err)}", delivered) from err
        return delivered

    def idle(self) -> None:  # noqa: B027 - the sinks of this file inherit it
        """Nothing is due."""

    def close(self) -> None:
        """Close the connection."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    @abstractmethod
    def _connect(self) -> socket.socket:
        """Return a new connection to the receiver."""

    @abstractmethod
    def _messages(self, piece: Piece) -> Iterator[bytes]:
        """Return the messages of a piece."""

    @abstractmethod
    def _send(self, sock: socket.socket, messages: Iterator[bytes]) -> None:
        """Send the messages of a piece."""


class SyslogSink(_SocketSink):
    """Sends lines to a syslog server."""

    def __init__(self, job: ExportJob) -> None:
        super().__init__(job.address)
        self._kind, _, self._target = job.address.partition(":")
        self._host = job.host.encode(errors="replace")
        self._facility = FACILITIES[job.facility]
        self._tls_ca = job.tls_ca
        self._is_local = (job.format or ("rfc3164" if self._kind == "unix" else "rfc5424")) == "rfc3164"

    def _send(self, sock: socket.socket, messages: Iterator[bytes]) -> None:
        if sock.type != socket.SOCK_STREAM:
            for message in messages:
                _send_or_cut(sock, message)
        elif self._is_local:
            sock.sendall(b"".join([b"%b\n" % message for message in messages]))
        else:
            sock.sendall(b"".join([b"%d %b" % (len(message), message) for message in messages]))

    def _messages(self, piece: Piece) -> Iterator[bytes]:
        return self._local_messages(piece) if self._is_local else self._structured_messages(piece)

    def _local_messages(self, piece: Piece) -> Iterator[bytes]:
        content, run = piece.content, piece.run
        head = b"<%d>%b %b%b[%b]: " % (
            self._facility * 8 + _SEVERITIES[content.stream],
            time.strftime("%b %e %H:%M:%S", time.localtime(content.ts / 1000)).encode(),
            b"" if self._kind == "unix" else self._host + b" ",
            run.task.encode()[:_MAX_APP_NAME],
            run.id.encode(),
        )
        for _, text in lines_of(piece):
            yield head + text.replace(b"\0", _REPLACEMENT)  # a NUL ends a message of syslog(3)

    def _structured_messages(self, piece: Piece) -> Iterator[bytes]:
        content, run = piece.content, piece.run
        more = b""
        if isinstance(content, LogGap):
            more = b' skipped="%d"' % content.skipped
        elif content.continued:
            more = b' continued="true"'
        head = b'<%d>1 %b %b %b %b %b [ringward@32473 instance="%d" line="' % (
            self._facility * 8 + _SEVERITIES[content.stream],
            stamp(content.ts).encode(),
            self._host,
            run.task.encode()[:_MAX_APP_NAME],
            run.id.encode(),
            STREAM_NAMES[content.stream].encode(),
            run.instance,
        )
        for number, text in lines_of(piece):
            yield b'%b%d"%b] %b' % (head, number, more, text)

    def _connect(self) -> socket.socket:
        if self._kind == "unix":
            return _unix_socket(self._target)
        host, _, port = self._target.removeprefix("//").rpartition(":")
        host = host.strip("[]")
        if self._kind == "udp":
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            sock = socket.socket(family, kind, protocol)
            return _connect(sock, address)
        sock = socket.create_connection((host, int(port)), _TIMEOUT_S)
        if self._kind == "tcp":
            return sock
        context = ssl.create_default_context(cafile=self._tls_ca or None)
        try:
            return context.wrap_socket(sock, server_hostname=host)
        except OSError:
            sock.close()
            raise


class JournaldSink(_SocketSink):
    """Sends lines to the systemd journal through a socket, by default the journal's own."""

    def __init__(self, path: str = JOURNAL) -> None:
        super().__init__(path)

    def _connect(self) -> socket.socket:
        return _connect(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), self._address)

    def _send(self, sock: socket.socket, messages: Iterator[bytes]) -> None:
        for message in messages:
            _send_or_lend(sock, message)

    def _messages(self, piece: Piece) -> Iterator[bytes]:
        content, run = piece.content, piece.run
        fields = {
            "PRIORITY": _SEVERITIES[content.stream],
            "SYSLOG_IDENTIFIER": run.task,
            "RINGWARD_TASK": run.task,
            "RINGWARD_RUN_ID": run.id,
            "RINGWARD_INSTANCE": run.instance,
            "RINGWARD_STREAM": STREAM_NAMES[content.stream],
            "RINGWARD_TIME": stamp(content.ts),
        }
        if isinstance(content, LogGap):
            fields["RINGWARD_SKIPPED"] = content.skipped
        elif content.continued:
            fields["RINGWARD_CONTINUED"] = "true"
        head = "".join([f"{name}={value}\n" for name, value in fields.items()]).encode()
        for number, text in lines_of(piece):
            # In this form, with its length, a value can contain any bytes.
            yield b"%bRINGWARD_LINE=%d\nMESSAGE\n%b%b\n" % (head, number, struct.pack("<Q", len(text)), text)


def _send_or_cut(sock: socket.socket, message: bytes) -> None:
    """Send a datagram; if it is larger than the socket accepts, cut it with a mark."""
    while True:
        try:
            sock.send(message)
            return
        except OSError as err:
            if err.errno != errno.EMSGSIZE or len(message) <= _SHORT_MESSAGE:
                raise
        message = message[: len(message) // 2].decode(errors="ignore").encode() + CUT


def _send_or_lend(sock: socket.socket, message: bytes) -> None:
    """Send a message; if it is too large for a datagram, send the descriptor of a sealed memfd that contains it."""
    try:
        sock.send(message)
    except OSError as err:
        if err.errno not in (errno.EMSGSIZE, errno.ENOBUFS):
            raise
        fd = os.memfd_create("ringward", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(message)
            seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
            sock.sendmsg([b""], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
        finally:
            os.close(fd)


def _unix_socket(path: str) -> socket.socket:
    """Connect to a Unix socket, which is a datagram socket, as /dev/log is, or else a stream socket."""
    try:
        return _connect(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), path)
    except OSError as err:
        if err.errno != errno.EPROTOTYPE:
            raise
    return _connect(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), path)


def _connect(sock: socket.socket, address: str | tuple[object, ...]) -> socket.socket:
    """Connect a socket and return it, with a time-out for all later operations."""
    try:
        sock.settimeout(_TIMEOUT_S)
        sock.connect(address)
    except OSError:
        sock.close()
        raise
    return sock


def _is_closed(sock: socket.socket) -> bool:
    """Return whether the server has closed the connection. A message sent then would be lost without an error."""
    sock.setblocking(False)
    try:
        return not sock.recv(4096)
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
    finally:
        with suppress(OSError):
            sock.settimeout(_TIMEOUT_S)


def _reason(err: OSError | UnicodeError) -> str:
    if isinstance(err, UnicodeError):
        return "the host name is not valid"
    if isinstance(err, TimeoutError):
        return f"no progress within {_TIMEOUT_S:.0f} s"
    return err.strerror or str(err)
