"""The writes that start a run, for which a user may wait."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from store.backends import sqlite
from store.database import open_writer
from store.runs.writes import insert_run, update_run
from tests.store.making import T0, make_run

FRAME = 24 + 4096  # of SQLite's WAL


@pytest.mark.parametrize(("scheduled", "most"), [(False, 3), (True, 4)])
def test_pages_written_by_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduled: bool, most: int) -> None:
    """Creating and starting a run changes no index of ended runs.

    Creation writes a row, an id, an entry of active runs and the instant; the start writes the row and the entry.
    """
    for name in ("PAGES_BESIDE", "PAGES_BY_WRITER", "MOST_PAGES"):
        monkeypatch.setattr(sqlite, name, 10**9)
    writer = open_writer(str(tmp_path / "ringward.db"))
    wal = tmp_path / "ringward.db-wal"
    for number in range(300):
        ended: dict[str, Any] = {
            "status": "ended",
            "end_reason": "failed",
            "started_at": T0 + number,
            "ended_at": T0 + number,
        }
        insert_run(writer, make_run(task_name=f"task-{number % 20}", created_at=T0 + number, **ended))

    def pages(write: Callable[[], object]) -> float:
        before = wal.stat().st_size
        write()
        return (wal.stat().st_size - before) / FRAME

    run = make_run(task_name="task-7", created_at=T0 + 400, scheduled_at=T0 if scheduled else None)
    assert pages(lambda: insert_run(writer, run)) == most
    assert pages(lambda: update_run(writer, run.id, status="running", started_at=T0 + 401)) == 2
    writer.close()
