import os
import threading
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from store.backends import sqlite
from store.connection import Row, Value
from store.daemon_values import get_meta, set_meta
from store.database import Database, open_reader, open_writer
from store.errors import DatabaseLocked
from tests.support.waiting import until

PAGE = 4096


def fill(writer: Database, pages: int, beginning: int = 0) -> None:
    """Commit several transactions that each add some pages."""
    for number in range(beginning, beginning + pages // 10):
        set_meta(writer, f"filler {number}", "x" * 10 * PAGE)


def moved(path: Path) -> int:
    """Return the size of the database file without its WAL."""
    return path.stat().st_size


def test_thread_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written rows reach the database file although the writer never checkpoints, and nothing is lost."""
    monkeypatch.setattr(sqlite, "PAGES_BY_WRITER", 10**9)
    monkeypatch.setattr(sqlite, "MOST_PAGES", 10**9)
    path = tmp_path / "ringward.db"
    writer = open_writer(str(path))
    before = moved(path)
    fill(writer, 2 * sqlite.PAGES_BESIDE)
    until(lambda: moved(path) >= before + sqlite.PAGES_BESIDE * PAGE, "the pages to be moved")
    reader = open_reader(str(path))
    assert get_meta(reader, "filler 99") == "x" * 10 * PAGE
    reader.close()
    writer.close()
    with apsw.Connection(str(path)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("most", ["PAGES_BY_WRITER", "MOST_PAGES"])
def test_wal_is_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: str) -> None:
    """The writer checkpoints the rest if few pages are left or very many, so the WAL does not grow without bound."""
    monkeypatch.setattr(sqlite, "PAGES_BESIDE", 200 if most == "PAGES_BY_WRITER" else 10**9)
    monkeypatch.setattr(sqlite, most, 1000)
    path = tmp_path / "ringward.db"
    writer = open_writer(str(path))
    with writer.lent() as connection:
        thread: sqlite.Checkpoints = connection._checkpoints  # type: ignore[attr-defined]
    for beginning in range(0, 400, 40):
        fill(writer, 400, beginning)
        if most == "PAGES_BY_WRITER":
            until(lambda: thread._moved >= thread._requested_pages, "the thread to follow")
    assert Path(f"{path}-wal").stat().st_size < 2000 * PAGE < 3000 * PAGE < moved(path)
    writer.close()


def test_waiting_for_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the work lets the thread finish when asked, the WAL stays short and no commit checkpoints."""
    monkeypatch.setattr(sqlite, "PAGES_OF_BACKLOG", 200)
    monkeypatch.setattr(sqlite, "PAGES_BY_WRITER", 10**9)
    path = tmp_path / "ringward.db"
    writer = open_writer(str(path))
    with writer.lent() as connection:
        thread: sqlite.Checkpoints = connection._checkpoints  # type: ignore[attr-defined]
    waits = 0
    for beginning in range(0, 400, 4):
        with writer.transaction():
            fill(writer, 40, beginning)
            has_backlog = writer.has_backlog()
        if has_backlog:
            waits += 1
            until(lambda: thread._moved == thread._pages, "the thread to have moved all")
    assert waits > 5
    assert Path(f"{path}-wal").stat().st_size < 1000 * PAGE < 3000 * PAGE < moved(path)
    writer.close()


def no_thread(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def no_memory(*_: object) -> None:
    raise apsw.NoMemError


def test_failed_checkpoint_keeps_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the thread cannot start or memory is short, a commit succeeds and its pages are moved later."""
    path = tmp_path / "ringward.db"
    writer = open_writer(str(path))
    before = moved(path)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        fill(writer, sqlite.PAGES_BESIDE)
        patch.setattr(sqlite, "MOST_PAGES", 0)
        with writer.lent() as connection:
            thread: sqlite.Checkpoints = connection._checkpoints  # type: ignore[attr-defined]
        assert thread._committed(Refusing(), "main", 1) == apsw.SQLITE_OK  # type: ignore[arg-type]
    assert moved(path) == before
    fill(writer, 20, 900)
    until(lambda: moved(path) > before, "the pages to be moved")
    writer.close()


class Refusing:
    """A connection whose checkpoints fail."""

    wal_checkpoint = staticmethod(no_memory)


def test_close_ends_the_thread(tmp_path: Path) -> None:
    """The thread ends with the writer, which closes the file last, so no WAL is left."""
    path = tmp_path / "ringward.db"
    writer = open_writer(str(path))
    others = set(threading.enumerate())
    fill(writer, 2 * sqlite.PAGES_BESIDE)
    (thread,) = set(threading.enumerate()) - others
    writer.close()
    assert not thread.is_alive()
    assert os.listdir(tmp_path) == ["ringward.db"]


def test_another_connection_switches_to_wal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer tries again if SQLite refuses WAL mode because another connection is switching to it."""
    execute, refusals = sqlite.SqliteConnection.rows, [DatabaseLocked("locked"), DatabaseLocked("locked")]

    def rows(self: sqlite.SqliteConnection, sql: str, params: Sequence[Value] = ()) -> list[Row]:
        if sql == "PRAGMA journal_mode = WAL" and refusals:
            raise refusals.pop()
        return execute(self, sql, params)

    monkeypatch.setattr(sqlite.SqliteConnection, "rows", rows)
    writer = open_writer(str(tmp_path / "ringward.db"))
    assert writer.rows("PRAGMA journal_mode") == [("wal",)]
    assert refusals == []
    writer.close()
