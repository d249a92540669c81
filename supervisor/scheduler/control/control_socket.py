"""``control.sock``: the socket on which API workers send commands to the scheduler.

A client sends ``hello`` with the token, then requests ``{id, deadline, op, args}``. Each request gets one answer, after
its effect is stored. A request after its deadline (monotonic clock) is refused, because its caller no longer waits.

A repeated id gets the same answer again while it is remembered. Later, or after a restart of the scheduler, the
operation runs again; every operation can be repeated safely.
"""

import collections
import hmac
import select
import socket
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from supervisor.host.osport import UnixListener, UnverifiedConnections
from supervisor.ipc.messages import Message, ProtocolError
from supervisor.ipc.msgspec_messages import encode, strict_decoder
from supervisor.scheduler.control.socket_operation import Operation, refused
from supervisor.scheduler.loop.loop import Loop

_READ_BYTES = 65536
_REMEMBERED_BYTES = 1 << 20
"""Limit of the total size of remembered answers."""


class _Request(msgspec.Struct):
    """The fields of every request."""

    id: Annotated[str, Meta(max_length=200)]
    deadline: float
    op: str
    args: dict[str, Any]


class _Connection:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.decoder = strict_decoder()
        self.trusted = False
        self.unsent = bytearray()
        self.blocked = False
        """Whether the loop waits for the socket to become writable."""


class ControlServer:
    """Receives requests, calls the operations, and sends their answers."""

    def __init__(
        self,
        loop: Loop,
        path: str,
        token: str,
        operations: dict[str, Operation],
        also: tuple[int, int] | None = None,
    ) -> None:
        """Listen at `path`, replacing the socket of an earlier scheduler.

        Args:
            loop: the loop of the scheduler.
            path: path of the socket.
            token: the token that callers must send.
            operations: operations by name.
            also: user and group that may connect in addition to the daemon's user.

        Raises:
            OSError: the path cannot be bound.
        """
        self._loop = loop
        self._token = token
        self._operations = operations
        self._waiting: dict[str, list[_Connection]] = {}
        """Connections that wait for the answer of an operation, by request id."""
        self._answers: collections.OrderedDict[str, bytes] = collections.OrderedDict()
        """The newest answers, encoded, by request id, oldest first."""
        self._answered_bytes = 0
        self._connections: set[_Connection] = set()
        self._answered: list[_Connection] = []
        self._strangers = UnverifiedConnections()
        self._listener = UnixListener(path, socket.SOCK_STREAM, 256, also)
        loop.watch(self._listener.fileno(), self._accept)

    def _accept(self, _mask: int) -> None:
        sock = self._listener.accept()
        if sock is not None:
            connection = _Connection(sock)
            self._connections.add(connection)
            self._strangers.add(sock)
            self._loop.watch(sock.fileno(), lambda mask: self._ready(connection, mask))

    def _ready(self, connection: _Connection, mask: int) -> None:
        if mask & select.EPOLLOUT:
            self._flush(connection)
        if connection.sock.fileno() < 0 or not mask & (select.EPOLLIN | select.EPOLLHUP):
            return
        try:
            data = connection.sock.recv(_READ_BYTES)
            for message in connection.decoder.feed(data):
                self._on_message(connection, message)
        except BlockingIOError:
            return
        except (ConnectionResetError, ProtocolError):  # disconnected, or an invalid message
            data = b""
        if not data:
            self._close(connection)

    def _close(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        self._strangers.discard(connection.sock)
        if connection.sock.fileno() >= 0:
            self._loop.unwatch(connection.sock.fileno())
            connection.sock.close()

    def _on_message(self, connection: _Connection, message: Message) -> None:
        if not connection.trusted:
            if not hmac.compare_digest(str(message.get("token")).encode(errors="replace"), self._token.encode()):
                raise ProtocolError("wrong token")
            connection.trusted = True
            self._strangers.discard(connection.sock)
            return
        try:
            request = msgspec.convert(message, _Request)
        except msgspec.ValidationError as err:
            raise ProtocolError(str(err)) from err
        answer, waiting = self._answers.get(request.id), self._waiting.get(request.id)
        if answer is not None:
            self._send(connection, answer)
        elif waiting is not None:
            waiting.append(connection)
        elif self._loop.now_s() > request.deadline:
            self._send(connection, encode({"id": request.id, **refused(503, "the deadline of the request has passed")}))
        else:
            self._waiting[request.id] = [connection]
            self._dispatch(request)

    def _dispatch(self, request: _Request) -> None:
        def finish(answer: dict[str, object]) -> None:
            message = encode({"id": request.id, **answer})
            self._remember(request.id, message)
            for connection in self._waiting.pop(request.id):
                self._send(connection, message)

        operation = self._operations.get(request.op)
        if operation is None:
            finish(refused(400, f"unknown operation {request.op}"))
        else:
            operation(request.args, finish)

    def _remember(self, request_id: str, message: bytes) -> None:
        self._answers[request_id] = message
        self._answered_bytes += len(message)
        while self._answered_bytes > _REMEMBERED_BYTES:
            self._answered_bytes -= len(self._answers.popitem(last=False)[1])

    def _send(self, connection: _Connection, message: bytes) -> None:
        if connection.sock.fileno() >= 0:
            connection.unsent += message
            self._answered.append(connection)
            self._loop.at_round_end(self._flush_all)

    def _flush_all(self) -> None:
        answered, self._answered = self._answered, []
        for connection in dict.fromkeys(answered):
            if connection.sock.fileno() >= 0:
                self._flush(connection)

    def _flush(self, connection: _Connection) -> None:
        try:
            del connection.unsent[: connection.sock.send(connection.unsent)]
        except BlockingIOError:  # EAGAIN: the worker reads slowly
            pass
        except (BrokenPipeError, ConnectionResetError):
            self._close(connection)
            return
        if connection.blocked != bool(connection.unsent):
            connection.blocked = not connection.blocked
            mask = select.EPOLLIN | (select.EPOLLOUT if connection.blocked else 0)
            self._loop.change(connection.sock.fileno(), mask)

    def close(self) -> None:
        """Close the listener and all connections."""
        self._loop.unwatch(self._listener.fileno())
        self._listener.close()
        for connection in list(self._connections):
            self._close(connection)
