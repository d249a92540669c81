"""croniter, which reads the text of cron expressions.

When it is loaded it asks how wide addresses are, for which :mod:`platform` would execute file(1): 40 ms of each start,
for something that croniter finds out by itself as well.
"""

import platform

_architecture = platform.architecture
platform.architecture = lambda *_executable: ("", "")
try:
    from croniter import croniter
    from croniter.croniter import CroniterError
finally:
    platform.architecture = _architecture

__all__ = ["CroniterError", "croniter"]
