"""Sums of the resources that runs of tasks and services used."""

from typing import Any

from store import usage
from store.database import Database
from store.runs import samples as run_samples
from store.runs import usage_counts
from store.runs import writes as runs
from store.runs.daily_outcomes import DAY_MS, KEPT_DAYS
from store.runs.samples import Reading
from store.runs.usage_counts import HOUR_MS, SPAN_MS, ResourceUse
from store.tasks import upsert_task
from store.usage import Window
from tests.store.making import T0 as _T0
from tests.store.making import make_run

T0 = _T0 // DAY_MS * DAY_MS
EVER = Window(0, 2 * T0)


def from_start(db: Database, task: str = "a", at: int = T0) -> str:
    run = make_run(task_name=task, created_at=at)
    runs.insert_run(db, run)
    runs.update_run(db, run.id, status="running", started_at=at)
    return run.id


def end(db: Database, run_id: str, at: int, **sums: Any) -> None:
    runs.update_run(db, run_id, status="ended", end_reason="succeeded", exit_code=0, ended_at=at, **sums)


def reading(at: int, cpu_ms: int, rss: int = 1000, written: int | None = None) -> Reading:
    return Reading(at, cpu_ms, cpu_ms // 10, rss, 1, None, written)


def spans(db: Database, task: str = "a") -> dict[int, int]:
    """User time by the beginning of the span, in spans of five minutes since T0."""
    rows = db.rows("SELECT at, width, user_us FROM task_usage WHERE task_name = ? ORDER BY at", [task])
    assert {width for _, width, _ in rows} <= {SPAN_MS}
    return {(at - T0) // SPAN_MS: user_us for at, _, user_us in rows}


def test_short_runs(writer: Database, reader: Database) -> None:
    """Usage of short runs counts at their end, to the microsecond; unstarted runs and other tasks do not count."""
    for number in (1, 2):
        end(
            writer,
            from_start(writer),
            T0 + number,
            user_us=number,
            system_us=7,
            max_rss_bytes=number,
            write_bytes=number,
        )
    end(writer, from_start(writer), T0 + SPAN_MS, user_us=5)
    end(writer, from_start(writer, "b"), T0, user_us=1_000_000, read_bytes=9)
    runs.insert_run(writer, make_run(status="ended", end_reason="skipped", ended_at=T0))
    first = Window(T0, T0 + SPAN_MS)
    assert usage.in_window(reader, first, "a") == {"a": ResourceUse(2, 3, 14, 2, None, 3)}
    assert usage.in_window(reader, EVER, "a") == {"a": ResourceUse(3, 8, 14, 2, None, 3)}
    assert usage.in_window(reader, EVER, "b") == {"b": ResourceUse(1, 1_000_000, 0, None, 9, None)}
    assert usage.in_window(reader, EVER) == {}, "only configured ones, unless asked for by name"
    upsert_task(writer, "a", "task", "{}")
    writer.execute("DELETE FROM runs")
    assert usage.in_window(reader, EVER) == {"a": ResourceUse(3, 8, 14, 2, None, 3)}
    assert usage.total_usage(reader) == {"a": ResourceUse(3, 8, 14, None, None, 3)}


def test_running_run(writer: Database, reader: Database) -> None:
    """Usage counts before the run ends; the end adds the rest, and nothing counts twice."""
    upsert_task(writer, "a", "service", "{}")
    run_id = from_start(writer)
    run_samples.add_pass(writer, 1, {run_id: reading(T0 + SPAN_MS - 1, 100, written=4)})
    run_samples.add_pass(writer, 2, {run_id: reading(T0 + SPAN_MS, 250, 3000, written=5)})
    assert usage.total_usage(reader)["a"] == ResourceUse(0, 250_000, 25_000, 3000, None, 5)
    assert usage.in_window(reader, Window(T0, T0 + SPAN_MS)) == {}, "the time of the last sample shows that"
    before = usage.in_window(reader, EVER)
    assert before == {"a": ResourceUse(0, 250_000, 25_000, 3000, None, 5)}
    settled = [reading(T0 + SPAN_MS - 1, 100, written=4), reading(T0 + SPAN_MS, 250, 3000, written=5)]
    run_samples.store_readings(writer, 2, {run_id: settled})
    assert usage.in_window(reader, EVER) == before
    assert spans(reader) == {0: 100_000, 1: 150_000}
    assert usage.in_window(reader, Window(T0, T0 + SPAN_MS))["a"].peak_rss_bytes == 1000
    run_samples.add_pass(writer, 3, {run_id: reading(T0 + 2 * SPAN_MS, 400, written=6)})
    run_samples.store_passes(writer, [run_id])
    end(writer, run_id, T0 + 3 * SPAN_MS, user_us=900_500, system_us=30_000, max_rss_bytes=4000, write_bytes=5)
    whole = ResourceUse(1, 900_500, 40_000, 4000, None, 6)
    assert spans(reader) == {0: 100_000, 1: 150_000, 2: 150_000, 3: 500_500}
    assert usage.in_window(reader, EVER) == {"a": whole}
    assert usage.total_usage(reader) == {"a": whole._replace(peak_rss_bytes=None)}
    run_samples.store_readings(writer, 4, {run_id: [reading(T0 + 3 * SPAN_MS, 1000)]})
    assert usage.in_window(reader, EVER) == {"a": whole}, "samples after the end count nothing"


def test_run_without_kernel_accounting(writer: Database, reader: Database) -> None:
    """If the kernel reports nothing at the end of a run, the usage found by samples stays counted."""
    upsert_task(writer, "a", "service", "{}")
    run_id = from_start(writer)
    run_samples.store_readings(writer, 1, {run_id: [reading(T0, 100, 3000, written=4)]})
    end(writer, run_id, T0 + 1, max_rss_bytes=7, read_bytes=9)
    whole = ResourceUse(1, 100_000, 10_000, 3000, 9, 4)
    assert usage.in_window(reader, EVER) == {"a": whole}
    assert usage.total_usage(reader) == {"a": whole._replace(peak_rss_bytes=None)}


def test_roll_up(writer: Database, reader: Database) -> None:
    """Older spans become hours and days without loss or duplication, and are removed when days expire."""
    for number in range(5):
        end(writer, from_start(writer), T0 + number * SPAN_MS, user_us=1, max_rss_bytes=number)
    end(writer, from_start(writer), T0 + HOUR_MS, user_us=1)
    whole = usage.in_window(reader, EVER, "a")
    assert whole == {"a": ResourceUse(6, 6, 0, 4, None, None)}
    states = []
    ages = (HOUR_MS, 6 * HOUR_MS, 7 * HOUR_MS, 3 * DAY_MS, 36 * DAY_MS, (KEPT_DAYS - 1) * DAY_MS)
    for age in ages:
        usage_counts.roll(writer, T0 + age)
        assert usage.in_window(reader, EVER, "a") == whole
        states.append(writer.rows("SELECT width, at, runs FROM task_usage ORDER BY at"))
    fine = [(SPAN_MS, T0 + number * SPAN_MS, 1) for number in (0, 1, 2, 3, 4, 12)]
    assert states == [
        fine,
        fine,
        [(HOUR_MS, T0, 5), fine[-1]],
        [(HOUR_MS, T0, 5), (HOUR_MS, T0 + HOUR_MS, 1)],
        [(DAY_MS, T0, 6)],
        [(DAY_MS, T0, 6)],
    ]
    usage_counts.roll(writer, T0 + (KEPT_DAYS + 1) * DAY_MS)
    assert usage.in_window(reader, EVER, "a") == {}


def test_width_of_windows() -> None:
    """A window is as wide as the stored samples of that time require, and no wider."""
    now = T0 + 1234
    for age, width in ((0, SPAN_MS), (6 * HOUR_MS, SPAN_MS), (6 * HOUR_MS + 1, HOUR_MS), (40 * DAY_MS, DAY_MS)):
        start = now - age
        window = usage.window(start, start + 1, now)
        assert window == Window(start // width * width, start // width * width + width)
    assert usage.window(0, DAY_MS, now) == Window(0, DAY_MS)
