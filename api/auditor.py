"""Tells the scheduler who did what, which stores it.

Entries wait in a queue that one greenlet empties, so that nobody's answer waits for the audit, nor a run for an entry
about its trigger: they gather for a moment. A worker that is to end sends what waits first. Nothing in an entry is as a
client sent it: names and ids have passed their patterns, addresses were parsed, reasons are ours; and whatever is no
printable character is replaced, so that an entry is one line wherever it is shown.
"""

import logging
import time
from collections import deque

import gevent
from gevent.event import Event

from api.errors import ApiError
from supervisor.client import ControlClient, Refused, Unavailable

log = logging.getLogger("gunicorn.error")

_MAX_WAITING = 10_000
_TOGETHER = 500
_LONGEST = 300
_GATHER_S = 0.05
_RETRY_S = 1.0
_FLUSH_S = 0.4


def _harmless(text: str) -> str:
    text = text[:_LONGEST]
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


def reason_of(error: ApiError) -> str:
    """Why a request was refused. What is wrong with a field is left out: it could be named by a secret."""
    return "invalid parameters" if error.status == 422 else error.detail


class Auditor:
    """The queue of one worker."""

    def __init__(self, control: ControlClient) -> None:
        self._control = control
        self._waiting: deque[list[object]] = deque()
        self._lost = 0
        self._news = Event()
        self._hurry = Event()
        self._empty = Event()
        self._empty.set()
        self._started = False

    def record(
        self, operation: str, *, who: str, address: str, status: int, target: str = "", reason: str = ""
    ) -> None:
        """Have an entry stored."""
        failed_login = operation == "login" and status == 401
        at = time.time_ns() // 1_000_000
        entry = [at, _harmless(who), _harmless(address), operation, _harmless(target), status, _harmless(reason)]
        if len(self._waiting) >= _MAX_WAITING:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append([*entry, failed_login])
        self._empty.clear()
        self._news.set()
        if not self._started:
            self._started = True
            gevent.spawn(self._send)

    def flush(self) -> None:
        """Wait a moment for what waits: the worker is to end."""
        self._hurry.set()
        self._empty.wait(_FLUSH_S)

    def _send(self) -> None:
        while True:
            self._news.wait()
            self._hurry.wait(_GATHER_S)
            entries = [self._waiting.popleft() for _ in range(min(len(self._waiting), _TOGETHER))]
            try:
                self._control.call("audit", entries=entries)
            except Unavailable:
                self._waiting.extendleft(reversed(entries))
                gevent.sleep(_RETRY_S)
            except Refused as err:
                log.error("%d entries of the audit were refused: %s", len(entries), err)
            if self._lost:
                log.error("%d entries of the audit were lost while the scheduler was away", self._lost)
                self._lost = 0
            if not self._waiting:
                self._news.clear()
                self._empty.set()
