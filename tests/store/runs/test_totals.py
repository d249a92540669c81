import random
from collections.abc import Iterable

import pytest

from store.database import Database
from store.runs.daily_outcomes import prune
from store.runs.filter import RunFilter
from store.runs.phases import END_REASONS
from store.runs.run_pages import count_runs
from store.runs.totals import BucketRange, spans
from store.runs.writes import delete_run, insert_run, update_run
from tests.store.making import T0, counted, make_run, restore_run, stored_counts


def times(parts: Iterable[BucketRange]) -> list[int]:
    """Every ms that bounded spans cover."""
    numbers: list[int] = []
    for width, start, end in parts:
        assert start is not None
        assert end is not None
        numbers.extend(range(start << width, end << width))
    return numbers


@pytest.mark.parametrize("widths", [(), (3,), (4, 2), (6, 3, 1)])
def test_spans(widths: tuple[int, ...]) -> None:
    """Spans cover a range exactly once, including negative times."""
    for start in range(-70, 70, 3):
        for end in range(-71, 140, 5):
            assert sorted(times(spans(start, end, widths))) == list(range(start, end))


def test_open_spans() -> None:
    """A range without an end is covered by buckets without an end."""
    assert list(spans(None, None, (4, 2))) == [BucketRange(4, None, None)]
    assert list(spans(17, None, (4, 2))) == [BucketRange(4, 2, None), BucketRange(2, 5, 8), BucketRange(0, 17, 20)]
    assert list(spans(None, 17, (4, 2))) == [BucketRange(4, None, 1), BucketRange(0, 16, 17)]
    assert list(spans(None, 5, ())) == [BucketRange(0, None, 5)]


def test_counters_follow_every_change(writer: Database) -> None:
    """After any changes by functions or plain SQL, the counters match a count; zeros are removed later."""
    rnd = random.Random(3)
    ids: list[str] = []
    for step in range(1500):
        action = rnd.choice(["insert", "insert", "end", "delete", "restore", "purge", "rewrite"])
        if action == "insert" or not ids:
            status = rnd.choice(["ended", "pending"])
            created = T0 + rnd.randrange(10**9)
            started = rnd.choice([None, created + rnd.randrange(10**6)])
            run = make_run(
                task_name=rnd.choice("abc"),
                status=status,
                end_reason="failed" if status == "ended" else None,
                created_at=created,
                started_at=started,
                ended_at=None if started is None else rnd.choice([None, started + 5]),
                retry_attempt=rnd.choice([0, 1]),
                triggered_by=rnd.choice(["cron", "api"]),
            )
            insert_run(writer, run)
            ids.append(run.id)
            continue
        run_id = rnd.choice(ids)
        if action == "end":
            reason = rnd.choice(sorted(END_REASONS))
            at = rnd.choice([None, T0 + rnd.randrange(10**9)])
            code = rnd.randrange(3)
            update_run(writer, run_id, status="ended", end_reason=reason, exit_code=code, started_at=at, ended_at=at)
        elif action == "delete":
            delete_run(writer, run_id, step)
        elif action == "restore":
            restore_run(writer, run_id)
        elif action == "purge":
            writer.execute("DELETE FROM runs WHERE id = ?", [run_id])
        else:
            writer.execute("UPDATE runs SET task_name = 'd', created_at = created_at + 1 WHERE id = ?", [run_id])
    assert stored_counts(writer) == counted(writer)
    live = writer.rows("SELECT (SELECT count(*) FROM runs) - (SELECT count(*) FROM deleted_runs)")[0][0]
    assert count_runs(writer, RunFilter()) == live > 0
    writer.execute("DELETE FROM runs")
    assert stored_counts(writer) == writer.rows("SELECT * FROM deleted_runs") == []
    prune(writer, T0)
    assert writer.rows("SELECT * FROM run_counts") == []


def test_rolled_back_counts(writer: Database) -> None:
    """A transaction that is rolled back does not change the counts."""

    def fail() -> None:
        with writer.transaction():
            insert_run(writer, make_run(status="ended", end_reason="failed"))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert count_runs(writer, RunFilter()) == 0
