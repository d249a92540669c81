"""Facts in a daemon's database that a simulation can use."""

import os
from dataclasses import dataclass, field

from store.database import open_reader
from store.errors import StoreError
from store.runs.daily_outcomes import totals
from store.tasks import all_tasks
from supervisor.config.model import Config


class NoHistory(Exception):
    """There is a database, but it cannot be read."""


@dataclass(frozen=True)
class History:
    """By name of the task."""

    durations_ms: dict[str, int] = field(default_factory=dict)
    """How long its runs took on average."""
    marks_ms: dict[str, int] = field(default_factory=dict)
    """The newest time of its schedule that was accounted for, milliseconds since the epoch."""


def read_history(config: Config, data_dir: str) -> History:
    """From the database of a daemon with this configuration and data directory; empty when there is none.

    Raises:
        NoHistory: it cannot be read.
    """
    configured = config.storage.database
    target = configured.url if configured is not None else os.path.join(data_dir, "ringward.db")
    if configured is None and not os.access(target, os.R_OK):
        return History()
    timed: dict[str, int] = {}
    taken: dict[str, int] = {}
    try:
        database = open_reader(target)
        try:
            for one in totals(database):
                timed[one.task_name] = timed.get(one.task_name, 0) + one.timed
                taken[one.task_name] = taken.get(one.task_name, 0) + one.duration
            marks = {row.name: row.last_instant for row in all_tasks(database) if row.last_instant is not None}
        finally:
            database.close()
    except (StoreError, ImportError) as err:  # no driver for that server
        raise NoHistory(str(err)) from err
    return History({name: taken[name] // count for name, count in timed.items() if count}, marks)
