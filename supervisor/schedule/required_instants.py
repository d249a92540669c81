"""Which scheduled times of other tasks a scheduled run waits for (``requires``). Pure."""

from supervisor.schedule.instants import Schedule

_FIRST_SPAN_MS = 60_000
_LONGEST_MS = 10 * 366 * 24 * 3600 * 1000
"""Schedules have an instant within such a time, unless they have only one."""


def required_instant(
    required: Schedule, interval_ms: int | None, mark_ms: int, own_previous_ms: int, own_ms: int
) -> int | None:
    """Return the instant of another task that must have succeeded; None if it has none in that time.

    It is the newest one after `own_previous_ms`, up to `own_ms`. An instant that a window skips counts, unlike one that
    a clock change or a calendar skips. All times are in milliseconds since the epoch.

    Args:
        required: the schedule of the other task.
        interval_ms: its ``every``, if it has one.
        mark_ms: its newest instant that was accounted for; intervals are counted from it.
        own_previous_ms: the previous instant of the task that requires it.
        own_ms: the instant that waits.
    """
    return _newest(required, interval_ms, mark_ms, own_previous_ms, own_ms, windows=True)


def previous_instant(schedule: Schedule, interval_ms: int | None, at_ms: int) -> int:
    """Return the instant of a schedule that ran before another one of its instants, `at_ms`."""
    since_ms = at_ms - _LONGEST_MS
    before = _newest(schedule, interval_ms, at_ms, since_ms, at_ms - 1, windows=False)
    return since_ms if before is None else before


def _newest(
    schedule: Schedule, interval_ms: int | None, mark_ms: int, since_ms: int, until_ms: int, *, windows: bool
) -> int | None:
    """Return the newest instant in a period; `windows`: those that windows skip count.

    The search begins near the end and doubles its range, because a long period may have millions of instants.
    """
    span_ms = _FIRST_SPAN_MS
    while True:
        after_ms = max(since_ms, until_ms - span_ms)
        mark = after_ms if interval_ms is None else after_ms - (after_ms - mark_ms) % interval_ms
        newest = None
        for instant in schedule.occurrences(mark, after_ms):
            if instant.at > until_ms:
                break
            if instant.runs or (windows and instant.window is not None):
                newest = instant.at
        if newest is not None or after_ms == since_ms:
            return newest
        span_ms *= 2
