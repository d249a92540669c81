"""The windows of a configuration: their times, each checked to close before it opens again, and their units."""

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import Any

from supervisor.config.cross_checks import selects
from supervisor.config.model import Config, Service, Task
from supervisor.config.problems import InvalidValue, quoted
from supervisor.config.value_types.durations import format_duration
from supervisor.host.zones import zone_named
from supervisor.schedule.cron import Cron
from supervisor.schedule.windows import WindowDefinition

MAX_WINDOWS = 100
_COMPARED = 1000
"""Number of times of an expression between which the shortest interval is searched."""


def window(name: str, values: Mapping[str, Any], zone: str) -> WindowDefinition:
    """Return a window from the values of its keys.

    Raises:
        InvalidValue: its times contradict each other; the path of the error has the key.
    """
    crons: tuple[str, ...] = values.get("cron", ())
    duration_ms: int | None = values.get("duration")
    start, end = (_instant(values.get(key), zone) for key in ("from", "to"))
    if crons and (start is not None or end is not None):
        key = "from" if start is not None else "to"
        raise InvalidValue("cannot be combined with cron", "make two windows of it", path=(key,))
    for key, given, other in (("cron", crons, "duration"), ("duration", duration_ms, "cron")):
        if given and not values.get(other):
            raise InvalidValue(f"needs {other}", f"add {other} = …", path=(key,))
    for key, given, other in (("from", start, "to"), ("to", end, "from")):
        if given is not None and values.get(other) is None:
            raise InvalidValue(f"needs {other}", f"add {other} = …", path=(key,))
    if start is not None and end is not None and start >= end:
        raise InvalidValue("must be later than from", "swap them, or write the right date", path=("to",))
    for text in crons:
        interval_ms = _shortest_interval(text, zone)
        if interval_ms is not None and duration_ms is not None and duration_ms >= interval_ms:
            interval = format_duration(interval_ms)
            message = f"is not shorter than the time between two times of {quoted(text)}, {interval}"
            raise InvalidValue(message, "the window would never close; shorten it", path=("duration",))
    return WindowDefinition(
        name=name,
        crons=crons,
        duration_ms=duration_ms or 0,
        start=start,
        end=end,
        zone=zone,
        **values.get("match", {}),
        **{key: values[key] for key in ("instants", "running", "alarms") if key in values},
    )


def units_of_windows(config: Config) -> dict[str, list[str]]:
    """Return the names of the tasks and services of each window."""
    units: list[Task | Service] = [*config.tasks.values(), *config.services.values()]
    return {name: [unit.name for unit in units if selects(window, unit)] for name, window in config.windows.items()}


def _instant(moment: datetime | None, zone: str) -> int | None:
    """Return a local time, or one with its offset, in milliseconds since the epoch."""
    if moment is None:
        return None
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=zone_named(zone))).timestamp() * 1000)


def _shortest_interval(expression: str, zone: str) -> int | None:
    """Return the shortest time between two of the next times of an expression; None if there is only one."""
    now_ms = int(datetime.now(UTC).timestamp()) * 1000
    times = (instant.at for instant in Cron(expression, zone_named(zone)).occurrences(now_ms) if instant.runs)
    return min((later - earlier for earlier, later in pairwise(islice(times, _COMPARED))), default=None)
