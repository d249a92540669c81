"""The client of the notifier process, which starts with the first request and exits when idle.

If the notifier process crashes, its open requests are repeated once. More attempts could let one bad request crash it
forever.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from supervisor.ipc.delivery_request import DeliveryRequest, DeliveryResult, PingRequest
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Message
from supervisor.scheduler.loop.helper_process import HelperClient, HelperProcess
from supervisor.scheduler.loop.loop import Loop, Timer

_IDLE_MS = 120_000
"""Idle time before the process exits; longer than the interval of the daemon's heartbeat, which would restart it."""
_MOST_TRIES = 2

OnResult = Callable[[DeliveryResult], None]


@dataclass
class _OpenRequest:
    """A request without a result."""

    request: DeliveryRequest | PingRequest
    then: OnResult
    tries: int = 0


class NotifierClient(HelperClient):
    """Sends requests to the notifier process, and dispatches the results."""

    def __init__(self, loop: Loop, log: Log) -> None:
        self._loop = loop
        self._open: dict[str, _OpenRequest] = {}
        self._idle: Timer | None = None
        self._process = HelperProcess(loop, log, "notifier", self)

    def __len__(self) -> int:
        """Return the number of requests without a result."""
        return len(self._open)

    def send(self, request: DeliveryRequest | PingRequest, then: OnResult) -> None:
        """Send a request; `then` receives the result in the loop."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        open_request = self._open[request.key] = _OpenRequest(request, then)
        if self._process.running:
            self._send(open_request)
        else:
            self._process.ensure_started()

    def _send(self, open_request: _OpenRequest) -> None:
        open_request.tries += 1
        self._process.send(open_request.request.to_message())

    def helper_wanted(self) -> bool:
        """Return whether any request has no result."""
        return bool(self._open)

    def helper_started(self) -> None:
        """Send all open requests to a new process; give up a request that was already sent twice."""
        for key, open_request in list(self._open.items()):
            if open_request.tries < _MOST_TRIES:
                self._send(open_request)
            else:
                self._loop.after(0, partial(self._done, key, DeliveryResult("the notifier process exited")))

    def helper_sent(self, message: Message) -> None:
        """Pass a result to the requester."""
        self._done(message["key"], DeliveryResult(message["error"], message["retry_after_ms"]))

    def _done(self, key: str, result: DeliveryResult) -> None:
        open_request = self._open.pop(key, None)
        if open_request is None:
            return
        if not self._open:
            self._idle = self._loop.after(_IDLE_MS, self._dismiss)
        open_request.then(result)

    def _dismiss(self) -> None:
        self._idle = None
        if not self._open:
            self._process.close()

    def close(self) -> None:
        """Close the connection, which makes the notifier process exit; open requests are dropped."""
        self._process.close()
