"""How long the turns of a thread are that the kernel gives the processor to."""

import os
import re
from pathlib import Path

_SHOWN = Path("/proc/self/sched")
_SINCE = (6, 12)


def slice_ns(sched: str) -> int:
    """As ``/proc/<pid>/sched`` shows it."""
    found = re.search(r"^se\.slice +: +(\d+)$", sched, re.MULTILINE)
    assert found is not None, sched
    return int(found[1])


def _kernel() -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])


SHORT_SLICES = _kernel() >= _SINCE and _SHOWN.exists() and "se.slice" in _SHOWN.read_text()
"""Whether there are any, and they are shown."""
