"""Samples of the host for the demonstration: a day like any other."""

import math
import os
import random
from collections.abc import Iterator

from store.metrics import COARSE_MS, FINE_MS, Sample

_HOUR_MS = 3_600_000
_HOURS = 24


def samples(data_dir: str, now_ms: int) -> Iterator[Sample]:
    """One a minute of the last day, one every five seconds of the last hour, oldest first."""
    rnd = random.Random(2417)  # noqa: S311 - nothing secret
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    place = os.statvfs(data_dir)
    disk_used = (place.f_blocks - place.f_bfree) * place.f_frsize
    busy = 0.0
    at = now_ms - _HOURS * _HOUR_MS
    while at < now_ms - FINE_MS:
        hours = (now_ms - at) / _HOUR_MS
        busy = max(0.0, busy * 0.9 + rnd.gauss(0, 0.04) + (0.5 if rnd.random() < 0.004 else 0))
        cpu = 9 + 5 * math.sin(hours / 4) + 60 * min(busy, 1.2) + rnd.uniform(0, 3)
        traffic = 90_000 * (1.6 + math.sin(hours / 4)) * rnd.uniform(0.6, 1.4)
        yield Sample(
            at,
            cpu=min(cpu, 97),
            load=cpu / 20,
            memory_used=int(memory * (0.38 + 0.03 * math.sin(hours / 3) + 0.05 * min(busy, 1))),
            swap_used=0,
            disk_used=disk_used,
            disk_read=busy * 4e6,
            disk_written=2e5 + busy * 9e6,
            received=traffic / 4,
            sent=traffic,
            cpu_pressure=min(busy * 6, 40),
            memory_pressure=0,
            io_pressure=min(busy * 9, 60),
            running=5 + (busy > 0.3),
            lag=rnd.uniform(0.1, 0.6),
        )
        at += COARSE_MS if hours > 1 else FINE_MS
