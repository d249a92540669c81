"""The agenda of a task: what its schedule does in a span of time, with many runs of a day as one entry. Pure."""

from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Literal

from msgspec import Struct

from supervisor.schedule.cron import Occurrence
from supervisor.schedule.instants import Schedule

MOST_SINGLE = 24
"""If more runs than this begin on a local day, they are one entry."""
_MOST_COUNTED = 1501
"""Runs of a day that are counted one by one, such as each minute of a day with 25 hours; more are extrapolated."""


class AgendaEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run, many runs, or a time in which none starts; times in milliseconds since the epoch."""

    kind: Literal["run", "runs", "closed", "paused"]
    task: str
    at: int
    """The first time, without jitter."""
    until: int | None = None
    """The last time of many runs, or the end of a closed or paused time; None: a single run, or a pause without end."""
    count: int = 1
    """Number of runs."""
    note: str | None = None
    """``gap`` or ``repeated``, as in :class:`supervisor.schedule.cron.Occurrence`."""
    cause: str | None = None
    """Why none starts, or why runs start at this time, in words."""
    run: str | None = None
    """Id of the run that was requested for this time."""


def agenda(name: str, schedule: Schedule, mark_ms: int, start_ms: int, end_ms: int) -> Iterator[AgendaEntry]:
    """Yield the entries from `start_ms` up to `end_ms`, in order; `mark_ms` is the last instant accounted for."""
    after_ms = start_ms - 1
    while (first := next(schedule.occurrences(mark_ms, after_ms), None)) is not None and first.at < end_ms:
        if first.closed is not None:
            after_ms = max(first.at, min(end_ms, schedule.end_of_closing(first)) - 1)
            cause = f"{'calendar' if first.window is None else 'window'}: {first.closed}"
            yield AgendaEntry(kind="closed", task=name, at=first.at, until=after_ms + 1, cause=cause)
            continue
        day_end_ms = min(end_ms, schedule.day_bounds(first.at)[1])
        coming = takewhile(
            lambda instant, end=day_end_ms: instant.at < end and instant.closed is None,  # type: ignore[misc]
            schedule.occurrences(mark_ms, after_ms),
        )
        found = list(islice(coming, _MOST_COUNTED))
        after_ms = found[-1].at if len(found) < _MOST_COUNTED else day_end_ms - 1
        yield from _entries(name, [instant for instant in found if instant.runs], after_ms)


def _entries(name: str, runs: list[Occurrence], last_ms: int) -> Iterator[AgendaEntry]:
    """Yield an entry for each of the runs, or a single one if there are many; `last_ms`: the end of what is covered."""
    if len(runs) <= MOST_SINGLE:
        for instant in runs:
            cause = f"after the window {instant.window}" if instant.window else None
            yield AgendaEntry(kind="run", task=name, at=instant.at, note=instant.note, cause=cause)
        return
    first, last, count = runs[0].at, runs[-1].at, len(runs)
    if count == _MOST_COUNTED:
        count = round((last_ms - first) * (count - 1) / (last - first)) + 1
        last = last_ms
    yield AgendaEntry(kind="runs", task=name, at=first, until=last, count=count)
