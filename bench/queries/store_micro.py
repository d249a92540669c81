"""Latencies of the store, at a million runs.

``python -m bench.queries.store_micro [--runs N] [--part PART] [--database URL]``

The URL names an empty PostgreSQL database; the default is SQLite in a temporary directory.

It prints p50 and worst of each call beside its bar, in ms, and as a multiple of the floor. The floor is a bare `SELECT
1` through the same reader, or a bare INSERT through the same writer, measured in the same run.
"""

import argparse
import os
import random
import select
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, get_args

from bench.queries.history import DAY, SPAN_DAYS, T0, fill, task_name
from store import events
from store.connection import Connection
from store.database import Database, open_reader, open_writer
from store.runs.bulk import (
    Retention,
    RunSelection,
    find_deleted,
    find_ended,
    find_excess,
    find_expired,
    mark_deleted,
    purge,
    unmark_deleted,
)
from store.runs.filter import RunFilter
from store.runs.ids import new_ulid
from store.runs.run_durations import KEPT_DURATIONS, LEARNED, expectation, newest_durations
from store.runs.run_pages import Direction, Sort, SortField, count_runs, list_runs
from store.runs.summary import summarize
from store.runs.writes import Run, get_run, insert_run, unfinished_runs, update_run
from store.store_thread import StoreThread
from store.tasks import PromiseState, active_counts, encode_promises, last_runs, update_task

TASKS = 200
NOW = T0 + SPAN_DAYS * DAY + 5_000
MIDDLE = RunFilter(created_after=T0 + 20 * DAY + 5, created_before=T0 + 60 * DAY + 5)
WEEK = RunFilter(created_after=T0 + 30 * DAY + 5, created_before=T0 + 37 * DAY + 5)

# Filters with a bar of 10 ms for pages by time or duration.
COMMON: dict[str, RunFilter] = {
    "no filter": RunFilter(),
    "task (0.5 %)": RunFilter(task="job-050"),
    "task (7 %)": RunFilter(task="job-000"),
    "status failed (9 %)": RunFilter(reasons={"failed"}),
    "status succeeded (85 %)": RunFilter(reasons={"succeeded"}),
    "status crashed (0.3 %)": RunFilter(reasons={"crashed"}),
    "status failed, as B folds": RunFilter(reasons={"failed", "start_failed"}),
    "status running": RunFilter(phases={"running"}),
    "trigger api": RunFilter(triggers={"api"}),
    "trigger startup": RunFilter(triggers={"startup"}),
    "trigger cron, as B folds": RunFilter(triggers={"cron", "service", "startup"}),
    "a week": WEEK,
    "40 of 90 days": MIDDLE,
    "task + status": RunFilter(task="job-050", reasons={"failed"}),
    "task + trigger": RunFilter(task="job-000", triggers={"api"}),
    "task + 40 days": replace(MIDDLE, task="job-000"),
    "status + trigger": RunFilter(reasons={"failed"}, triggers={"api"}),
    "status + 40 days": replace(MIDDLE, reasons={"failed"}),
    "trigger + 40 days": replace(MIDDLE, triggers={"api"}),
}
# Other filters, and other sorts, have a bar of 200 ms.
RARE: dict[str, RunFilter] = {
    "retries only": RunFilter(retries_only=True),
    "exit code 1 to 2": RunFilter(exit_code_min=1, exit_code_max=2),
    "exit code 137 + retries": RunFilter(exit_code_min=137, exit_code_max=137, retries_only=True),
    "search in names": RunFilter(search="JOB-05"),
    "search in ids, some": RunFilter(search="7A"),
    "search in ids, none": RunFilter(search="7A7B7C7D"),
    "search in ids, all": RunFilter(search="0"),
    "search for one id": RunFilter(search=new_ulid(T0)),
}
FAST_SORTS: tuple[SortField, ...] = ("created_at", "start_at", "duration")
# A tenth of all runs, in different places of the table.
TENTHS: dict[str, RunFilter] = {
    "by trigger": RunFilter(triggers={"api"}),
    "by status": RunFilter(reasons={"failed"}),
    "by time": RunFilter(created_after=T0, created_before=T0 + SPAN_DAYS * DAY // 10),
    "by time, newest": RunFilter(created_after=T0 + SPAN_DAYS * DAY * 9 // 10),
}
PARTS = ("reads", "deleted", "writes", "bulk")
TIMER_S = 0.01
PAUSE_S = 0.05
SLOW_SORTS: tuple[SortField, ...] = ("task_name", "status", "exit_code")


def new_run(task: str, created: int, **fields: Any) -> Run:
    started = created if fields.get("status") == "running" else None
    base = Run(new_ulid(created), task, "task", "pending", None, -1, 0, 0, None, "cron", created, started)
    return base._replace(**fields)


def timed(call: Callable[[], object], times: int) -> list[float]:
    """Return the durations of calls in ms, after a warm-up call."""
    call()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        taken.append((time.perf_counter() - start) * 1000)
    return taken


class Table:
    """A report that prints each line when it is measured."""

    def __init__(self, floor_ms: float, floor: str) -> None:
        self.floor_ms = floor_ms
        print(f"\n{'':44} {'p50 ms':>9} {'worst':>9} {'bar':>6}   times the floor ({floor}: {floor_ms:.4f} ms)")

    def line(self, name: str, taken: list[float], bar: float | None = None) -> None:
        p50 = statistics.median(taken)
        verdict = "" if bar is None else "  ok" if p50 <= bar else "  MISSED"
        shown = "" if bar is None else f"{bar:g}"
        print(f"{name:44} {p50:9.3f} {max(taken):9.3f} {shown:>6} {p50 / self.floor_ms:9.1f}{verdict}", flush=True)


def pages(reader: Database, wanted: RunFilter, sorts: tuple[SortField, ...], times: int) -> list[float]:
    """Measure first pages in ms, with each sort in both directions."""
    taken = []
    for field in sorts:
        taken += timed(partial(list_runs, reader, wanted, Sort(field, "asc"), now_ms=NOW), times)
        taken += timed(partial(list_runs, reader, wanted, Sort(field, "desc"), now_ms=NOW), times)
    return taken


def deep_offsets(reader: Database, table: Table) -> None:
    total = count_runs(reader, RunFilter())
    for field in (*FAST_SORTS, *SLOW_SORTS):
        for share in (0.5, 0.99):
            page = partial(list_runs, reader, RunFilter(), limit=50, offset=int(total * share), now_ms=NOW)
            taken = [ms for way in get_args(Direction) for ms in timed(partial(page, Sort(field, way)), 3)]
            table.line(f"offset {share:.0%} of all, by {field}", taken, 25)


def reads(reader: Database, table: Table) -> None:
    for name, wanted in COMMON.items():
        table.line(f"{name}, by time or duration", pages(reader, wanted, FAST_SORTS, 7), 10)
    for name, wanted in COMMON.items():
        table.line(f"{name}, other sorts", pages(reader, wanted, SLOW_SORTS, 3), 200)
    for name, wanted in RARE.items():
        table.line(f"{name}, by time or duration", pages(reader, wanted, FAST_SORTS, 3), 200)
        table.line(f"{name}, other sorts", pages(reader, wanted, SLOW_SORTS, 3), 200)
    deep_offsets(reader, table)
    total = count_runs(reader, RunFilter())
    some = list_runs(reader, RunFilter(), limit=1000, offset=total // 2, now_ms=NOW)[0]
    table.line("page of 1000", timed(lambda: list_runs(reader, RunFilter(), limit=1000, now_ms=NOW), 20))
    table.line("get_run", timed(lambda: get_run(reader, random.choice(some).id), 1000))
    table.line("count of all", timed(lambda: count_runs(reader, RunFilter()), 100))
    for name in ("no filter", "task (7 %)", "40 of 90 days", "task + 40 days"):
        table.line(f"summary, {name}", timed(partial(summarize, reader, COMMON[name]), 20), 10)
    table.line("unfinished_runs (60)", timed(lambda: unfinished_runs(reader), 100))
    table.line("active_counts", timed(lambda: active_counts(reader), 100))
    table.line("last_runs of 200 tasks", timed(lambda: last_runs(reader), 20))


def reads_among_deleted(writer: Database, reader: Database, table: Table) -> None:
    """Measure pages while a tenth of the runs is deleted: evenly spread, the newest, the oldest."""
    for name in ("by trigger", "by time, newest", "by time"):
        print(f"with 100,000 deleted {name}:")
        tenth = RunSelection(match_all=True, filter=TENTHS[name])
        for rows in find_ended(writer, tenth):
            mark_deleted(writer, rows, NOW)
        for common, wanted in COMMON.items():
            table.line(f"{common}, by time or duration", pages(reader, wanted, FAST_SORTS, 3), 10)
        deep_offsets(reader, table)
        table.line("summary", timed(lambda: summarize(reader, RunFilter()), 20), 10)
        table.line("last_runs of 200 tasks", timed(lambda: last_runs(reader), 20))
        for rows in find_deleted(writer, tenth, NOW - 1):
            unmark_deleted(writer, rows, NOW - 1)


def bare_insert(db: Connection) -> list[float]:
    db.execute("CREATE TABLE bare (a)")
    taken = timed(lambda: db.execute("INSERT INTO bare VALUES (1)"), 2000)
    db.execute("DROP TABLE bare")
    return taken


def writes(writer: Database) -> None:
    with writer.lent() as db:  # each INSERT in its own transaction
        floor = statistics.median(bare_insert(db))
    table = Table(floor, "INSERT")
    runs = iter([new_run(f"job-{i % 200:03}", NOW + i) for i in range(20_000)])
    table.line("insert_run", timed(lambda: insert_run(writer, next(runs)), 2000))
    table.line("three states of a run, three transactions", timed(lambda: live(writer, next(runs)), 2000))
    first = timed(partial(newest_durations, writer, "job-000", None), 200)
    table.line("durations of a task, at its first run", first, 5)
    table.line("a duration is learned, at each later end", timed(partial(learn, writer), 2000), 5)
    store = StoreThread(writer)

    def submit_and_wait() -> None:
        store.submit(partial(with_event, run=next(runs)), lambda _: None)
        select.select([store], [], [])
        store.drain()

    table.line("submit to done, idle, run + event", timed(submit_and_wait, 2000), 0.5)
    start, left = time.perf_counter(), 5000
    for _ in range(left):
        store.submit(partial(with_event, run=next(runs)), lambda _: None)
    while left:
        select.select([store], [], [])
        left -= store.drain()
    per_one = (time.perf_counter() - start) * 1000 / 5000
    table.line(f"one of 5000 queued ({1000 / per_one:,.0f} a second)", [per_one])
    store.close()


def learn(writer: Database) -> None:
    durations = tuple(random.choices(range(240_000), k=KEPT_DURATIONS))
    expectation(LEARNED, durations)
    update_task(writer, "job-000", promises=encode_promises(PromiseState(durations=durations)))


class Bulk:
    """Measure slices through the store thread, while a timer writes a run every 10 ms."""

    def __init__(self, writer: Database, reader: Database) -> None:
        self._store = StoreThread(writer)
        self._reader = reader
        self._runs = iter([new_run("job-000", NOW + i) for i in range(20_000)])
        self._busy = True
        self._paused: tuple[float, Callable[[], None]] | None = None
        self.late_ms: list[float] = []
        self.stored_ms: list[float] = []

    def work(
        self,
        find: Callable[[Database], list[str]],
        change: Callable[[Database, str], object],
        *,
        gives_way: bool = False,
    ) -> float:
        """Read everything, then change it; return the duration in ms.

        `gives_way`: let checkpoints of the database go first, as work without a waiting caller does.
        """
        self.late_ms, self.stored_ms, self._busy = [], [], True
        start = time.perf_counter()
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(find, self._reader)
            self._until(found.done)
            slices = iter(found.result())
        self._next(slices, change, gives_way)
        self._until(lambda: not self._busy)
        return (time.perf_counter() - start) * 1000

    def _next(self, slices: Iterator[str], change: Callable[[Database, str], object], gives_way: bool) -> None:
        rows = next(slices, None)
        if rows is None:
            self._busy = False
            return

        def work(db: Database) -> bool:
            change(db, rows)
            return gives_way and db.has_backlog()

        def stored(waits: bool | BaseException) -> None:
            go_on = partial(self._next, slices, change, gives_way)
            if waits:
                self._paused = time.perf_counter() + PAUSE_S, go_on
            else:
                go_on()

        self._store.submit(work, stored)

    def _until(self, done: Callable[[], bool]) -> None:
        due = time.perf_counter() + TIMER_S
        while not done():
            select.select([self._store], [], [], max(0.0, due - time.perf_counter()))
            self._store.drain()
            now = time.perf_counter()
            if self._paused is not None and now >= self._paused[0]:
                go_on, self._paused = self._paused[1], None
                go_on()
            if now >= due:
                self.late_ms.append((now - due) * 1000)
                self._store.submit(partial(with_event, run=next(self._runs)), partial(self._stored, due))
                due = now + TIMER_S

    def _stored(self, due: float, _result: object) -> None:
        self.stored_ms.append((time.perf_counter() - due) * 1000)

    def close(self) -> None:
        self._store.close()


def in_bulk(writer: Database, path: str, table: Table) -> None:
    reader = open_reader(path, limit_s=None)
    bulk = Bulk(writer, reader)

    def line(name: str, took_ms: float, bar: float | None) -> None:
        table.line(name, [took_ms], bar)
        table.line("  a timer meanwhile, late by", bulk.late_ms)
        table.line("  its run is stored, after", bulk.stored_ms)

    for name, wanted in TENTHS.items():
        tenth = RunSelection(match_all=True, filter=wanted)
        line(
            f"delete 100,000 of 1,000,000 {name}",
            bulk.work(partial(find_ended, selector=tenth), partial(mark_deleted, now_ms=NOW)),
            2000,
        )
        line(
            f"restore them {name}",
            bulk.work(
                partial(find_deleted, selector=tenth, deleted_after=NOW - 1),
                partial(unmark_deleted, deleted_after=NOW - 1),
            ),
            2000,
        )
    some = RunSelection(match_all=True, filter=TENTHS["by trigger"])
    bulk.work(partial(find_ended, selector=some), partial(mark_deleted, now_ms=NOW))
    expired = partial(find_expired, deleted_before=NOW)
    line("purge 100,000 deleted ones", bulk.work(expired, purge, gives_way=True), None)
    old = Retention(1_000_000, NOW - T0 - SPAN_DAYS * DAY // 50, 1_000_000)
    excess = partial(find_excess, rules={}, others=old, now_ms=NOW)
    line("purge 20,000 too old ones", bulk.work(excess, purge, gives_way=True), None)
    bulk.close()
    reader.close()


def with_event(db: Database, run: Run) -> int:
    insert_run(db, run)
    return events.append(db, "run.created", {"id": run.id}, NOW)


def live(db: Database, run: Run) -> None:
    insert_run(db, run)
    update_run(db, run.id, status="running", started_at=run.created_at)
    update_run(db, run.id, status="ended", end_reason="succeeded", exit_code=0, ended_at=run.created_at + 500)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--part", action="append", choices=PARTS, help="only this; repeatable")
    parser.add_argument("--database", metavar="URL", help="an empty database of PostgreSQL")
    arguments = parser.parse_args()
    n, parts = arguments.runs, arguments.part or PARTS
    with tempfile.TemporaryDirectory() as where:
        path = arguments.database or os.path.join(where, "ringward.db")
        writer = open_writer(path)
        start = time.perf_counter()
        fill(writer, n, TASKS)
        for i in range(60):
            insert_run(writer, new_run(task_name(i % 20), NOW - 5_000 + i, status="running" if i % 2 else "pending"))
        print(f"{n:,} runs, made in {time.perf_counter() - start:.0f} s")
        made = f"PostgreSQL {writer.rows('SHOW server_version')[0][0]}" if arguments.database else "SQLite"
        print(f"load before: {os.getloadavg()[0]:.2f}, {made}")
        reader = open_reader(path)
        floor = statistics.median(timed(lambda: reader.rows("SELECT 1"), 5000))
        if "reads" in parts:
            reads(reader, Table(floor, "SELECT 1"))
        if "deleted" in parts:
            reads_among_deleted(writer, reader, Table(floor, "SELECT 1"))
        if "writes" in parts:
            writes(writer)
        else:
            writer.close()
        if "bulk" in parts:
            in_bulk(open_writer(path), path, Table(floor, "SELECT 1"))
        reader.close()


if __name__ == "__main__":
    main()
