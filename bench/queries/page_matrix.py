"""Latency of every kind of page of runs: `python -m bench.queries.page_matrix HISTORY [--runs N] [--database URL]`.

A cell is a filter or a pair of filters, a sort, and the first, middle or last page of 50. HISTORY is in `HISTORIES`.
The program prints the cells over their bar, and the slowest of each kind. Times with fewer runs are scaled to a
million. `--keep DIRECTORY` stores the database there, and uses it again. `--save FILE` writes all cells as JSON.
`--against FILE` compares with such a file: it reports pages with other runs, and cells that have left their bar or
become much slower.
"""

import argparse
import hashlib
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, get_args

from bench.queries.history import DAY, SPAN_DAYS, T0, Shape, fill, task_name
from bench.queries.store_micro import COMMON, FAST_SORTS, MIDDLE, NOW, RARE, TASKS, WEEK, new_run
from store.database import Database, open_reader, open_writer
from store.runs.bulk import RunSelection, find_ended, mark_deleted
from store.runs.filter import RunFilter
from store.runs.run_pages import Direction, Sort, SortField, list_runs
from store.runs.writes import insert_run

_SHAPES: dict[str, Shape] = {shape.replace(" ", "-"): shape for shape in get_args(Shape)}
_DELETED = {
    "deleted-spread": RunFilter(triggers={"api"}),
    "deleted-newest": RunFilter(created_after=T0 + SPAN_DAYS * DAY * 9 // 10),
}
HISTORIES = (*_SHAPES, *_DELETED, "many-active")
"""The shapes of bench.queries.history, a tenth of the runs deleted in two ways, and 5,000 pending runs."""
_FILTERS: dict[str, RunFilter] = {
    **COMMON,
    **RARE,
    "status + a week": replace(WEEK, reasons={"failed"}),
    "task + a week": replace(WEEK, task="job-050"),
    "retries + task": RunFilter(retries_only=True, task="job-000"),
    "retries + 40 days": replace(MIDDLE, retries_only=True),
    "exit code + trigger": RunFilter(exit_code_min=1, exit_code_max=2, triggers={"api"}),
    "search in ids + status": RunFilter(search="7A", reasons={"failed"}),
    "search in ids + 40 days": replace(MIDDLE, search="7A"),
}
_FEW_RARE = ("retries + ", "exit code + ", "search in ids + ")
_LIMIT = 50
_TIMES = 2


class Cell(NamedTuple):
    """The result of a cell: p50 in ms, the bar in ms, and a digest of the total and the ids.

    SQLite runs in this process, so its cells count processor time, which other programs do not lengthen.
    """

    ms: float
    bar: float
    digest: str


def _pages(reader: Database, wanted: RunFilter) -> Iterator[tuple[str, int]]:
    total = list_runs(reader, wanted, limit=0, now_ms=NOW)[1]
    yield "first", 0
    if total > 2 * _LIMIT:
        yield "middle", total // 2
        yield "last", total - _LIMIT


def _bar(name: str, field: SortField, page: str) -> float:
    common = name not in RARE and not name.startswith(_FEW_RARE)
    if common and field in FAST_SORTS:
        return 10 if page == "first" else 100
    return 100 if name == "no filter" and page != "first" else 500


def measure(reader: Database, clock: Callable[[], float], scale: float) -> dict[str, Cell]:
    """Measure all cells, by name; multiply their times by `scale`."""
    found: dict[str, Cell] = {}
    for name, wanted in _FILTERS.items():
        pages = list(_pages(reader, wanted))
        sorts = itertools.product(get_args(SortField), get_args(Direction))
        for (field, direction), (page, offset) in itertools.product(sorts, pages):
            taken: list[float] = []
            for _ in range(_TIMES + 1):
                start = clock()
                runs, total = list_runs(reader, wanted, Sort(field, direction), _LIMIT, offset, now_ms=NOW)
                taken.append((clock() - start) * 1000)
            ids = f"{total} {' '.join(run.id for run in runs)}"
            digest = hashlib.sha256(ids.encode()).hexdigest()[:16]
            ms = round(statistics.median(taken[1:]) * scale, 2)
            found[f"{name} | {field} {direction} | {page}"] = Cell(ms, _bar(name, field, page), digest)
    return found


def _make(path: str, history: str, n: int) -> None:
    writer = open_writer(path)
    fill(writer, n, TASKS, _SHAPES.get(history, "even"))
    active = 5_000 if history == "many-active" else 60
    for i in range(active):
        status = "pending" if history == "many-active" or not i % 2 else "running"
        insert_run(writer, new_run(task_name(i % 20), NOW - 5_000 + i, status=status))
    if history in _DELETED:
        for rows in find_ended(writer, RunSelection(match_all=True, filter=_DELETED[history])):
            mark_deleted(writer, rows, NOW)
    writer.close()


def _report(cells: dict[str, Cell], before: dict[str, Any]) -> None:
    for name, cell in cells.items():
        known = before.get(name)
        if known is not None and known[2] != cell.digest:
            print(f"{name}: other runs")
        was = "" if known is None else f", was {known[0]} ms"
        if cell.ms > cell.bar:
            print(f"{name}: {cell.ms} ms, bar {cell.bar:g} ms{was}")
        elif known is not None and cell.ms > 3 * known[0] + 5:
            print(f"{name}: {cell.ms} ms{was}, within {cell.bar:g} ms")
    for bar in sorted({cell.bar for cell in cells.values()}):
        taken = sorted((cell.ms, name) for name, cell in cells.items() if cell.bar == bar)
        over = sum(ms > bar for ms, _ in taken)
        middle = statistics.median(ms for ms, _ in taken)
        print(f"bar {bar:g} ms: {len(taken)} cells, {over} over it, p50 {middle} ms; slowest {taken[-1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("history", choices=HISTORIES)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--database", metavar="URL", help="a database of PostgreSQL; filled if it is empty")
    parser.add_argument("--keep", metavar="DIRECTORY", help="keep the SQLite database there and use it again")
    parser.add_argument("--save", metavar="FILE")
    parser.add_argument("--against", metavar="FILE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path = arguments.database or os.path.join(arguments.keep or scratch, f"{arguments.history}.db")
        writer = open_writer(path)
        filled = writer.rows("SELECT 1 FROM runs LIMIT 1")
        writer.close()
        if not filled:
            _make(path, arguments.history, arguments.runs)
        reader = open_reader(path, limit_s=None)
        scale = 1_000_000 / reader.rows("SELECT count(*) FROM runs")[0][0]
        cells = measure(reader, time.perf_counter if arguments.database else time.process_time, scale)
        reader.close()
    if arguments.save:
        with open(arguments.save, "w") as file:
            json.dump(cells, file, indent=0)
    before = {}
    if arguments.against:
        with open(arguments.against) as file:
            before = json.load(file)
    _report(cells, before)


if __name__ == "__main__":
    main()
