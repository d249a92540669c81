"""The client of the scheduler's control socket, through which API workers request changes.

A connection to ``control.sock`` begins with a ``hello`` that carries the token. Then requests and answers alternate.
One call at a time uses a connection; idle connections are kept for later calls. A connection that did not deliver a
complete answer is closed, because the late answer could be mistaken for the next request's.

A request carries an id and a deadline. The scheduler refuses a request after its deadline, so no request is carried out
once its caller has stopped waiting. A repeated id gets an answer without the work being done twice. So the client can
send a request again over a new connection if the connection broke.
"""

import os
import socket
import time
from collections import deque
from typing import Any

from supervisor.ipc.messages import ProtocolError, receive
from supervisor.ipc.msgspec_messages import decoder, encode

_DEADLINE_S = 10.0
_GRACE_S = 20.0
"""How long the client waits after the deadline, because the scheduler must still store a command accepted in time."""
_PATIENCE_S = 600.0
"""The deadline for work on many rows."""
_RECONNECT_S = 2.0
_PAUSE_S = 0.05
_KEPT = 32
"""How many idle connections are kept at most."""


class CommandEntry:
    """An entry of the audit log that travels with a request.

    Attributes:
        key: Unique key.
        values: The values of :class:`store.audit.AuditEntry`.
        stored: Whether the scheduler has stored it with the effect of the request.
    """

    def __init__(self, key: str, values: list[object]) -> None:
        self.key = key
        self.values = values
        self.stored = False


class RequestRefused(Exception):
    """The scheduler refused the request; `status` is the corresponding HTTP status."""

    def __init__(
        self,
        status: int,
        detail: str,
        errors: list[dict[str, Any]] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors or []
        self.retry_after_s = retry_after_s


class Unavailable(Exception):
    """The scheduler did not answer, or could not carry out the request."""


class NotSent(Unavailable):
    """No scheduler received the request, so it was certainly not carried out."""


class _Unsent(OSError):
    """The request was not sent completely, so no scheduler accepted it."""


class TemporarilyUnavailable(Unavailable):
    """The scheduler answered that it cannot carry out the request now."""


class _Client:
    """A connection to the scheduler, for one request at a time."""

    def __init__(self, path: str, token: str, timeout_s: float) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._decoder = decoder()
        self._greeting = encode({"op": "hello", "token": token})
        try:
            self._sock.settimeout(timeout_s)
            self._sock.connect(path)
        except (FileNotFoundError, ConnectionRefusedError) as err:
            self.close()
            raise _Unsent from err
        except BaseException:  # including a time-out: the caller has no object to close yet
            self.close()
            raise

    def ask(self, request: dict[str, object], timeout_s: float) -> dict[str, object] | None:
        """Return the answer to a request; None at end of stream.

        Raises:
            ProtocolError: the scheduler sent something other than the answer.
            OSError: the connection broke or timed out; `_Unsent`: the request was not sent.
        """
        self._sock.settimeout(timeout_s)
        greeting, self._greeting = self._greeting, b""
        data = greeting + encode(request)
        # The kernel nearly always takes the whole request at once, for which ``sendall`` would cost twice as much.
        try:
            sent = self._sock.send(data)
            if sent < len(data):
                self._sock.sendall(data[sent:])
        except BrokenPipeError as err:
            raise _Unsent from err
        answer = receive(self._sock, self._decoder)
        if answer is not None and answer.get("id") != request["id"]:
            raise ProtocolError("the answer to another request")
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()


class ControlClient:
    """Calls operations of the scheduler. Greenlets and threads can share it."""

    def __init__(self, path: str, token: str) -> None:
        self._path = path
        self._token = token
        self._idle: deque[_Client] = deque()

    def call(self, op: str, entry: CommandEntry | None = None, /, **arguments: Any) -> dict[str, Any]:
        """Carry out `op` and return its result; the scheduler stores `entry` with the effect, if there is one.

        If the connection breaks, the client repeats the request with the same id for up to 2 s, so that a restarted
        scheduler can answer it.

        Raises:
            RequestRefused: the arguments are invalid, name something unknown, or do not fit the current state.
            Unavailable: no answer came in time; `NotSent`: no scheduler received the request.
        """
        return self._call(op, arguments, entry, _DEADLINE_S)

    def call_patiently(self, op: str, entry: CommandEntry | None = None, /, **arguments: Any) -> dict[str, Any]:
        """Carry out an operation that may take minutes and can be repeated safely.

        Raises:
            RequestRefused: as for :meth:`call`.
            Unavailable: no answer came; the operation may be partly done.
        """
        return self._call(op, arguments, entry, _PATIENCE_S)

    def _call(
        self, op: str, arguments: dict[str, object], entry: CommandEntry | None, deadline_s: float
    ) -> dict[str, object]:
        start = time.monotonic()
        request = {"id": os.urandom(16).hex(), "deadline": start + deadline_s, "op": op, "args": arguments}
        if entry is not None:
            request["audit"] = entry.key, entry.values
        sent = False
        while True:
            started_s = time.monotonic()
            try:
                answer = self._exchange(request, deadline_s + _GRACE_S)
                sent = True
            except TimeoutError as err:
                raise Unavailable("the scheduler did not answer in time") from err
            except _Unsent:
                answer = None
            except (OSError, ProtocolError):
                answer = None
                sent = True
            if answer is not None:
                if entry is not None:
                    entry.stored = bool(answer.get("recorded"))
                return _result(answer)
            broken = time.monotonic()
            if broken - started_s > _PAUSE_S:
                start = broken  # the scheduler was working on it until the connection broke
            if broken - start > _RECONNECT_S:
                raise (Unavailable if sent else NotSent)("the scheduler does not answer")
            time.sleep(_PAUSE_S)

    def _exchange(
        self, request: dict[str, object], timeout_s: float = _DEADLINE_S + _GRACE_S
    ) -> dict[str, object] | None:
        """Return the answer to a request; None if the scheduler hung up without an answer.

        Raises:
            OSError: no scheduler is listening, or the connection broke or timed out; `_Unsent`: it was not sent.
            ProtocolError: the scheduler sent something other than the answer.
        """
        connection = self._idle_connection()
        sent = False
        if connection is not None:
            try:
                answer = self._ask(connection, request, timeout_s)
                sent = True
            except TimeoutError:
                raise
            except _Unsent:  # EPIPE
                answer = None
            except (OSError, ProtocolError):  # ECONNRESET
                answer = None
                sent = True
            if answer is not None:
                return answer
            self.close()  # the scheduler at the other end has ended, so all idle connections are dead
        try:
            return self._ask(_Client(self._path, self._token, timeout_s), request, timeout_s)
        except _Unsent as err:
            if sent:
                raise ConnectionResetError from err
            raise

    def _idle_connection(self) -> _Client | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _ask(self, connection: _Client, request: dict[str, object], timeout_s: float) -> dict[str, object] | None:
        answer = None
        try:
            answer = connection.ask(request, timeout_s)
        finally:
            if answer is not None and len(self._idle) < _KEPT:
                self._idle.append(connection)
            else:
                connection.close()
        return answer

    def close(self) -> None:
        """Close the idle connections."""
        while (connection := self._idle_connection()) is not None:
            connection.close()


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    if answer.get("ok"):
        result: dict[str, object] = answer["result"]
        return result
    if answer["status"] == 503:
        raise TemporarilyUnavailable(answer["detail"])
    raise RequestRefused(answer["status"], answer["detail"], answer.get("errors"), answer.get("retry_after_s"))
