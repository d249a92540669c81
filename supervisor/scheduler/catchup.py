"""Instants that passed while nobody watched: pure."""

from dataclasses import dataclass

from supervisor.scheduler.cron import Cron, next_instant

_MAX_COUNTED = 10_000


@dataclass(frozen=True)
class Gap:
    """Instants that nobody saw."""

    count: int
    newest: int
    """Milliseconds since the epoch, as is `previous`."""
    previous: int | None
    """The one before the newest; None when there is only one."""


def gap(crons: list[Cron], last_ms: int, now_ms: int) -> Gap | None:
    """The instants after `last_ms` and not after `now_ms`; None when there is none.

    Counting stops at 10,000; the newest is then the last one counted.
    """
    count = 0
    newest, previous = last_ms, None
    while count < _MAX_COUNTED:
        following = next_instant(crons, newest)
        if following is None or following > now_ms:
            break
        previous = newest if count else None
        newest = following
        count += 1
    return Gap(count, newest, previous) if count else None
