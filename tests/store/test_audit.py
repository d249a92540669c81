from store import audit
from store.audit import Entry
from store.database import Database
from tests.store.databases import on_sqlite
from tests.store.making import T0


def entry(number: int, *, failed_login: bool = False, status: int = 201) -> Entry:
    return Entry(T0 + number, f"who {number}", "127.0.0.1", "runTask", "job", status, "", failed_login)


def append(db: Database, entries: list[Entry]) -> None:
    """Under keys of their own."""
    audit.append(db, {one.who: one for one in entries})


def test_once(writer: Database) -> None:
    """An entry that comes again, in whatever company, is stored once."""
    audit.append(writer, {"a": entry(0), "b": entry(1)})
    audit.append(writer, {"b": entry(1), "c": entry(2), "a": entry(0)})
    assert [one.entry for one in audit.entries(writer, None, 9)] == [entry(2), entry(1), entry(0)]


def test_pages(writer: Database, reader: Database) -> None:
    """Newest first, without gaps or repeats; everything comes back as it was."""
    append(writer, [entry(number) for number in range(5)])
    first = audit.entries(reader, None, 3)
    assert [one.entry for one in first] == [entry(4), entry(3), entry(2)]
    rest = audit.entries(reader, first[-1].id, 3)
    assert [one.entry for one in rest] == [entry(1), entry(0)]
    assert audit.entries(reader, rest[-1].id, 3) == []


def test_the_oldest_go(writer: Database) -> None:
    """Each kind has its own number of entries that are kept."""
    append(writer, [entry(number, failed_login=number % 2 == 1) for number in range(20)])
    with writer.transaction() as view:
        assert audit.prune(view, kept=6, kept_failed_logins=2) == 12
        assert audit.prune(view, kept=6, kept_failed_logins=2) == 0
    left = [one.entry for one in audit.entries(writer, None, 100)]
    assert [one.at - T0 for one in left if not one.failed_login] == [18, 16, 14, 12, 10, 8]
    assert [one.at - T0 for one in left if one.failed_login] == [19, 17]


def test_what_was_refused_goes_by_itself(writer: Database) -> None:
    """Who may do nothing cannot push out what others did by asking for it again and again."""
    append(writer, [entry(number, status=(201, 403, 404, 500)[number % 4]) for number in range(20)])
    with writer.transaction() as view:
        assert audit.prune(view, kept=10, kept_refused=3) == 7
    left = [one.entry for one in audit.entries(writer, None, 100)]
    assert [one.at - T0 for one in left if one.status in (201, 500)] == [19, 16, 15, 12, 11, 8, 7, 4, 3, 0]
    assert [one.at - T0 for one in left if one.status in (403, 404)] == [18, 17, 14]
    assert not any(one.failed_login for one in left)


@on_sqlite
def test_it_is_bounded(writer: Database) -> None:
    """Guesses of the password in any number leave what others did."""
    append(writer, [entry(0)])
    append(writer, [entry(number, failed_login=True) for number in range(1, audit.KEPT_FAILED_LOGINS + 1000)])
    assert writer.rows("SELECT count(*) FROM audit WHERE failed_login = 0") == [(1,)]
    ((count,),) = writer.rows("SELECT count(*) FROM audit WHERE failed_login = 1")
    assert audit.KEPT_FAILED_LOGINS <= count < audit.KEPT_FAILED_LOGINS + 256
