"""Samples of the host, for responses and for all streams that request them."""

import time
from typing import Any

import gevent
from gevent.event import Event

from api.read_threads import DatabaseReads
from api.schemas.daemon_info import Sample
from api.schemas.wire_times import rfc3339
from api.streams import sse_encoding
from store import metrics
from store.errors import StoreError

_PERIOD_S = metrics.FINE_MS / 1000
_MARGIN_S = 0.1
"""Time to wait after the end of an interval for its sample to be stored."""


def shown(sample: metrics.MetricSample) -> Sample:
    """Convert a stored sample; floats, which are never negative, are rounded to two decimal places."""
    values: dict[str, Any] = {
        name: int(value * 100 + 0.5) / 100 if type(value) is float else value
        for name, value in zip(Sample.__struct_fields__[1:], sample[1:], strict=True)
        if value is not None
    }
    return Sample(t=rfc3339(sample.at), **values)


class NewestSample:
    """The newest sample. It is read periodically while streams wait for it."""

    def __init__(self, reads: DatabaseReads) -> None:
        self._reads = reads
        self._waiters: set[Event] = set()
        self._looking = False
        self.at = 0
        """Time of the newest sample, ms since the epoch."""
        self.event = b""
        """The newest sample as an event."""

    def enter(self, woken: Event) -> None:
        """Set `woken` whenever there is a new sample."""
        self._waiters.add(woken)
        if not self._looking:
            self._looking = True
            gevent.spawn(self._poll)

    def leave(self, woken: Event) -> None:
        """Stop setting `woken`."""
        self._waiters.discard(woken)

    def _poll(self) -> None:
        while self._waiters:
            try:
                sample = self._reads(metrics.newest)
            except StoreError as err:
                self._reads.log_unreadable("the newest sample", err)
                sample = None
            if sample is not None and sample.at != self.at:  # it is earlier if the clock was set back
                self.at, self.event = sample.at, sse_encoding.event("system", shown(sample))
                for woken in self._waiters:
                    woken.set()
            gevent.sleep(_PERIOD_S - time.time() % _PERIOD_S + _MARGIN_S)
        self._looking = False
