"""The client of the notifier process, which starts with the first request and exits when idle.

If the notifier process crashes, its open requests are repeated once. More attempts could let one bad request crash it
forever.
"""

from dataclasses import dataclass
from functools import partial

from supervisor.ipc.delivery_request import DeliveryRequest, DeliveryResult, NotifierAnswer, PingRequest
from supervisor.ipc.log_line import Log
from supervisor.scheduler.loop.helper_process import HelperClient, HelperProcess
from supervisor.scheduler.loop.loop import Loop, Timer
from supervisor.scheduler.loop.procedures import Wait, Waiter

_IDLE_MS = 120_000
"""Idle time before the process exits; longer than the interval of the daemon's heartbeat, which would restart it."""
_MOST_TRIES = 2


@dataclass
class _OpenRequest:
    """A request without a result."""

    waiter: Waiter
    tries: int


class NotifierClient(HelperClient):
    """Sends requests to the notifier process, and dispatches the results."""

    answers = (NotifierAnswer,)

    def __init__(self, loop: Loop, log: Log) -> None:
        self._loop = loop
        self._open: dict[str, _OpenRequest] = {}
        self._idle: Timer | None = None
        self._process = HelperProcess(loop, log, "notifier", self)

    def __len__(self) -> int:
        """Return the number of requests without a result."""
        return len(self._open)

    def sent(self, request: DeliveryRequest | PingRequest) -> Wait:
        """Send a request, and wait for its :class:`DeliveryResult`."""
        return partial(self._send, request)

    def _send(self, request: DeliveryRequest | PingRequest, waiter: Waiter) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        self._open[request.key] = _OpenRequest(waiter, tries=int(self._process.running))
        self._process.request(request.key, request)

    def helper_started(self) -> None:
        """Give up the requests that were already sent twice, since a new process receives all others."""
        for key, open_request in self._open.items():
            open_request.tries += 1
            if open_request.tries > _MOST_TRIES:
                self._process.forget(key)
                self._loop.after(0, partial(self._done, key, DeliveryResult("the notifier process exited")))

    def helper_sent(self, message: NotifierAnswer) -> None:
        """Pass a result to the requester."""
        self._done(message.key, message)

    def _done(self, key: str, result: DeliveryResult) -> None:
        open_request = self._open.pop(key, None)
        if open_request is None:
            return
        self._process.forget(key)
        if not self._open:
            self._idle = self._loop.after(_IDLE_MS, self._dismiss)
        open_request.waiter.resume(result)

    def _dismiss(self) -> None:
        self._idle = None
        if not self._open:
            self._process.close()

    def close(self) -> None:
        """Close the connection, which makes the notifier process exit; open requests are dropped."""
        self._process.close()
