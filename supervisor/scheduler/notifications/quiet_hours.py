"""Quiet hours: times of day at which nobody is disturbed."""

from datetime import UTC, datetime, timedelta

from supervisor.config.model import QuietHours
from supervisor.host.zones import zone_named

_MINUTES_PER_HOUR = 60


def end_of_quiet(quiet: QuietHours | None, zone: str, now_ms: int) -> int | None:
    """When the quiet hours end that it is now; None: it is not quiet.

    Args:
        quiet: minutes of the day; those that begin later than they end go over midnight.
        zone: on whose clocks.
        now_ms: milliseconds since the epoch, as is what is returned.
    """
    if quiet is None:
        return None
    local = datetime.fromtimestamp(now_ms / 1000, zone_named(zone))
    minute = local.hour * _MINUTES_PER_HOUR + local.minute
    over_midnight = quiet.begin > quiet.end
    if over_midnight:
        if quiet.end <= minute < quiet.begin:
            return None
    elif not quiet.begin <= minute < quiet.end:
        return None
    day = local.date() + timedelta(days=int(over_midnight and minute >= quiet.begin))
    hour, rest = divmod(quiet.end, _MINUTES_PER_HOUR)
    end = datetime(day.year, day.month, day.day, hour, rest, tzinfo=zone_named(zone))
    # Clocks that are set back can show the end a second time, when it has passed.
    at = end.astimezone(UTC)
    if at.timestamp() * 1000 <= now_ms:
        at = end.replace(fold=1).astimezone(UTC)
    return max(now_ms, round(at.timestamp() * 1000))
