"""Reads the durations and schedules of past runs from a daemon's database, for a simulation."""

import os
from dataclasses import dataclass, field

from store.database import open_reader
from store.errors import StoreError
from store.runs.daily_outcomes import totals
from store.tasks import all_tasks
from supervisor.config.model import Config


class HistoryUnreadable(Exception):
    """The database exists but cannot be read."""


@dataclass(frozen=True)
class PastRuns:
    """Facts about past runs, by the name of the task."""

    durations_ms: dict[str, int] = field(default_factory=dict)
    """The average duration of runs."""
    marks_ms: dict[str, int] = field(default_factory=dict)
    """The last instant of the schedule on which the scheduler has decided, in ms since the epoch."""


def read_history(config: Config, data_dir: str) -> PastRuns:
    """Read the database of a daemon with this configuration and data directory; empty if there is no database.

    Raises:
        HistoryUnreadable: the database cannot be read.
    """
    configured = config.storage.database
    target = configured.url if configured is not None else os.path.join(data_dir, "ringward.db")
    if configured is None and not os.access(target, os.R_OK):
        return PastRuns()
    timed: dict[str, int] = {}
    durations_ms: dict[str, int] = {}
    try:
        database = open_reader(target)
        try:
            for total in totals(database):
                timed[total.task_name] = timed.get(total.task_name, 0) + total.timed
                durations_ms[total.task_name] = durations_ms.get(total.task_name, 0) + total.duration
            marks = {row.name: row.last_instant for row in all_tasks(database) if row.last_instant is not None}
        finally:
            database.close()
    except (StoreError, ImportError) as err:  # ImportError: the driver of the server is not installed
        raise HistoryUnreadable(str(err)) from err
    return PastRuns({name: durations_ms[name] // count for name, count in timed.items() if count}, marks)
