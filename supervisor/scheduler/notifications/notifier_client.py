"""The scheduler's end of the notifier process: started with the first order, dismissed when there is nothing to do.

An order that a notifier process died with is given to the next one, once: an order that kills it must not kill them
all.
"""

from collections.abc import Callable
from dataclasses import dataclass

from supervisor.ipc.delivery_request import Letter, Ping, Result
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Frame
from supervisor.scheduler.loop.helper_process import Partner
from supervisor.scheduler.loop.loop import Loop, Timer

_IDLE_MS = 120_000
"""Longer than from one heartbeat of the daemon to the next."""
_MOST_TRIES = 2

OnResult = Callable[[Result], None]


@dataclass
class _Open:
    """An order that a notifier has."""

    order: Letter | Ping
    then: OnResult
    tries: int = 0


class Post:
    """Orders that are being carried out."""

    def __init__(self, loop: Loop, log: Log) -> None:
        self._loop = loop
        self._open: dict[str, _Open] = {}
        self._idle: Timer | None = None
        self._notifier = Partner(
            loop,
            log,
            "notifier",
            "supervisor.notifier",
            begun=self._begun,
            heard=self._heard,
            wanted=lambda: bool(self._open),
        )

    def __len__(self) -> int:
        """How many orders have no result yet."""
        return len(self._open)

    def give(self, order: Letter | Ping, then: OnResult) -> None:
        """Have an order carried out; `then` gets the result, from the loop."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        one = self._open[order.key] = _Open(order, then)
        if self._notifier.running:
            self._hand_over(one)
        else:
            self._notifier.need()

    def _hand_over(self, one: _Open) -> None:
        one.tries += 1
        self._notifier.tell(one.order.to_frame())

    def _begun(self) -> None:
        for key, one in list(self._open.items()):
            if one.tries < _MOST_TRIES:
                self._hand_over(one)
            else:
                self._loop.after(0, lambda key=key: self._done(key, Result("the notifier process ended")))  # type: ignore[misc]

    def _heard(self, frame: Frame) -> None:
        self._done(frame["key"], Result(frame["error"], frame["retry_after_ms"]))

    def _done(self, key: str, result: Result) -> None:
        one = self._open.pop(key, None)
        if one is None:
            return
        if not self._open:
            self._idle = self._loop.after(_IDLE_MS, self._dismiss)
        one.then(result)

    def _dismiss(self) -> None:
        self._idle = None
        if not self._open:
            self._notifier.close()

    def close(self) -> None:
        """Hang up: it ends, and what it was doing stays undone."""
        self._notifier.close()
