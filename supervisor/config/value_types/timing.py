"""The types of values that determine when a task runs."""

import math
import re
from contextlib import suppress
from datetime import datetime
from typing import Literal

from store.runs.run_durations import LEARNED
from supervisor.config.problems import InvalidValue
from supervisor.config.value_records import FailureRate
from supervisor.config.value_types.values import Duration, Flag, Integer, Text, choice
from supervisor.schedule.deadlines import FinishBy

RETRY_REASONS = ("failed", "timeout", "crashed", "start_failed", "log_overflow")
"""End reasons after which a retry is possible."""
ATTEMPTS = Integer(0, 10_000)
UNLIMITED_ATTEMPTS = "unlimited"

RATE = re.compile(r"([0-9]{1,3}) in ([0-9]{1,3})")
TIME_OF_DAY = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d")
_END_MS = 7_289_654_400_000
"""The first instant of 2201."""
_MOST_RUNS = 100
_EXAMPLE = '"2026-12-24T18:00:00+01:00"'


class Timestamp:
    """A time in RFC 3339 format, as a string or a TOML date-time; in milliseconds since the epoch."""

    expected = f"a time with its offset from UTC such as {_EXAMPLE}"

    def parse(self, value: object, directory: str) -> int:
        """Return the time in milliseconds since the epoch."""
        moment = value
        if not isinstance(moment, datetime):
            text = Text(limit=64, empty=False, expected=self.expected).parse(value, directory)
            try:
                moment = datetime.fromisoformat(text.upper())
            except ValueError:
                raise InvalidValue(f"must be {self.expected}") from None
            if not _MOMENT.match(text):  # other ISO 8601 forms, which fromisoformat accepts
                raise InvalidValue(f"must be {self.expected}")
        if moment.tzinfo is None:
            raise InvalidValue("needs its offset from UTC", f"write Z or an offset at its end, as in {_EXAMPLE}")
        ms = int(moment.timestamp() * 1000)
        if not 0 <= ms < _END_MS:  # a time outside this range cannot be shown in every time zone
            raise InvalidValue("must be a time from 1970 to 2200")
        return ms


class LocalTime:
    """A time in the daemon's time zone, or with its offset from UTC, as a string or a TOML date-time."""

    expected = 'a time such as "2026-12-24 18:00"'

    def parse(self, value: object, directory: str) -> datetime:  # noqa: ARG002 - as in every type
        """Return the time, without an offset if it has none."""
        if isinstance(value, str) and _MOMENT.match(value):
            with suppress(ValueError):
                value = datetime.fromisoformat(value.upper())
        if not isinstance(value, datetime) or not 1970 < value.year <= 2200:
            raise InvalidValue(f"must be {self.expected}")
        return value


class OnStart:
    """Whether a task runs when the daemon starts: always, never, or once per boot of the host."""

    expected = 'true, false or "boot"'

    def parse(self, value: object, directory: str) -> bool | Literal["boot"]:
        """Return whether the task runs when the daemon starts, or the word for once per boot."""
        if value == "boot":
            return "boot"
        try:
            return Flag().parse(value, directory)
        except InvalidValue:
            raise InvalidValue(f"must be {self.expected}") from None


class Attempts:
    """A number of attempts, or ``unlimited``."""

    expected = f'{ATTEMPTS.expected}, or "{UNLIMITED_ATTEMPTS}"'

    def parse(self, value: object, directory: str) -> float:
        """Return the number; infinity for ``"unlimited"``."""
        if value == UNLIMITED_ATTEMPTS:
            return math.inf
        try:
            return ATTEMPTS.parse(value, directory)
        except InvalidValue:
            raise InvalidValue(f"must be {self.expected}") from None


class ExpectedDuration:
    """How long a run usually takes: a duration in milliseconds, or ``learned``."""

    expected = f'{Duration.expected}, or "{LEARNED}"'

    def parse(self, value: object, directory: str) -> int | Literal["learned"]:
        """Return the duration in milliseconds, or the word."""
        if value == LEARNED:
            return "learned"
        try:
            return Duration(low_ms=1).parse(value, directory)
        except InvalidValue:
            raise InvalidValue(f"must be {self.expected}") from None


class Deadline:
    """When the work of a scheduled time is to be done: a local time of day, or a duration after it."""

    expected = 'a time of day such as "06:00", or a duration after the scheduled time such as "+4h"'

    def parse(self, value: object, directory: str) -> FinishBy:
        """Return the deadline."""
        text = Text(limit=64, expected=self.expected).parse(value, directory)
        if match := TIME_OF_DAY.fullmatch(text):
            return FinishBy(text, minute=int(match[1]) * 60 + int(match[2]))
        if not text.startswith("+"):
            raise InvalidValue(f"must be {self.expected}")
        return FinishBy(text, after_ms=Duration(low_ms=1000).parse(text[1:], directory))


class Rate:
    """A number of failures among a number of runs."""

    expected = 'a number of failures in a number of runs, at most 100, such as "3 in 10"'

    def parse(self, value: object, directory: str) -> FailureRate:
        """Return the rate."""
        text = Text(limit=64, expected=self.expected).parse(value, directory)
        match = RATE.fullmatch(text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]) <= _MOST_RUNS:
            raise InvalidValue(f"must be {self.expected}")
        return FailureRate(text, int(match[1]), int(match[2]))


class RetryCause:
    """An end reason, or the exit code of a failed run."""

    expected = f"an exit code, or {choice(*RETRY_REASONS).expected}"

    def parse(self, value: object, directory: str) -> str | int:
        """Return the end reason or the exit code."""
        if isinstance(value, int):
            return Integer(0, 255).parse(value, directory)
        reason: str = choice(*RETRY_REASONS).parse(value, directory)
        return reason
