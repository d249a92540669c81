"""croniter, which reads the text of cron expressions.

When it is loaded it asks how wide addresses are, for which :mod:`platform` would execute file(1): 40 ms of each start,
for something that croniter finds out by itself as well. And it loads the time zones of dateutil, a megabyte, of which
the text of an expression needs none.
"""

import importlib
import platform
from datetime import UTC, datetime

from supervisor.later import import_later


def _datetime_exists(time: datetime) -> bool:
    """As dateutil's, which is asked where instants are to be found."""
    exists: bool = importlib.import_module("dateutil.tz.tz").datetime_exists(time)
    return exists


import_later("dateutil.tz", {"datetime_exists": _datetime_exists, "tzutc": lambda: UTC})

_architecture = platform.architecture
platform.architecture = lambda *_executable: ("", "")
try:
    from croniter import croniter
    from croniter.croniter import CroniterError
finally:
    platform.architecture = _architecture

__all__ = ["CroniterError", "croniter"]
