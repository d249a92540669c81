"""Runs in the order in which they were stored."""

from store.database import Database
from store.runs import arrivals
from store.runs.arrivals import RunEnd
from store.runs.writes import update_run
from tests.store.making import T0, make_run, store_run


def test_pages_of_arrivals(writer: Database) -> None:
    """Runs are listed page by page in the order of their rows, whatever their ids and times."""
    runs = [make_run(created_at=T0 - number, task_name=f"t{number}", instance_index=number) for number in range(5)]
    for run in runs:
        store_run(writer, run)
    arrived = arrivals.arrivals(writer, 0, 3)
    arrived += arrivals.arrivals(writer, arrived[-1].seq, 3)
    assert [(arrival.id, arrival.task_name, arrival.instance_index, arrival.created_at) for arrival in arrived] == [
        (run.id, run.task_name, run.instance_index, run.created_at) for run in runs
    ]
    assert arrivals.newest(writer) == arrived[-1]
    assert arrivals.id_at(writer, arrived[2].seq) == runs[2].id
    assert arrivals.id_at(writer, arrived[-1].seq + 1) is None


def test_last_row_before_a_time(writer: Database) -> None:
    """The last row before a time is the highest number with an earlier creation, or 0."""
    assert arrivals.newest(writer) is None
    assert arrivals.last_before(writer, T0) == 0
    for number in range(3):
        store_run(writer, make_run(created_at=T0 + number))
    rows = arrivals.arrivals(writer, 0, 10)
    assert [arrivals.last_before(writer, T0 + number) for number in range(4)] == [0, *(row.seq for row in rows)]


def test_states_of_runs(writer: Database) -> None:
    """The state of a run says whether it has ended and how many lines it has; purged runs are absent."""
    active, ended = make_run(), make_run(status="ended", end_reason="succeeded", exit_code=0, lines=7)
    for run in (active, ended):
        store_run(writer, run)
    assert [arrival.id for arrival in arrivals.unfinished(writer)] == [active.id]
    assert arrivals.ends(writer, [active.id, ended.id, "gone"]) == {
        active.id: RunEnd(ended=False, lines=0),
        ended.id: RunEnd(ended=True, lines=7),
    }
    update_run(writer, active.id, status="ended", end_reason="failed", exit_code=1)
    assert arrivals.unfinished(writer) == []
