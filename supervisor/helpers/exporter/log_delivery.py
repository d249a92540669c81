"""Follows the logs of the selected runs, and delivers their lines in order.

An exporter does not buffer lines. It reads a batch, delivers it, stores the cursors and waits for the disk. So each
line is delivered at least once, and twice only if the exporter is killed between delivery and storing. A slow or dead
receiver causes a backlog, which the size of the logs limits. One record replaces a group of lines that were removed.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from logring.block import Batch
from logring.errors import LogError
from logring.follower import LogFollower
from logring.log_paths import log_path, ring_path
from logring.reader import LogReader
from store.errors import StoreError
from store.runs.arrivals import RunEnd
from store.runs.phases import NEVER_RAN
from supervisor.helpers.exporter.cursors import Cursors, FollowedRun
from supervisor.helpers.exporter.log_records import (
    DAMAGED,
    GONE,
    DeliveryFailed,
    EndedRun,
    EndSink,
    LinesRejected,
    LogGap,
    Piece,
    Sink,
    in_small_pieces,
)
from supervisor.helpers.exporter.sources import EVENTS, Doorbells, NewRuns
from supervisor.helpers.exporter.status_reports import StatusReporter
from supervisor.ipc.backoff import backoff
from supervisor.ipc.log_jobs import ExportJob

_BATCH_BYTES = 8 << 20
_FILE_BATCH_BYTES = 32 << 20
"""The batch size for a file. It is larger because each batch waits twice for the disk."""
_TURN_BYTES = 4 << 20
"""Bytes that are read from one run before another run gets a turn."""
_LINES = 1 << 20
_INTERVAL_S = 0.1
"""The pause between batches, so that a trickle of lines does not wait for the disk after every line."""
_POLL_S = 1.0
"""The interval at which all runs are polled, because bells can be lost."""
_REST_FACTOR = 20
"""The pause after a poll as a multiple of its duration, so that polls use at most 5 % of a core."""
_RETRY_S = (1.0, 2.0, 5.0, 10.0, 30.0)
_MOST_READERS = 200
_MOST_ENDS = 1000
_RECEIVER, _REJECTED, _CURSORS, _DATABASE = "receiver", "rejected", "cursors", "database"
"""The subjects of failures, in addition to the ids of runs."""


@dataclass(eq=False)
class _Followed:
    """A followed run with its log."""

    run: FollowedRun
    log: LogFollower
    ended: RunEnd | None = None
    """How the run ended according to the database, if it has no log."""
    mark: bytes = b""
    """The mark of the ring at the last look, by which an unchanged ring is recognised."""


class Exporter:
    """Delivers the lines of one export.

    Args:
        job: The lines to deliver.
        cursors: The position of the export.
        sink: The receiver of the lines.
        ends: The receiver of the ends of runs, if there is one.
        stop: A descriptor that becomes readable when the exporter must end.
        report: Reports the status and failures.
    """

    def __init__(
        self, job: ExportJob, cursors: Cursors, sink: Sink, ends: EndSink | None, stop: int, report: StatusReporter
    ) -> None:
        self._job = job
        self._cursors = cursors
        self._sink = sink
        self._ends = ends
        self._excluded = frozenset(job.excluded)
        self._report = report
        self._new_runs = NewRuns(job, cursors)
        self._bells = Doorbells(job, stop)
        self._runs: dict[str, _Followed] = {}
        self._ready: dict[str, None] = {}
        """Runs that may have lines to deliver, in the order of their turns."""
        self._ending: dict[str, _Followed] = {}
        """Runs whose lines are delivered but whose ends are not."""
        self._failures = 0
        self._retry_s = self._batch_s = self._poll_s = self._find_s = self._ends_s = 0.0
        """Monotonic times when the next retry, batch, poll of all runs, search for new runs and delivery of ends is
        due."""
        self._more_rows = True

    def run(self) -> None:
        """Deliver until the exporter must end; a batch in progress is finished first."""
        while not self._bells.stopped:
            now_s = time.monotonic()
            if self._more_rows and now_s >= self._find_s:
                self._find_s = now_s + _INTERVAL_S
                self._find_new_runs()
            if now_s >= self._poll_s:
                self._poll()
                self._poll_s = now_s + max(_POLL_S, _REST_FACTOR * (time.monotonic() - now_s))
            if self._ready and now_s >= max(self._retry_s, self._batch_s):
                if self._store():
                    self._deliver_batch()
                self._batch_s = now_s if self._ready else now_s + _INTERVAL_S
            if self._ending and now_s >= max(self._retry_s, self._ends_s):
                self._ends_s = now_s + _POLL_S
                self._deliver_ends()
            if self._report.is_due():
                self._report.send(*self._backlog())
            self._wait()
        self._report.send(*self._backlog())

    def _wait(self) -> None:
        """Wait for a bell, or until the next step is due."""
        due_s = [self._poll_s]
        if self._ready:
            due_s.append(max(self._retry_s, self._batch_s))
        if self._more_rows:
            due_s.append(self._find_s)
        if self._ending:
            due_s.append(max(self._retry_s, self._ends_s))
        for name in self._bells.wait(min(due_s)):
            if name == EVENTS:
                self._more_rows = True
                self._ends_s = min(self._ends_s, time.monotonic() + _INTERVAL_S)
            elif name in self._runs and name not in self._ending:
                self._ready[name] = None

    def _backlog(self) -> tuple[int, int]:
        behind = [run.log.end - run.log.line for run in self._runs.values() if run.log.end > run.log.line]
        return sum(behind), len(behind)

    # Runs

    def _find_new_runs(self) -> None:
        """Look for new runs and follow the selected ones."""
        try:
            self._more_rows = self._new_runs.find()
        except StoreError as err:
            self._report.failed(_DATABASE, f"cannot read the database: {err}")
            return
        self._report.succeeded(_DATABASE)
        self._store()
        self._report.lost_runs(self._new_runs.lost_runs)
        self._new_runs.lost_runs = 0
        new = [run for run in self._cursors.runs.values() if run.id not in self._runs]
        if new and self._ends is not None:
            try:
                first = self._new_runs.first_attempts([run.id for run in new])
            except StoreError as err:
                self._more_rows = True
                self._report.failed(_DATABASE, f"cannot read the database: {err}")
                return
            new = [run._replace(root=first[run.id]) for run in new]
        for run in new:
            self._follow(run)

    def _follow(self, run: FollowedRun) -> None:
        job = self._job
        reader = LogReader(ring_path(job.runtime_dir, run.id), log_path(job.data_dir, run.task, run.id))
        self._runs[run.id] = _Followed(run, LogFollower(reader, self._cursors.at.get(run.id, 0)))
        self._ready[run.id] = None
        self._bells.add(run.id)

    def _forget(self, followed: _Followed) -> None:
        followed.log.reader.close()
        self._report.succeeded(followed.run.id)
        self._bells.remove(followed.run.id)
        self._ready.pop(followed.run.id, None)
        self._ending.pop(followed.run.id, None)
        del self._runs[followed.run.id]

    def _poll(self) -> None:
        """Check all logs for new lines, and query the database for runs without a log."""
        absent = []
        rings = 0
        for followed in self._runs.values():
            if followed.run.id in self._ending:
                continue
            log = followed.log
            mark = log.reader.mark()
            if not mark or mark != followed.mark:
                try:
                    log.look()
                except (LogError, OSError):  # the run's next turn reports the error
                    self._ready[followed.run.id] = None
                    continue
                followed.mark = log.reader.mark()
                if log.is_behind or log.head.sealed:
                    self._ready[followed.run.id] = None
                elif not log.reader.has_ring:
                    absent.append(followed.run.id)
            rings += log.reader.has_ring
            if rings > _MOST_READERS:
                followed.log.reader.close()
        self._find_ended(absent)
        self._more_rows = True
        try:
            self._sink.idle()
        except DeliveryFailed as err:
            self._report.failed(_RECEIVER, str(err))

    def _find_ended(self, ids: list[str]) -> None:
        """Find out which of these runs without a log have ended."""
        if not ids:
            return
        try:
            ends = self._new_runs.ends(ids)
        except StoreError as err:
            self._report.failed(_DATABASE, f"cannot read the database: {err}")
            return
        for run_id in ids:
            end = ends.get(run_id)
            if end is None:
                end = RunEnd(ended=True, lines=0)
                self._report.lost_runs(int(self._runs[run_id].log.line == 0 and run_id not in self._ready))
            if end.ended:
                self._runs[run_id].ended = end
                self._ready[run_id] = None

    # Lines

    def _deliver_batch(self) -> None:
        """Deliver one batch of lines from the runs that are ready, up to the batch size."""
        pieces: list[Piece] = []
        finished: list[_Followed] = []
        size = 0
        most = _FILE_BATCH_BYTES if self._job.type == "file" else _BATCH_BYTES
        while self._ready and size < most:
            followed = self._runs[next(iter(self._ready))]
            del self._ready[followed.run.id]
            for content in self._next_content(followed, finished):
                pieces.append(Piece(followed.run, content))
                size += len(content.text)
        selected = [
            (index, piece)
            for index, piece in enumerate(pieces)
            if piece.content.stream in self._job.streams and piece.run.task not in self._excluded
        ]
        delivered, rejected = len(pieces), range(0)
        if selected:
            try:
                number = self._sink.deliver([piece for _, piece in selected])
            except DeliveryFailed as err:
                delivered = selected[err.delivered][0]
                self._delivery_failed(err)
            except LinesRejected as err:
                rejected = range(err.delivered, err.end if err.lines is None else err.delivered)
                delivered = selected[err.end - 1][0] + 1
                self._report.succeeded(_RECEIVER)
                self._report.failed(_REJECTED, str(err))
                self._report.rejected(err.lines or 0)
            else:
                delivered = len(pieces) if number == len(selected) else selected[number][0]
                self._failures = 0
                self._report.succeeded(_RECEIVER)
                self._report.succeeded(_REJECTED)
        for number, (index, piece) in enumerate(selected):
            if index < delivered:
                self._report.count(piece, rejected=number in rejected)
        self._move_cursors(pieces, delivered, finished)

    def _move_cursors(self, pieces: list[Piece], delivered: int, finished: list[_Followed]) -> None:
        """Move the cursors past the first `delivered` pieces, finish the runs in `finished`, and store both."""
        for piece in pieces[:delivered]:
            self._cursors.move(piece.run.id, piece.content.next)
        remaining = {piece.run.id for piece in pieces[delivered:]}
        for piece in reversed(pieces[delivered:]):
            followed = self._runs[piece.run.id]
            followed.log.line, followed.mark = piece.content.n, b""
            self._ready[piece.run.id] = None
        for followed in finished:
            if followed.run.id in remaining:
                continue
            if self._ends is None:
                self._finish(followed)
            else:
                self._ending[followed.run.id] = followed
                self._ends_s = 0.0
                self._bells.remove(followed.run.id)
                followed.log.reader.close()
        self._store()

    def _finish(self, followed: _Followed) -> None:
        self._cursors.finish(followed.run.id)
        self._forget(followed)

    def _delivery_failed(self, err: DeliveryFailed) -> None:
        self._retry_s = time.monotonic() + pause_s(self._failures, err)
        self._failures += 1
        self._report.failed(_RECEIVER, str(err))

    def _deliver_ends(self) -> None:
        """Deliver the ends of runs whose lines are delivered. A row can show the end later than the log does."""
        assert self._ends is not None  # noqa: S101 - it has runs
        run_ids = [*islice(self._ending, _MOST_ENDS)]
        try:
            rows = self._new_runs.rows(run_ids)
        except StoreError as err:
            self._report.failed(_DATABASE, f"cannot read the database: {err}")
            return
        ended: list[EndedRun] = []
        for run_id in run_ids:
            followed, row = self._ending[run_id], rows.get(run_id)
            never_ran = row is not None and row.end_reason is not None and row.end_reason in NEVER_RAN
            if row is None or never_ran or followed.run.task in self._excluded:
                self._finish(followed)
            elif row.end_reason is not None:
                ended.append(EndedRun(followed.run, row))
        delivered = 0
        try:
            if ended:
                delivered = self._ends.deliver_ends(ended)
                self._failures = 0
                self._report.succeeded(_RECEIVER)
        except DeliveryFailed as err:
            self._delivery_failed(err)
        except LinesRejected as err:
            delivered = err.end
            self._report.failed(_REJECTED, str(err))
        for run in ended[:delivered]:
            self._finish(self._ending[run.run.id])
        # Runs that are still active move to the end of the queue.
        for run_id in run_ids:
            if run_id in self._ending:
                self._ending[run_id] = self._ending.pop(run_id)
        self._store()

    def _next_content(self, followed: _Followed, finished: list[_Followed]) -> Iterator[Batch | LogGap]:
        """Yield the next lines of a run, and add the run to `finished` if these are its last lines."""
        run_id, log, start = followed.run.id, followed.log, followed.log.line
        try:
            page = log.read_batches(_LINES, _TURN_BYTES)
            followed.mark = log.reader.mark()
        except OSError as err:  # the next poll tries again
            followed.mark = b""
            self._report.failed(run_id, f"cannot read the log of run {run_id}: {err.strerror or err}")
            return
        except LogError:  # the log is damaged, so no more lines can ever be read
            yield from _gap(log, log.end, DAMAGED)
            finished.append(followed)
            return
        self._report.succeeded(run_id)
        if page is not None:
            if page.skipped:
                yield LogGap(start, time.time_ns() // 1_000_000, page.skipped, DAMAGED if page.damage else GONE)
            for batch in page.lines:
                yield from in_small_pieces(batch)
        if log.is_behind:
            self._ready[run_id] = None
        elif log.head.sealed:
            finished.append(followed)
        elif followed.ended is not None and not log.reader.has_ring:
            yield from _gap(log, max(followed.ended.lines, log.end), GONE)
            finished.append(followed)

    def _store(self) -> bool:
        """Store the cursors; return False if that failed, because nothing more may be delivered then."""
        try:
            self._cursors.commit()
        except OSError as err:
            directory = f"{self._job.data_dir}/exports"
            self._retry_s = time.monotonic() + _RETRY_S[0]
            self._report.failed(_CURSORS, f"cannot write its position in {directory}: {err.strerror or err}")
            return False
        self._report.succeeded(_CURSORS)
        return True


def pause_s(failures: int, err: DeliveryFailed) -> float:
    """Return the pause after a failed delivery that follows a number of others, in seconds."""
    return max(backoff(_RETRY_S, failures), err.retry_after_ms / 1000)


def _gap(log: LogFollower, end: int, reason: str) -> Iterator[LogGap]:
    """Yield a gap for the lines before `end` that were not read, and move past them."""
    if end > log.line:
        yield LogGap(log.line, time.time_ns() // 1_000_000, end - log.line, reason)
        log.line = end
