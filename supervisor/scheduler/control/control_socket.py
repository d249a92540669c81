"""``control.sock``: the socket on which API workers send commands to the scheduler.

A client sends ``hello`` with the token, then requests ``{id, deadline, op, args}``. Each request gets one answer, after
its effect is stored. A request after its deadline (monotonic clock) is refused, because its caller no longer waits.

A request may have an entry of the audit log, ``audit: [key, values]``. It is stored in the transaction of the effect;
then the answer has ``recorded``. Otherwise, the client records the request itself, for example with a refusal. The same
key is stored only once.

A repeated id gets the same answer again while it is remembered. Later, or after a restart of the scheduler, the
operation runs again; every operation can be repeated safely.

Callers are not trusted: a worker may run as another user, with any code. So arguments of the wrong type, or that the
database cannot store, are rejected before the operation begins.
"""

import collections
import hmac
import select
import socket
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeVar, Union

import msgspec
from msgspec import Meta, Struct

from store import audit
from store.audit import AuditEntry
from store.database import Database
from supervisor.host.osport import UnixListener, UnverifiedConnections
from supervisor.ipc.messages import Decoder, ProtocolError
from supervisor.ipc.msgspec_messages import encode
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.procedures import Procedure, Procedures, Refused

_READ_BYTES = 65536
_REMEMBERED_BYTES = 1 << 20
"""Limit of the total size of remembered answers."""

Number = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
EntryValues = tuple[Number, str, str, str, str, Number, str, bool]
"""The values of :class:`store.audit.AuditEntry`."""
KeyedEntry = tuple[str, EntryValues]
"""An entry of the audit log with its key."""
Answer = dict[str, Any]
Send = Callable[[Answer], None]
Ulid = Annotated[str, Meta(pattern=r"^[0-7][0-9A-HJKMNP-TV-Z]{25}\Z")]
"""A ULID, checked strictly because it becomes part of file names."""


class Arguments(msgspec.Struct, kw_only=True):
    """The arguments of an operation; this class is for an operation without any. Unknown fields are ignored."""


class RequestEntry:
    """The entry of the audit log of a request, which is stored with the effect of the request.

    Args:
        entry: the entry, if the request is to be recorded.
    """

    def __init__(self, entry: KeyedEntry | None = None) -> None:
        self._entry = entry
        self.recorded = False
        """Whether the entry is stored; otherwise the API worker records the answer."""

    def record(self, change: Change, effect: Callable[[], str | None] = lambda: "") -> None:
        """Store the entry in `change`, which stores the effect of the request or a part of it.

        Args:
            change: the change.
            effect: called in the transaction; returns the effect as text, empty if the entry has it already, or None if
                the request changed nothing.
        """
        if self._entry is not None:
            change.read(partial(_record, *self._entry, effect)).then(self._note)

    def _note(self, recorded: bool) -> None:
        self.recorded = self.recorded or recorded


def _record(key: str, values: EntryValues, effect: Callable[[], str | None], db: Database) -> bool:
    text = effect()
    if text is not None:
        entry = AuditEntry(*values)
        audit.append(db, {key: entry._replace(reason=text or entry.reason)}, replace=True)
    return text is not None


class Rejected(Exception):
    """A request cannot be carried out; `answer` says why."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer["detail"])
        self.answer = answer


A = TypeVar("A", bound=Arguments)
R = TypeVar("R", bound=Answer | Procedure[Answer])
S = TypeVar("S")
_DECLARED: dict[Callable[..., Any], tuple[type[Arguments], str]] = {}
"""The type of the arguments of each operation, and the text for its failure, by method."""


def operation(
    arguments: type[A], failure: str = "the database cannot be written"
) -> Callable[[Callable[[S, A, RequestEntry], R]], Callable[[S, A, RequestEntry], R]]:
    """Make a method the operation of the same name.

    It returns the answer, or is a procedure that returns it after its effect is stored. It may raise :class:`Rejected`.
    If what it waits for is refused, the answer is 503 with `failure` and the error.
    """

    def declare(method: Callable[[S, A, RequestEntry], R]) -> Callable[[S, A, RequestEntry], R]:
        _DECLARED[method] = arguments, failure
        return method

    return declare


class Hello(Struct, tag="hello", tag_field="op"):
    """The first message of a client."""

    token: str


class Request(Struct, kw_only=True, tag_field="op"):
    """The fields of every request. Each operation has a subclass with its name and its arguments, ``args``."""

    id: Annotated[str, Meta(max_length=200)]
    deadline: float
    audit: KeyedEntry | None = None


class _InvalidRequest(Request):
    """A request for an operation that does not exist, or with invalid arguments."""

    refusal: str


class _AnyRequest(Struct):
    id: Annotated[str, Meta(max_length=200)]
    deadline: float
    op: str
    args: dict[str, Any]


_decode_any = msgspec.json.Decoder(_AnyRequest).decode


class Operations:
    """The operations of `subjects`: decodes requests for them, and carries them out."""

    def __init__(self, procedures: Procedures, *subjects: object) -> None:
        self._procedures = procedures
        self._methods: dict[type[Struct], tuple[Callable[..., Any], str]] = {}
        for subject in subjects:
            for name, method in vars(type(subject)).items():
                if callable(method) and method in _DECLARED:
                    arguments, failure = _DECLARED[method]
                    kind = msgspec.defstruct(name, [("args", arguments)], bases=(Request,), tag=name, kw_only=True)
                    self._methods[kind] = getattr(subject, name), failure
        self._names = {kind.__name__ for kind in self._methods}
        self._decode = msgspec.json.Decoder(Union[Hello, *self._methods]).decode

    def decode(self, body: bytes | bytearray) -> Hello | Request:
        """Return the message in the body of a frame.

        Raises:
            ProtocolError: it is not a request.
        """
        try:
            message: Hello | Request = self._decode(body)
        except msgspec.ValidationError as err:
            return self._invalid(body, err)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
            raise ProtocolError("a message that is not JSON in UTF-8") from err
        return message

    def _invalid(self, body: bytes | bytearray, reason: msgspec.ValidationError) -> Request:
        try:
            request = _decode_any(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
            raise ProtocolError(str(err)) from err
        refusal = f"{request.op}: {reason}" if request.op in self._names else f"unknown operation {request.op}"
        return _InvalidRequest(id=request.id, deadline=request.deadline, refusal=refusal)

    def carry_out(self, request: Request, send: Send) -> None:
        """Carry out a request; `send` gets the answer."""
        if isinstance(request, _InvalidRequest):
            send(refused(400, request.refusal))
        else:
            self._procedures.start(self._answer(request, send))

    def _answer(self, request: Request, send: Send) -> Procedure[None]:
        method, failure = self._methods[type(request)]
        entry = RequestEntry(request.audit)
        try:
            answer = method(request.args, entry)  # type: ignore[attr-defined]
            if not isinstance(answer, dict):
                answer = yield from answer
        except Rejected as rejection:
            answer = rejection.answer
        except Refused as refusal:
            answer = refused(503, f"{failure}: {refusal.error}")
        send({**answer, "recorded": True} if entry.recorded else answer)


def done(**result: object) -> Answer:
    """Return an answer that reports success."""
    return {"ok": True, "result": result}


def refused(status: int, detail: str, errors: list[dict[str, Any]] | None = None) -> Answer:
    """Return an answer that refuses a request; the API worker responds with this HTTP status."""
    return {"ok": False, "status": status, "detail": detail, "errors": errors or []}


def refused_for_now(detail: str, retry_after_s: int) -> Answer:
    """Return an answer that refuses a client that exceeds its rate limit (429)."""
    return {**refused(429, detail), "retry_after_s": retry_after_s}


def shutting_down() -> Answer:
    """Return the refusal (503) of a request that the daemon no longer carries out during its shutdown."""
    return refused(503, "the daemon is shutting down")


class _Connection:
    def __init__(self, sock: socket.socket, operations: Operations) -> None:
        self.sock = sock
        self.decoder = Decoder(operations.decode)
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
        operations: Operations,
        also: tuple[int, int] | None = None,
    ) -> None:
        """Listen at `path`, replacing the socket of an earlier scheduler.

        Args:
            loop: the loop of the scheduler.
            path: path of the socket.
            token: the token that callers must send.
            operations: the operations.
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
            connection = _Connection(sock, self._operations)
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

    def _on_message(self, connection: _Connection, request: Hello | Request) -> None:
        if isinstance(request, Hello) == connection.trusted:
            raise ProtocolError("a hello that is not the first message, or a request before it")
        if isinstance(request, Hello):
            if not hmac.compare_digest(request.token.encode(), self._token.encode()):
                raise ProtocolError("wrong token")
            connection.trusted = True
            self._strangers.discard(connection.sock)
            return
        answer, waiting = self._answers.get(request.id), self._waiting.get(request.id)
        if answer is not None:
            self._send(connection, answer)
        elif waiting is not None:
            waiting.append(connection)
        elif self._loop.now_s() > request.deadline:
            self._send(connection, encode({"id": request.id, **refused(503, "the deadline of the request has passed")}))
        else:
            self._waiting[request.id] = [connection]
            self._operations.carry_out(request, partial(self._finish, request.id))

    def _finish(self, request_id: str, answer: Answer) -> None:
        message = encode({"id": request_id, **answer})
        for connection in self._waiting.pop(request_id):
            self._send(connection, message)
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
