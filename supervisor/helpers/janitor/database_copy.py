"""Copying the database from time to time, so that there is something to start again from."""

import os
import time

from store.errors import StoreError, Unusable
from store.recovery.copies import copied_at_ms, make_copy, suspect
from supervisor.ipc.log_line import Log

_HOUR_MS = 3_600_000
_EACH_HOUR = 64 << 20
"""So many bytes are copied in an hour at most, on average: a larger database is copied less often."""
_FREE = 3
"""There is to be so many times as much free as the copy takes."""


def copy_database(database: str, log: Log) -> int | None:
    """Copy it if that is due; returns when it is due next, ms since the epoch."""
    try:
        size = os.path.getsize(database)
        room = os.statvfs(os.path.dirname(database))
    except OSError as err:
        log.error(f"the database is not copied: {err}")
        return None
    each_ms = _HOUR_MS * max(1, -(-size // _EACH_HOUR))
    now_ms = time.time_ns() // 1_000_000
    made_ms = copied_at_ms(database)
    if made_ms is not None and 0 <= now_ms - made_ms < each_ms:
        return made_ms + each_ms
    free = room.f_bavail * room.f_frsize
    if free < _FREE * size:
        log.warning(f"the database is not copied: it has {size >> 20} MiB, and only {free >> 20} MiB are free")
        return now_ms + each_ms
    try:
        make_copy(database)
    except Unusable as err:
        log.error(f"the database is not copied, and the copy of before is kept: {err}")
        suspect(database)
    except (StoreError, OSError) as err:
        log.warning(f"the database is not copied: {err}")
    return now_ms + each_ms
