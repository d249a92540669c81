"""Loads croniter, which parses cron expressions, without unnecessary work.

At its import croniter asks :mod:`platform` for the word size, which executes file(1) and takes 40 ms. It also imports
the time zones of dateutil, which take a megabyte and which parsing does not need.
"""

import importlib
import platform
from datetime import UTC, datetime

from supervisor.later import import_later


def _datetime_exists(time: datetime) -> bool:
    """Call the function of dateutil, which croniter only needs to search for instants."""
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
