"""Commands to the scheduler: what API workers call when something has to change.

One connection per call to ``control.sock``: a ``hello`` with the token and the request, then one answer. A request
carries an id and a deadline. The scheduler refuses a request whose deadline has passed, so an answer that the caller
no longer waits for cannot be carried out behind its back; and it answers a repeated id without doing it twice.
"""

import os
import socket
import time
from typing import Any

from supervisor.messages import Decoder, ProtocolError, encode, receive

_DEADLINE_S = 10.0
_GRACE_S = 20.0
"""How long beyond the deadline an answer may take: what was accepted in time is being stored."""
_PATIENCE_S = 600.0
"""The same, for work on many rows."""
_RECONNECT_S = 2.0
_PAUSE_S = 0.05


class Refused(Exception):
    """The scheduler says no; `status` is the HTTP status that says the same."""

    def __init__(self, status: int, detail: str, errors: list[dict[str, Any]] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors or []


class Unavailable(Exception):
    """No scheduler answered: the command was not carried out."""


class ControlClient:
    """Calls operations of the scheduler. Holds no connection; safe to share between greenlets."""

    def __init__(self, path: str, token: str) -> None:
        self._path = path
        self._token = token

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Carry out `op` and return its result.

        A connection that breaks is taken up again for 2 s, from then on, with the same request id: a scheduler that is
        being restarted answers then.

        Raises:
            Refused: unknown names, a state that forbids it, invalid arguments.
            Unavailable: nobody answered in time.
        """
        return self._call(op, arguments, _DEADLINE_S)

    def call_patiently(self, op: str, **arguments: Any) -> dict[str, Any]:
        """The same for an operation that may take minutes, and that does no harm when it is begun again.

        Raises:
            Refused: as :meth:`call`.
            Unavailable: nobody answered; part of it may have been done.
        """
        return self._call(op, arguments, _PATIENCE_S)

    def _call(self, op: str, arguments: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        start = time.monotonic()
        request = {"id": os.urandom(16).hex(), "deadline": start + deadline_s, "op": op, "args": arguments}
        while True:
            began = time.monotonic()
            try:
                answer = self._exchange(request, deadline_s + _GRACE_S)
            except TimeoutError as err:
                raise Unavailable("the scheduler does not answer in time") from err
            except (OSError, ProtocolError):
                answer = None
            if answer is not None:
                return _result(answer)
            broken = time.monotonic()
            if broken - began > _PAUSE_S:
                start = broken  # until now it was at work
            if broken - start > _RECONNECT_S:
                raise Unavailable("the scheduler does not answer")
            time.sleep(_PAUSE_S)

    def _exchange(self, request: dict[str, Any], timeout_s: float = _DEADLINE_S + _GRACE_S) -> dict[str, Any] | None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(timeout_s)
            sock.connect(self._path)
            sock.sendall(encode({"op": "hello", "token": self._token}) + encode(request))
            return receive(sock, Decoder())


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    if answer.get("ok"):
        result: dict[str, Any] = answer["result"]
        return result
    if answer["status"] == 503:
        raise Unavailable(answer["detail"])
    raise Refused(answer["status"], answer["detail"], answer.get("errors"))
