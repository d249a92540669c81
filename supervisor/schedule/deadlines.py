"""Deadlines of scheduled instants, from ``finish_by``: a local time of day, or a time after the instant. Pure."""

from datetime import datetime, timedelta
from itertools import count
from zoneinfo import ZoneInfo

from msgspec import Struct

from supervisor.schedule.clock_changes import span_at

_MINUTES_PER_HOUR = 60


class FinishBy(Struct, frozen=True):
    """When the work of an instant is to be done."""

    text: str
    """As in the configuration: ``06:00`` or ``+4h``."""
    minute: int | None = None
    """The minute of the local day; None if `after_ms` is set."""
    after_ms: int = 0
    """The time after the instant, in milliseconds."""


def deadline_of(finish_by: FinishBy, at_ms: int, zone: ZoneInfo) -> int:
    """Return the first deadline after an instant, both in milliseconds since the epoch.

    A local time that does not exist is the end of its gap, and a repeated one its first occurrence.
    """
    if finish_by.minute is None:
        return at_ms + finish_by.after_ms
    hour, minute = divmod(finish_by.minute, _MINUTES_PER_HOUR)
    first = datetime.fromtimestamp(at_ms / 1000, zone).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0)
    days = (first + timedelta(days=day, hours=hour, minutes=minute) for day in count())
    return next(at for local in days if (at := _instant_of(local, zone)) > at_ms)


def _instant_of(local: datetime, zone: ZoneInfo) -> int:
    at_s = int(local.replace(tzinfo=zone).timestamp())
    if datetime.fromtimestamp(at_s, zone).replace(tzinfo=None) != local:
        # With the offset after the change, a time in a gap is an instant before the change.
        at_s = span_at(zone, int(local.replace(tzinfo=zone, fold=1).timestamp())).end
    return at_s * 1000
