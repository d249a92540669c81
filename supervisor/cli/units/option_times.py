"""Times that options take: past ones such as ``10m`` (ago), and future ones such as ``Mon 08:00``."""

import re
from datetime import UTC, datetime, timedelta

import click

from supervisor.config.value_types.durations import parse_duration

_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
_FUTURE = re.compile(r"(?:([A-Za-z]{3,9}) +)?(\d{1,2}):(\d{2})")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def option_moment(option: str, text: str | None) -> str | None:
    """Convert the value of an option to a time in RFC 3339; None if the option was not given.

    Raises:
        click.UsageError: the value is not a time.
    """
    if text is None:
        return None
    try:
        return moment_of(text, datetime.now(UTC).astimezone())
    except ValueError as err:
        raise click.UsageError(f"{option}: {err}") from err


def moment_of(text: str, now: datetime) -> str:
    """Convert a time such as ``10m`` (ago), ``14:30``, ``2026-11-20`` or ``now`` to RFC 3339.

    Args:
        text: The text, which can also be a date with a time, or RFC 3339. Without an offset, it is local time. A time
            of day that is later than now means yesterday.
        now: The present time, with the local offset.

    Raises:
        ValueError: the text is not a time.
    """
    time_of_day = _TIME.fullmatch(text)
    moment = now
    try:
        if time_of_day:
            hour, minute, second = (int(part or 0) for part in time_of_day.groups())
            # Without an offset, because clock changes may be between that time and now.
            moment = now.replace(hour=hour, minute=minute, second=second, microsecond=0, tzinfo=None)
            moment = moment - timedelta(days=1) if moment.astimezone() > now else moment
        elif text[:1].isdigit() and text[-1:].isalpha() and text[-1:] not in "Zz":
            moment = now - timedelta(milliseconds=parse_duration(text))
        elif text != "now":
            moment = datetime.fromisoformat(text)
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError) as err:  # OverflowError: it is before year 1 or after 9999 in UTC
        raise ValueError(
            f'"{text}" is not a time; use 10m (ago), 14:30, 2026-11-20, "2026-11-20 14:30" or RFC 3339'
        ) from err
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def option_time(option: str, text: str, now: datetime | None = None) -> str:
    """Convert the value of an option to RFC 3339: the first such time after `now`, the present, in local time.

    Raises:
        click.UsageError: the value is not a time, or has passed.
    """
    now = datetime.now(UTC).astimezone() if now is None else now
    try:
        moment = _next_time(text, now).astimezone(UTC)
    except (ValueError, OverflowError) as err:
        examples = '22:00, "Mon 08:00", "2026-11-20 22:00" or RFC 3339'
        raise click.UsageError(f'{option}: "{text}" is not a time; use {examples}') from err
    if moment <= now:
        raise click.UsageError(f'{option}: "{text}" has passed')
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def option_end(until: str | None, span: str | None) -> str | None:
    """Return the end of a pause or a window in RFC 3339 from ``--until`` or ``--for``; None if neither was given.

    Raises:
        click.UsageError: a value is no future time or no duration, or both were given.
    """
    if until is not None and span is not None:
        raise click.UsageError("--until cannot be combined with --for")
    if until is not None:
        return option_time("--until", until)
    if span is None:
        return None
    try:
        end = datetime.now(UTC) + timedelta(milliseconds=parse_duration(span))
    except (ValueError, OverflowError) as err:
        raise click.UsageError(f'--for must be a duration such as "2h": {span!r}') from err
    return option_time("--for", end.isoformat())


def _next_time(text: str, now: datetime) -> datetime:
    match = _FUTURE.fullmatch(text)
    if match is None:
        return datetime.fromisoformat(text)
    name, hour, minute = match.groups()
    # Without an offset, because clock changes may be between now and then.
    moment = now.replace(hour=int(hour), minute=int(minute), second=0, microsecond=0, tzinfo=None)
    step = 1
    if name is not None:
        (day,) = [number for number, day in enumerate(_DAYS) if day.startswith(name.lower())]
        moment += timedelta(days=(day - now.weekday()) % 7)
        step = 7
    return moment if moment.astimezone() > now else moment + timedelta(days=step)
