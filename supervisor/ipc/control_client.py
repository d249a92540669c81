"""The client of the scheduler's control socket, by which API workers request changes.

A connection to ``control.sock`` begins with a ``hello`` that has the token; then requests and answers take turns. It
belongs to one call at a time, and a few are kept for the next calls. A connection that did not bring the whole answer
to its request is never used again: a late answer could be taken for that of another request.

A request carries an id and a deadline. The scheduler refuses a request whose deadline has passed, so a request is never
carried out after its caller has stopped waiting. It answers a repeated id without doing the work twice. So a request
whose connection broke, perhaps long before it, can be sent again over another one.
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
"""How long an answer may take beyond the deadline: the scheduler stores accepted requests."""
_PATIENCE_S = 600.0
"""The same, for work on many rows."""
_RECONNECT_S = 2.0
_PAUSE_S = 0.05
_KEPT = 32
"""Connections that wait for the next call."""


class Refused(Exception):
    """The scheduler says no; `status` is the HTTP status that says the same."""

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
    """No scheduler answered: the command was not carried out."""


class NotSent(Unavailable):
    """No scheduler was there to take the command."""


class _Unsent(OSError):
    """The request was not sent as a whole, so no scheduler accepted it."""


class CannotNow(Unavailable):
    """A scheduler answered that it cannot carry the command out now."""


class _Connection:
    """To the scheduler, for one request after the other."""

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
        except BaseException:  # no other code closes it
            self.close()
            raise

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
        """Return the answer to a request; None at end of stream.

        Raises:
            ProtocolError: what came is no answer to it.
            OSError: the connection broke, or the time passed; `_Unsent`: before the request was sent.
        """
        self._sock.settimeout(timeout_s)
        greeting, self._greeting = self._greeting, b""
        data = greeting + encode(request)
        # Nearly always the kernel takes all of it at once, and then ``sendall`` costs twice as much.
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
    """Calls operations of the scheduler; safe to share between greenlets, and between threads."""

    def __init__(self, path: str, token: str) -> None:
        self._path = path
        self._token = token
        self._idle: deque[_Connection] = deque()

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Carry out `op` and return its result.

        After a broken connection, the client reconnects for 2 s and repeats the request with the same id: a restarting
        scheduler answers then.

        Raises:
            Refused: unknown names, a state that forbids it, invalid arguments.
            Unavailable: no answer came in time; `NotSent`: no scheduler was there.
        """
        return self._call(op, arguments, _DEADLINE_S)

    def call_patiently(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Carry out an operation that may take minutes, and that does no harm when it is repeated.

        Raises:
            Refused: as :meth:`call`.
            Unavailable: no answer came; the request may have been executed in part.
        """
        return self._call(op, arguments, _PATIENCE_S)

    def _call(self, op: str, arguments: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        start = time.monotonic()
        request = {"id": os.urandom(16).hex(), "deadline": start + deadline_s, "op": op, "args": arguments}
        sent = False
        while True:
            began = time.monotonic()
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
                return _result(answer)
            broken = time.monotonic()
            if broken - began > _PAUSE_S:
                start = broken  # until now it was at work
            if broken - start > _RECONNECT_S:
                raise (Unavailable if sent else NotSent)("the scheduler does not answer")
            time.sleep(_PAUSE_S)

    def _exchange(self, request: dict[str, Any], timeout_s: float = _DEADLINE_S + _GRACE_S) -> dict[str, Any] | None:
        """Return the answer to a request; None when the scheduler hung up without one.

        Raises:
            OSError: no scheduler listens, the connection broke, or the time passed; `_Unsent`: it was not sent.
            ProtocolError: what came is no answer.
        """
        kept = self._kept()
        sent = False
        if kept is not None:
            try:
                answer = self._ask(kept, request, timeout_s)
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
            self.close()  # that scheduler has ended, perhaps long ago
        try:
            return self._ask(_Connection(self._path, self._token, timeout_s), request, timeout_s)
        except _Unsent as err:
            if sent:
                raise ConnectionResetError from err
            raise

    def _kept(self) -> _Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _ask(self, connection: _Connection, request: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
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
        """Close connections on which no caller waits."""
        while (connection := self._kept()) is not None:
            connection.close()


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    if answer.get("ok"):
        result: dict[str, Any] = answer["result"]
        return result
    if answer["status"] == 503:
        raise CannotNow(answer["detail"])
    raise Refused(answer["status"], answer["detail"], answer.get("errors"), answer.get("retry_after_s"))
