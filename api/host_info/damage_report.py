"""Telling the scheduler that the database is damaged: a worker may be the first to meet that."""

import contextlib
import time

import gevent

from store.errors import StoreError
from supervisor.ipc.control_client import ControlClient, Refused, Unavailable

_AGAIN_S = 5.0
"""Between two reports of a worker: one query after the other may meet the same damage."""


class DamageReport:
    """What one worker reports."""

    def __init__(self, control: ControlClient) -> None:
        self._control = control
        self._not_before_s = 0.0

    def send(self, error: StoreError) -> None:
        """Report it, without waiting for anybody."""
        now_s = time.monotonic()
        if now_s >= self._not_before_s:
            self._not_before_s = now_s + _AGAIN_S
            gevent.spawn(self._send, str(error))

    def _send(self, why: str) -> None:
        with contextlib.suppress(Unavailable, Refused):  # the next query that meets it reports it again
            self._control.call("database_damaged", why=why)
