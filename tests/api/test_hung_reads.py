"""A database whose disk does not answer: nobody waits for ever."""

import threading

import pytest

from api import context
from api.context import Reads
from store.database import Database, open_writer
from store.errors import QueryTimeout


def test_a_disk_that_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Reads end with an error while all threads hang, and bring their answers as soon as one goes on."""
    monkeypatch.setattr(context, "_READ_S", 0.05)
    monkeypatch.setattr(context, "_HUNG_S", 0.01)
    path = str(tmp_path_factory.mktemp("hung") / "ringward.db")
    open_writer(path).close()
    reads, thawed = Reads(path), threading.Event()
    ended = [threading.Event(), threading.Event()]

    def hang(_db: Database, number: int) -> None:
        thawed.wait()
        ended[number].set()

    for number in range(2):
        with pytest.raises(QueryTimeout, match="its disk does not answer"):
            reads(hang, number)
    with pytest.raises(QueryTimeout, match="its disk does not answer"):
        reads(lambda db: db.row("SELECT 1"))
    thawed.set()
    monkeypatch.setattr(context, "_READ_S", 30.0)
    monkeypatch.setattr(context, "_HUNG_S", 30.0)
    assert reads(lambda db: db.row("SELECT 1")) == (1,)
    assert all(event.wait(30) for event in ended)
