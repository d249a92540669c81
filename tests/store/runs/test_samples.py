"""Stored resource samples of runs."""

import itertools

import pytest

from store.database import Database
from store.runs import bulk as run_bulk
from store.runs import samples as run_samples
from store.runs.bulk import RunSelection
from store.runs.samples import MOST, RECENT, STEP_MS, Point, Reading, Usage
from store.runs.writes import insert_run
from tests.store.making import make_run

T0 = 1_780_000_000_000
A, B = "A" * 26, "B" * 26


def reading(number: int, **fields: int) -> Reading:
    """The reading of a run that uses half of a core, in pass `number`."""
    values = {"user_ms": number * 2000, "system_ms": number * 500, "rss_bytes": 1000, "processes": 1}
    return Reading(T0 + number * STEP_MS, **{**values, **fields})


def stored_usage(db: Database, run_id: str) -> Usage | None:
    return run_samples.of_running(db, [run_id]).get(run_id)


def times(usage: Usage | None) -> list[int]:
    """Return the times of the points, in passes since T0."""
    assert usage is not None
    return [(point.at - T0) // STEP_MS for point in usage.points]


def test_passes_of_a_run(writer: Database, reader: Database) -> None:
    """Samples of a run from several passes are read in order; a run that no pass found has none."""
    run_samples.add_pass(writer, 1, {A: reading(1, read_bytes=7, written_bytes=8)})
    run_samples.add_pass(writer, 2, {A: reading(2, rss_bytes=3000, processes=4), B: reading(2)})
    run_samples.add_pass(writer, 3, {A: reading(3, read_bytes=9, written_bytes=10), B: reading(3)})
    assert stored_usage(reader, A) == Usage(
        last_pass=0,
        user_ms=6000,
        system_ms=1500,
        peak_rss_bytes=3000,
        read_bytes=9,
        written_bytes=10,
        points=[
            Point(T0 + STEP_MS, 2500, 1000, 1),
            Point(T0 + 2 * STEP_MS, 5000, 3000, 4),
            Point(T0 + 3 * STEP_MS, 7500, 1000, 1),
        ],
    )
    assert times(stored_usage(reader, B)) == [2, 3]
    assert stored_usage(reader, "C" * 26) is None
    assert run_samples.of_running(reader, []) == {}


def test_settled_passes(writer: Database, reader: Database) -> None:
    """A run's own row and the later passes form one series in which nothing counts twice."""
    for number in (1, 2, 3):
        run_samples.add_pass(writer, number, {A: reading(number), B: reading(number)})
    before = stored_usage(reader, A)
    run_samples.store_readings(writer, 3, {A: [reading(1), reading(2), reading(3)]})
    after = stored_usage(reader, A)
    assert before is not None
    assert after == before._replace(last_pass=3)
    run_samples.add_pass(writer, 4, {A: reading(4), B: reading(4)})
    assert times(stored_usage(reader, A)) == times(stored_usage(reader, B)) == [1, 2, 3, 4]
    run_samples.store_readings(writer, 4, {A: [reading(4)], B: [reading(number) for number in (1, 2, 3, 4)]})
    run_samples.drop_passes(writer, 5)
    usages = run_samples.of_running(reader, [A, B])
    assert times(usages[A]) == times(usages[B]) == [1, 2, 3, 4]
    assert writer.rows("SELECT number FROM run_passes") == []


def test_unsettled_passes_stay(writer: Database, reader: Database) -> None:
    """Passes from the given number on stay for runs whose rows lack them."""
    for number in (1, 2, 3):
        run_samples.add_pass(writer, number, {A: reading(number)})
    run_samples.store_readings(writer, 2, {A: [reading(1), reading(2)]})
    run_samples.drop_passes(writer, 3)
    assert writer.rows("SELECT number FROM run_passes") == [(3,)]
    assert times(stored_usage(reader, A)) == [1, 2, 3]


def test_next_scheduler(writer: Database, reader: Database) -> None:
    """A new scheduler keeps all samples of unfinished runs, and counts passes from 1 again."""
    run_samples.store_readings(writer, 2, {A: [reading(1), reading(2)], B: [reading(1), reading(2)]})
    run_samples.add_pass(writer, 3, {A: reading(3), B: reading(3)})
    run_samples.store_passes(writer, [A, "C" * 26])
    run_samples.add_pass(writer, 1, {A: reading(4)})
    assert times(stored_usage(reader, A)) == [1, 2, 3, 4]
    assert times(run_samples.of_ended(reader, A)) == [1, 2, 3]
    assert times(run_samples.of_ended(reader, B)) == [1, 2]
    assert run_samples.of_ended(reader, "C" * 26) is None


@pytest.mark.parametrize("passes", [MOST, MOST + 1, 1000, 20_000])
def test_samples_of_long_runs(writer: Database, reader: Database, passes: int) -> None:
    """The newest samples are complete and older ones evenly thinned; peaks and processor time stay exact."""
    for start in range(1, passes + 1, RECENT):
        all_readings = [reading(number) for number in range(start, min(start + RECENT, passes + 1))]
        if start == 1:
            all_readings[2] = reading(3, rss_bytes=999_999, processes=77)
        run_samples.store_readings(writer, 0, {A: all_readings})
    usage = stored_usage(reader, A)
    sampled_times = times(usage)
    assert usage is not None
    assert RECENT < len(sampled_times) <= MOST
    assert sampled_times[-RECENT:] == list(range(passes - RECENT + 1, passes + 1))
    gaps = [after - before for before, after in itertools.pairwise(sampled_times)]
    assert max(gaps) <= max(1, 4 * passes / MOST)
    assert usage.peak_rss_bytes == max(point.rss_bytes for point in usage.points) == 999_999
    assert max(point.processes for point in usage.points) == 77
    assert all(point.cpu_ms == (point.at - T0) // 2 for point in usage.points)
    (stored,) = writer.row("SELECT length(points) FROM run_samples") or (0,)
    assert stored < 10_000


def test_clock_set_back(writer: Database, reader: Database) -> None:
    """If the clock is set back, no sample is lost or reordered."""
    back = [reading(3), reading(1), reading(2)]
    for number, pass_readings in enumerate(back, 1):
        run_samples.add_pass(writer, number, {A: pass_readings})
    assert times(stored_usage(reader, A)) == [3, 1, 2]
    run_samples.store_readings(writer, 3, {A: back})
    assert times(stored_usage(reader, A)) == [3, 1, 2]


def test_purged_with_the_run(writer: Database, reader: Database) -> None:
    """Samples of a run are removed with the run and not before; samples of other runs stay."""
    for run_id in (A, B):
        insert_run(writer, make_run(id=run_id, status="ended", end_reason="succeeded", ended_at=T0))
        run_samples.store_readings(writer, 0, {run_id: [reading(1)]})
    selector = RunSelection(ids=[A])
    for rows in run_bulk.find_ended(writer, selector):
        run_bulk.mark_deleted(writer, rows, T0)
    assert times(run_samples.of_ended(reader, A)) == [1]
    for rows in run_bulk.find_expired(writer, T0):
        run_bulk.purge(writer, rows)
    assert run_samples.of_ended(reader, A) is None
    assert times(run_samples.of_ended(reader, B)) == [1]
