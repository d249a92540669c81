"""A database, or logs, whose disk does not answer: no request waits without end."""

import threading
from pathlib import Path
from typing import Any

import gevent
import pytest

from api import read_threads
from api.app import open_context
from api.operations.operation import Call
from api.operations.parameters import parse_query
from api.read_threads import DatabaseReads, LogFileReads
from api.resources.runs import runs
from api.resources.runs.runs import list_params
from store.database import Database, open_writer
from store.errors import QueryTimeout
from supervisor.ipc.messages import DaemonSettings


def test_hung_disk(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Reads fail while all threads hang, and return their data as soon as one continues."""
    monkeypatch.setattr(read_threads, "_READ_S", 0.05)
    monkeypatch.setattr(read_threads, "_HUNG_S", 0.01)
    path = str(tmp_path_factory.mktemp("hung") / "ringward.db")
    open_writer(path).close()
    reads, thawed = DatabaseReads(path, lambda _error: None), threading.Event()
    ended = [threading.Event(), threading.Event()]

    def hang(_db: Database, number: int) -> None:
        thawed.wait()
        ended[number].set()

    for number in range(2):
        with pytest.raises(QueryTimeout, match="its disk hangs"):
            reads(hang, number)
    with pytest.raises(QueryTimeout, match="its disk hangs"):
        reads(lambda db: db.row("SELECT 1"))
    thawed.set()
    monkeypatch.setattr(read_threads, "_READ_S", 30.0)
    monkeypatch.setattr(read_threads, "_HUNG_S", 30.0)
    assert reads(lambda db: db.row("SELECT 1")) == (1,)
    assert all(event.wait(30) for event in ended)


def test_slow_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Slow pages, however many, do not delay other requests."""
    open_writer(str(tmp_path / "ringward.db")).close()
    values: dict[str, Any] = dict.fromkeys(DaemonSettings.__annotations__, "")
    settings = DaemonSettings(**values | {"data_dir": str(tmp_path), "database_url": None})
    context_ = open_context(settings, 0)
    done = threading.Event()
    slow = [gevent.spawn(context_.pages, lambda _db: done.wait()) for _ in range(9)]
    gevent.sleep(0)
    monkeypatch.setattr(read_threads, "_READ_S", 0.05)
    query, _ = parse_query(list_params(camel=False), "")
    nobody: Any = None
    for page in (runs.list_runs, runs.summarize_runs, runs.list_deleted_runs):
        call = Call(nobody, nobody, {}, {**query, "since": None})
        with pytest.raises(QueryTimeout):
            page.handler(context_, call)
    monkeypatch.setattr(read_threads, "_READ_S", 30.0)
    assert context_.reads(lambda db: db.row("SELECT 1")) == (1,)
    done.set()
    gevent.joinall(slow)


def test_logs_on_a_hung_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read from a disk that does not respond fails with that reason; reads succeed again once the disk responds."""
    monkeypatch.setattr(read_threads, "_FILE_S", 0.05)
    files, thawed = LogFileReads(), threading.Event()
    for _ in range(9):
        with pytest.raises(TimeoutError, match="its disk hangs"):
            files(thawed.wait)
    thawed.set()
    monkeypatch.setattr(read_threads, "_FILE_S", 30.0)
    assert files(lambda: "read") == "read"
