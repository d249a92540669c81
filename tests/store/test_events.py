import pytest

from store.database import Database, open_writer
from store.events import Event, append, append_all, draft, last_seq, prune, since
from tests.store.making import T0


def test_numbering(writer: Database, reader: Database) -> None:
    """Events are numbered from 1 without a gap, and are read in order as they were stored."""
    assert last_seq(reader) == 0
    assert [append(writer, "run.ended", {"n": n, "text": "ü"}, T0 + n) for n in range(5)] == [1, 2, 3, 4, 5]
    assert since(reader, 3) == [Event(n, "run.ended", T0 + n - 1, {"n": n - 1, "text": "ü"}) for n in (4, 5)]
    assert [event.seq for event in since(reader, 0, limit=2)] == [1, 2]
    assert last_seq(reader) == 5


def test_many_at_once(writer: Database, reader: Database) -> None:
    """Any number of events is stored in order after earlier ones, inside or outside a transaction."""
    append(writer, "first", {}, T0)
    numbers = iter(range(2, 1000))
    for count in (1, 2, 15, 16, 17, 33):
        drafts = [draft("run.ended", {"n": n, "text": "ü"}, T0 + n) for n in range(count)]
        before = last_seq(reader)
        with writer.transaction():
            assert append_all(writer, drafts) == before + 1
        assert since(reader, before) == [
            Event(next(numbers), "run.ended", T0 + n, {"n": n, "text": "ü"}) for n in range(count)
        ]
    assert append_all(writer, []) == last_seq(reader) + 1


def test_numbers_after_a_rollback(writer: Database) -> None:
    """A transaction, or a part of one, that is rolled back leaves no gap in the numbers."""

    def fail() -> None:
        with writer.transaction():
            append(writer, "a", {}, T0)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with writer.transaction():
        append(writer, "b", {}, T0)
        with pytest.raises(KeyError):
            fail()
        append(writer, "d", {}, T0)
    assert [(event.seq, event.kind) for event in since(writer, 0)] == [(1, "b"), (2, "d")]


def test_prune(path: str, writer: Database) -> None:
    """Pruning keeps the newest events; numbers continue over a restart, even if no event was kept."""
    for _ in range(10):
        append(writer, "a", {}, T0)
    assert prune(writer, 3) == 7
    assert prune(writer, 3) == 0
    assert [event.seq for event in since(writer, 0)] == [8, 9, 10]
    assert prune(writer, 0) == 2
    writer.close()
    again = open_writer(path)
    assert last_seq(again) == 10
    assert append(again, "a", {}, T0) == 11
    again.close()
