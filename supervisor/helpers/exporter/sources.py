"""Sources of news for an exporter: the doorbells of the rings, and the rows of runs in the database.

The rows also show the runs that started and ended while no exporter was running.
"""

import fnmatch
import re
import select
import time
import zlib
from collections.abc import Callable, Collection, Iterable

from logring.errors import LogError
from logring.log_paths import log_path, ring_path
from logring.reader import LogReader
from store.database import Database, open_reader
from store.runs import arrivals, runs_by_unit
from store.runs.arrivals import Arrival, RunEnd
from store.runs.record import Run
from supervisor.helpers.exporter.cursors import Cursors, FollowedRun
from supervisor.ipc.doorbell import DoorbellClient
from supervisor.ipc.log_jobs import ExportJob

EVENTS = "events"
"""The ring that gets a line whenever a run starts or ends."""
_AT_ONCE = 1000
_SELECTION = "selection"
"""The fact that tells whether the selection changed."""
MOST_FOLLOWED = 10_000
"""Limit of runs that are followed at the same time. Other runs are found later by their rows in the database."""


class Doorbells:
    """The doorbells of the root and the scheduler.

    Attributes:
        stopped: Whether the exporter must end.
    """

    def __init__(self, job: ExportJob, stop: int) -> None:
        self._stop = stop
        self._runs = DoorbellClient(job.root_bell, job.token)
        self._events = DoorbellClient(job.scheduler_bell, job.token)
        self._events.subscribe(EVENTS)
        self.stopped = False

    def add(self, run_id: str) -> None:
        """Receive bells for a run's ring from now on."""
        self._runs.subscribe(run_id)

    def remove(self, run_id: str) -> None:
        """Receive no more bells for a run's ring."""
        self._runs.unsubscribe(run_id)

    def wait(self, until_s: float) -> set[str]:
        """Wait for bells, at most until the monotonic time `until_s`; return the names of rings with news."""
        poll = select.poll()
        poll.register(self._stop, select.POLLIN)
        bells = {}
        for bell in (self._runs, self._events):
            fd = bell.connect()
            if fd is not None:
                bells[fd] = bell
                poll.register(fd, select.POLLIN)
        rung: set[str] = set()
        for fd, _ in poll.poll(max(0.0, until_s - time.monotonic()) * 1000):
            if fd == self._stop:
                self.stopped = True
                continue
            names = bells[fd].receive()
            if names is None:
                bells[fd].close()
                names = bells[fd].names
            rung.update(names)
        return rung


class NewRuns:
    """Reads the rows of runs. Every method can raise `store.errors.StoreError`.

    Attributes:
        lost_runs: The number of runs of all units that were purged before their rows were read, judged by gaps in the
            row numbers.
    """

    def __init__(self, job: ExportJob, cursors: Cursors) -> None:
        self._job = job
        self._cursors = cursors
        self._selects = _selection(job.units, job.globs)
        self._selection = zlib.crc32(repr((job.units, job.globs)).encode())
        self._reader: Database | None = None
        self.lost_runs = 0

    def find(self) -> bool:
        """Add at most 1000 new runs to the cursors; return whether there may be more."""
        db = self._open()
        cursors = self._cursors
        if cursors.seen_at is None:
            self._start(db)
            return True
        if cursors.facts.get(_SELECTION) != self._selection:
            self._select_again(db, cursors.seen_at)
        room = min(_AT_ONCE, MOST_FOLLOWED - len(cursors.runs))
        if room <= 0:
            return False
        last = self._last_row(db)
        arrived = arrivals.arrivals(db, last, room)
        if arrived and last == cursors.seen[-1][0]:
            self.lost_runs += arrived[-1].seq - last - len(arrived)
        self._add(arrived)
        return len(arrived) == room

    def ends(self, ids: Collection[str]) -> dict[str, RunEnd]:
        """Return the state of runs by id; purged runs are absent."""
        return arrivals.ends(self._open(), ids)

    def rows(self, ids: Collection[str]) -> dict[str, Run]:
        """Return runs by id, including deleted ones; purged runs are absent."""
        return {run.id: run for run in runs_by_unit.runs_by_id(self._open(), ids)}

    def first_attempts(self, ids: Collection[str]) -> dict[str, str]:
        """Return the id of the first attempt of each run. The search ends at a purged attempt."""
        first = {run_id: run_id for run_id in ids}
        unknown = set(ids)
        while unknown:
            rows = self.rows(unknown)
            before = {run.id: run.retry_of_run_id for run in rows.values() if run.retry_of_run_id is not None}
            first = {run_id: before.get(at, at) for run_id, at in first.items()}
            unknown = set(before.values())
        return first

    def close(self) -> None:
        """Close the connection to the database."""
        if self._reader is not None:
            self._reader.close()

    def _open(self) -> Database:
        if self._reader is None:
            self._reader = open_reader(self._job.database)
        return self._reader

    def _start(self, db: Database) -> None:
        """Begin a new export with the runs that are active and all later ones. Ended runs are not exported."""
        begin_at = self._job.begin_at
        last = arrivals.last_before(db, begin_at)
        active = self._selected(arrival for arrival in arrivals.unfinished(db) if arrival.seq <= last)
        self._cursors.add_runs([(last, arrivals.id_at(db, last) or "")], begin_at, active)
        self._cursors.note(_SELECTION, self._selection)

    def _select_again(self, db: Database, seen_at: int) -> None:
        """Follow the active runs that are selected only now, from their beginning, as a new export does.

        A run whose log is complete may have been selected before, and delivered.
        """
        last = self._last_row(db)
        active = self._selected(arrival for arrival in arrivals.unfinished(db) if arrival.seq <= last)
        new = [run for run in active if run.id not in self._cursors.runs and not self._has_complete_log(run)]
        self._cursors.add_runs([], seen_at, new)
        self._cursors.note(_SELECTION, self._selection)

    def _has_complete_log(self, run: FollowedRun) -> bool:
        job = self._job
        reader = LogReader(ring_path(job.runtime_dir, run.id), log_path(job.data_dir, run.task, run.id))
        try:
            return reader.head().sealed
        except (LogError, OSError):
            return False  # following it reports the error
        finally:
            reader.close()

    def _add(self, arrived: Collection[Arrival]) -> None:
        """Note the rows of new runs, and follow the selected ones."""
        seen_ids = {run_id for _seq, run_id in self._cursors.seen}
        new = [arrival for arrival in arrived if arrival.id not in seen_ids]
        if new:
            rows = [(arrival.seq, arrival.id) for arrival in new]
            self._cursors.add_runs(rows, max(arrival.created_at for arrival in new), self._selected(new))

    def _selected(self, arrived: Iterable[Arrival]) -> list[FollowedRun]:
        return [
            FollowedRun(arrival.id, arrival.task_name, arrival.instance_index)
            for arrival in arrived
            if self._selects(arrival.task_name)
        ]

    def _last_row(self, db: Database) -> int:
        """Return the number of the row after which unknown runs begin.

        Usually that is the last row that was found. But the numbers of the newest rows are reused after their runs were
        purged, or after the database was restored from a copy.
        """
        seq, run_id = self._cursors.seen[-1]
        newest = arrivals.newest(db)
        if newest is None:
            return 0
        if newest.seq >= seq and arrivals.id_at(db, seq) in (run_id, None):
            return seq
        first = min(row for row, _id in self._cursors.seen)
        if newest.seq >= first:
            return first - 1
        return arrivals.last_before(db, self._cursors.seen_at or 0)


def _selection(units: Collection[str], globs: Collection[str]) -> Callable[[str], bool]:
    names = frozenset(units)
    matches = re.compile("|".join(map(fnmatch.translate, globs)) or r"\Z.").match
    return lambda name: name in names or matches(name) is not None
