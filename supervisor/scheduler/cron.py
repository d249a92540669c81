"""Cron expressions as instants: croniter's arithmetic on local times, with the rules for changes of the clocks over it.

An expression has five fields (minute, hour, day of month, month, day of week), six with seconds in front, or is a macro
such as ``@daily``. Day of month and day of week are joined as Vixie cron joins them: by *or*, but by *and* when one of
them begins with ``*``.

Expressions whose minute and hour are fixed (no ``*`` at their start) mean times of day. Where clocks go forward over
such a time, it comes once, at the end of the gap; where they go back over it, it comes twice; which of these run is
for the task to say. Other expressions follow real time: whatever the clocks show runs, as often as they show it.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from croniter import croniter
from croniter.croniter import CroniterBadDateError, CroniterError

from supervisor.config.model import DstGap, DstOverlap
from supervisor.scheduler.spans import Span, span_at

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_INSTEAD = {"@reboot": 'write run_on_start = "boot"', "@every": 'write every = "5m"'}
_FIELDS = 5
_VALUES = (60, 60, 24, 31, 12, 7)
_RANDOM = re.compile(r"\b[HR]\b", re.IGNORECASE)
_STEP = re.compile(r"/(\d+)")
_MAX_LENGTH = 200


class Occurrence(NamedTuple):
    """An instant of a schedule."""

    at: int
    """Milliseconds since the epoch."""
    runs: bool
    """False: its local time does not exist, or comes twice, and the task does not want this one."""
    note: str | None = None
    """``gap``: its local time does not exist, so it comes at the gap's end; ``repeated``: its local time comes twice;
    None for all others."""


def validate(expression: str) -> str | None:
    """What is wrong with `expression`, or None."""
    if len(expression) > _MAX_LENGTH:
        return f"longer than {_MAX_LENGTH} characters"
    text = expression.strip()
    if text.startswith("@"):
        return _validate_macro(text)
    fields = text.split()
    if len(fields) not in (_FIELDS, _FIELDS + 1):
        return (
            f"{len(fields)} fields where 5 belong: minute hour day-of-month month day-of-week"
            " (or 6, with the second in front)"
        )
    for field, values in zip(fields, _VALUES[-len(fields) :], strict=True):
        if _RANDOM.search(field):
            return "H (hashed) and R (random) are not offered: say the time"
        if any(int(step) > values for step in _STEP.findall(field)):
            return f"a step in {field} is longer than the field, which has {values} values"
    try:
        croniter.expand(text, second_at_beginning=True)
        if fields[-3][0] not in "*?" and next(_local_times(text, 0), None) is None:
            return f"[{text}] is a date that never comes"
    except CroniterError as err:
        return str(err)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as err:  # what croniter lets through
        return f"cannot be read ({err})"
    return None


def _validate_macro(text: str) -> str | None:
    if text.lower() in MACROS:
        return None
    remedy = _INSTEAD.get(text.split(maxsplit=1)[0].lower(), f"known are {', '.join(MACROS)}")
    return f"unknown macro {text}; {remedy}"


class Cron:
    """One expression in one time zone."""

    def __init__(self, expression: str, zone: ZoneInfo, gap: DstGap = "run", overlap: DstOverlap = "first") -> None:
        """Take an expression that :func:`validate` accepted.

        Args:
            expression: five fields, six, or a macro.
            zone: whose clocks it means.
            gap: whether a time that does not exist runs at the gap's end.
            overlap: which of two equal times run.
        """
        text = expression.strip()
        self._text = MACROS.get(text.lower(), text)
        self._zone = zone
        minute, hour = self._text.split()[-_FIELDS:][:2]
        self._fixed = minute[0] != "*" and hour[0] != "*"
        self._gap_runs = gap == "run"
        self._overlap = overlap

    def occurrences(self, after_ms: int) -> Iterator[Occurrence]:
        """The instants later than `after_ms`, in their order, each once; they end when croniter finds no more dates."""
        after_s = after_ms // 1000
        span = span_at(self._zone, after_s)
        times = _local_times(self._text, after_s + span.offset)
        local = next(times, None)
        while local is not None:
            if local - span.offset < span.end:
                yield self._occurrence(local - span.offset, span)
                local = next(times, None)
                continue
            following = span_at(self._zone, span.end)
            first = span.end + following.offset
            in_gap = local < first
            if in_gap or following.offset < span.offset:  # times that no clock shows, or shows again
                times = _local_times(self._text, first - 1)
                local = next(times, None)
            if in_gap and self._fixed and local != first:
                yield Occurrence(span.end * 1000, self._gap_runs, "gap")
            span = following

    def _occurrence(self, at_s: int, span: Span) -> Occurrence:
        again = at_s < span.repeated_until
        if not again and at_s < span.repeated_from:
            return Occurrence(at_s * 1000, runs=True)
        wanted = "second" if again else "first"
        return Occurrence(at_s * 1000, not self._fixed or self._overlap in (wanted, "both"), "repeated")


def _local_times(text: str, after: int) -> Iterator[int]:
    """The local times that match, as seconds of a clock that is never changed."""
    times = croniter(text, float(after), implement_cron_bug=True, second_at_beginning=True)
    while True:
        try:
            yield int(times.get_next(float))
        except CroniterBadDateError:  # none within croniter's horizon of 50 years
            return


def local_text(at_ms: int, zone: ZoneInfo) -> str:
    """An instant on the clocks of a time zone, RFC 3339 with its offset."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(zone).isoformat(timespec="seconds")
