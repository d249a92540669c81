import random
import threading
from collections.abc import Iterator
from typing import Any, cast, get_args

import pytest

from store.database import Database, open_reader, open_writer
from store.runs.filter import VISIBLE, RunFilter
from store.runs.phases import END_REASONS
from store.runs.run_pages import Direction, Sort, SortField, _SortOrder, count_runs, list_runs
from store.runs.writes import Run, insert_run
from tests.store.databases import BACKENDS, database, on_sqlite
from tests.store.making import T0, make_run, store_run, ulid_of
from tests.store.oracle import listed, matches

DAY = 86_400_000
NOW = T0 + 40 * DAY
NAMES = ["backup", "Backup-2", "a", "A", "job.7", "job_7", "x:y", "zz", "01", "Z9"]
FIELDS: tuple[SortField, ...] = get_args(SortField)
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


def random_id(rnd: random.Random, created: int) -> str:
    """Return an id that is mostly about as old as its run, and sometimes from a wrong clock."""
    return ulid_of(created - (rnd.randrange(3) if rnd.random() < 0.98 else rnd.randrange(-2 * DAY, 2 * DAY)))


def random_run(rnd: random.Random) -> Run:
    created = T0 + rnd.choice(
        [rnd.randrange(30 * DAY), rnd.randrange(5), rnd.randrange(20 * DAY, 20 * DAY + 3_000_000)]
    )
    status = rnd.choices(["ended", "running", "pending"], [80, 12, 8])[0]
    reason = rnd.choice(sorted(END_REASONS)) if status == "ended" else None
    started = None if status == "pending" or rnd.random() < 0.15 else created + rnd.randrange(3)
    ended = created + rnd.randrange(3, 9) if status == "ended" else None
    return make_run(
        id=random_id(rnd, created),
        task_name=rnd.choice(NAMES[: rnd.choice([3, 10])]),
        status=status,
        end_reason=reason,
        exit_code=rnd.choice([0, 0, 1, 2, 143, -1, -2]) if status == "ended" else -1,
        retry_attempt=rnd.choice([0, 0, 0, 1, 2]),
        triggered_by=rnd.choice(["cron", "cron", "api", "cloud", "service", "startup"]),
        created_at=created,
        started_at=started,
        ended_at=ended,
        deleted_at=T0 if status == "ended" and rnd.random() < 0.1 else None,
    )


def random_filter(rnd: random.Random, runs: list[Run]) -> RunFilter:
    some = rnd.choice(runs)
    start, end = sorted(rnd.choice(runs).created_at + rnd.choice([-1, 0, 1]) for _ in range(2))
    searches = ["Back", "7", some.id, some.id[12:15].lower(), "_", "%", "job", "U", "no such", "é", "a", some.task_name]
    parts: dict[str, Any] = {
        "task": rnd.choice([*NAMES, "absent"]),
        "task_name": rnd.choice([some.task_name, some.task_name, "absent"]),
        "phases": rnd.choice([{"ended"}, {"running"}, {"pending", "running"}, {"ended", "running", "pending"}]),
        "reasons": set(rnd.sample(sorted(END_REASONS), rnd.choice([1, 2, 11, 12]))),
        "triggers": set(rnd.sample(["cron", "api", "cloud", "service", "startup"], rnd.choice([1, 2, 5]))),
        "created_after": start,
        "created_before": end,
        "exit_code_min": rnd.choice([-2, -1, 0, 1, 2, 2**63 - 1]),
        "exit_code_max": rnd.choice([-(2**63), -1, 0, 1, 143]),
        "retries_only": True,
        "search": rnd.choice(searches),
    }
    return RunFilter(**{name: parts[name] for name in rnd.sample(sorted(parts), rnd.choice([0, 1, 1, 2, 2, 3]))})


class Filled:
    """A database with random runs, and those runs."""

    def __init__(self, path: str) -> None:
        rnd = random.Random(7)
        self.runs = [random_run(rnd) for _ in range(700)]
        self.writer = open_writer(path)
        with self.writer.transaction():
            for run in self.runs:
                store_run(self.writer, run)
        self.reader = open_reader(path, limit_s=None)
        # Both databases share everything but the SQL, so fewer filters suffice for PostgreSQL.
        self.filters = 12 if path.startswith("postgresql:") else 40


@pytest.fixture(scope="module", params=BACKENDS)
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with database(request, request.param, tmp_path_factory.mktemp("pages")) as path:
        made = Filled(path)
        yield made
        made.reader.close()
        made.writer.close()


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_pages_match_the_oracle(filled: Filled, field: SortField, direction: Direction) -> None:
    """Every page of every filter and sort matches a plain Python model, with the exact total."""
    rnd = random.Random(f"{field} {direction}")
    for _ in range(filled.filters):
        run_filter = random_filter(rnd, filled.runs)
        whole = listed(filled.runs, run_filter, field, direction, NOW)
        limit = rnd.choice([1, 7, 50, 1000])
        offset = rnd.choice([0, 0, rnd.randrange(len(whole) + 5), max(0, len(whole) - 3)])
        page_runs, total = list_runs(filled.reader, run_filter, Sort(field, direction), limit, offset, now_ms=NOW)
        place = f"{run_filter} {field} {direction} {limit} {offset}"
        assert total == len(whole) == count_runs(filled.reader, run_filter), place
        assert [run.id for run in page_runs] == [run.id for run in whole[offset : offset + limit]], place
        assert page_runs == whole[offset : offset + limit], place


@pytest.mark.parametrize("scan_limit", [10, 20_000])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_equal_sort_keys(
    filled: Filled, direction: Direction, scan_limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs with equal sort keys are ordered by id."""
    monkeypatch.setattr("store.runs.run_pages._SCAN_LIMIT", scan_limit)
    alike = {"missed": "skipped", "start_failed": "failed"}
    rnd = random.Random(direction)
    for run_filter in (RunFilter(), RunFilter(search="7Z"), *(random_filter(rnd, filled.runs) for _ in range(10))):
        runs = [run for run in filled.runs if matches(run, run_filter)]
        runs.sort(key=lambda run: (run.status, alike.get(run.end_reason or "", run.end_reason or ""), run.id))
        whole = runs[:: -1 if direction == "desc" else 1]
        for offset in (0, 13, 300, 600):
            page_runs, total = list_runs(
                filled.reader, run_filter, Sort("status", direction, alike), 70, offset, now_ms=NOW
            )
            assert (page_runs, total) == (whole[offset : offset + 70], len(whole)), run_filter


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("field", FIELDS)
def test_searches_with_many_matches(
    filled: Filled, field: SortField, direction: Direction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search of ids with too many matches to sort in memory has the same pages."""
    monkeypatch.setattr("store.runs.run_pages._SCAN_LIMIT", 10)
    for search in ("0", "1", "7Z", filled.runs[3].id[:9]):
        whole = listed(filled.runs, RunFilter(search=search), field, direction, NOW)
        for offset in (0, 13, 300, 600):
            page_runs, total = list_runs(
                filled.reader, RunFilter(search=search), Sort(field, direction), 20, offset, now_ms=NOW
            )
            assert (page_runs, total) == (whole[offset : offset + 20], len(whole))


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_paging(filled: Filled, field: SortField, direction: Direction) -> None:
    """Consecutive pages have each run once, in order, including ties, missing values and running runs."""
    seen: list[str] = []
    for offset in range(0, 700, 83):
        page_runs, _ = list_runs(filled.reader, RunFilter(), Sort(field, direction), 83, offset, now_ms=NOW)
        seen += [run.id for run in page_runs]
    assert seen == [run.id for run in listed(filled.runs, RunFilter(), field, direction, NOW)]


def test_lists_without_runs(reader: Database) -> None:
    """Without runs, every list is empty."""
    for field in FIELDS:
        for run_filter in (RunFilter(), RunFilter(search="a"), RunFilter(phases={"running"}), RunFilter(task="a")):
            assert list_runs(reader, run_filter, Sort(field), now_ms=NOW) == ([], 0)


def test_page_bounds(filled: Filled) -> None:
    """A page beyond the end and a page of size 0 are empty with the total; an impossible page is refused."""
    total = sum(run.deleted_at is None for run in filled.runs)
    assert list_runs(filled.reader, RunFilter(), offset=2**62, now_ms=NOW) == ([], total)
    for field in FIELDS:
        assert list_runs(filled.reader, RunFilter(), Sort(field), limit=0, now_ms=NOW) == ([], total)
    sorts = (Sort(cast(SortField, "id")), Sort(direction=cast(Direction, "up")))
    bads: tuple[dict[str, Any], ...] = ({"limit": -1}, {"offset": -1}, *({"sort": sort} for sort in sorts))
    for bad in bads:
        with pytest.raises(ValueError, match="page"):
            list_runs(filled.reader, RunFilter(), now_ms=NOW, **bad)
    for wrong in (RunFilter(phases={"failed"}), RunFilter(reasons={"success"})):
        with pytest.raises(ValueError, match="phase"):
            list_runs(filled.reader, run_filter=wrong, now_ms=NOW)


def test_duration_of_a_running_run(writer: Database) -> None:
    """The duration of a running run grows with the given time, so it eventually passes that of ended ones."""
    ended = make_run(status="ended", end_reason="failed", started_at=T0, ended_at=T0 + 1000)
    running = make_run(status="running", started_at=T0)
    for run in (ended, running):
        insert_run(writer, run)
    for now, longest in ((T0 + 999, ended), (T0 + 1001, running)):
        assert list_runs(writer, RunFilter(), Sort("duration", "desc"), 1, now_ms=now) == ([longest], 2)
        assert list_runs(writer, RunFilter(), Sort("duration", "asc"), 1, 1, now_ms=now) == ([longest], 2)


def test_totals_of_searches_follow_changes(writer: Database, reader: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cached total of a search of ids is correct after each commit by any connection."""
    monkeypatch.setattr("store.runs.run_pages._SCAN_LIMIT", 1)
    for n in range(1, 6):
        insert_run(writer, make_run(task_name=f"uuuu{n}"))
        for _ in range(2):
            for db in (reader, writer):
                assert list_runs(db, RunFilter(search="0"), limit=0, now_ms=NOW) == ([], n)
                assert count_runs(db, RunFilter(search="0")) == n


@on_sqlite
@pytest.mark.parametrize(
    ("field", "index"),
    [("created_at", "runs_created"), ("start_at", "runs_started"), ("duration", "runs_duration")],
)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("backwards", [False, True])
def test_sorts_walk_an_index(
    reader: Database, field: SortField, index: str, direction: Direction, backwards: bool
) -> None:
    """The common sorts walk their index in both directions without sorting and without reading the table."""
    order = _SortOrder(field, direction == "desc").sql(backwards=backwards, mixed=False)
    sql = (
        f"EXPLAIN QUERY PLAN SELECT seq, id FROM runs INDEXED BY {index} WHERE exit_code = 1 AND triggered_by = 'api'"
        f" AND state < 100 AND state = 5 AND task_name = 'a' AND retry_attempt > 0 AND {VISIBLE} {order} LIMIT 50"
    )
    assert [row[3] for row in reader.rows(sql)] == [
        f"SCAN runs USING COVERING INDEX {index}",
        "USING ROWID SEARCH ON TABLE deleted_runs FOR IN-OPERATOR",
    ]


def test_page_and_total_agree(path: str) -> None:
    """A page and its total are of the same moment, even while a writer continues."""
    writer, stop = open_writer(path), threading.Event()
    reader = open_reader(path, limit_s=None)

    def write() -> None:
        while not stop.is_set():
            insert_run(writer, make_run())

    thread = threading.Thread(target=write)
    thread.start()
    try:
        total = 0
        while total < 300:
            page_runs, total = list_runs(reader, RunFilter(), limit=1000, now_ms=NOW)
            assert len(page_runs) == total
    finally:
        stop.set()
        thread.join()
    reader.close()
    writer.close()
