"""Durations of earlier runs, from which those of later ones are learned."""

from typing import Any

from store.database import Database
from store.runs.run_durations import KEPT_DURATIONS, newest_durations
from store.runs.writes import insert_run
from tests.store.making import T0, make_run


def put(db: Database, number: int, **columns: Any) -> None:
    """Store a run whose end and duration follow from its number."""
    at = T0 + number * 1000
    usual = {"task_name": "t", "status": "ended", "end_reason": "succeeded", "scheduled_at": at}
    insert_run(db, make_run(**{**usual, "started_at": at, "ended_at": at + number, **columns}))


def test_newest_durations(writer: Database) -> None:
    """The last successes of scheduled runs with the same parameters count, and the newest comes last."""
    for number in range(1, 61):
        put(writer, number)
    put(writer, 100, end_reason="failed")
    put(writer, 101, triggered_by="api", scheduled_at=None)
    put(writer, 102, params={"full": "true"})
    put(writer, 103, task_name="u")
    put(writer, 104, started_at=None, ended_at=T0 + 104_000, end_reason="missed")
    assert newest_durations(writer, "t", None) == tuple(range(61 - KEPT_DURATIONS, 61))
    assert newest_durations(writer, "t", {"full": "true"}) == (102,)
    assert newest_durations(writer, "v", None) == ()


def test_retries_count(writer: Database) -> None:
    """A retry that succeeded has a duration like any other run."""
    put(writer, 1, end_reason="failed")
    put(writer, 2, retry_attempt=1)
    assert newest_durations(writer, "t", None) == (2,)
