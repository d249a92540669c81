"""The types of values that determine when a task runs."""

import math
import re
from datetime import datetime
from typing import Literal

from supervisor.config.problems import InvalidValue
from supervisor.config.value_types.values import Flag, Integer, Text, choice

RETRY_REASONS = ("failed", "timeout", "crashed", "start_failed", "log_overflow")
"""End reasons after which a retry is possible."""
ATTEMPTS = Integer(0, 10_000)
UNLIMITED_ATTEMPTS = "unlimited"

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d")
_END_MS = 7_289_654_400_000
"""The first instant of 2201."""
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


class RetryCause:
    """An end reason, or the exit code of a failed run."""

    expected = f"an exit code, or {choice(*RETRY_REASONS).expected}"

    def parse(self, value: object, directory: str) -> str | int:
        """Return the end reason or the exit code."""
        if isinstance(value, int):
            return Integer(0, 255).parse(value, directory)
        reason: str = choice(*RETRY_REASONS).parse(value, directory)
        return reason
