from store import audit
from store.audit import AuditEntry, ChosenEntries
from store.database import Database
from tests.store.databases import on_sqlite
from tests.store.making import T0


def entry(number: int, *, failed_login: bool = False, status: int = 201) -> AuditEntry:
    return AuditEntry(T0 + number, f"who {number}", "127.0.0.1", "runTask", "job", status, "", failed_login)


def append(db: Database, entries: list[AuditEntry]) -> None:
    """Append each entry under its own key."""
    audit.append(db, {audited.who: audited for audited in entries})


def test_repeated_entries(writer: Database) -> None:
    """An entry that is appended again, in any batch, is stored once."""
    audit.append(writer, {"a": entry(0), "b": entry(1)})
    audit.append(writer, {"b": entry(1), "c": entry(2), "a": entry(0)})
    assert [audited.entry for audited in audit.entries(writer, None, 9)] == [entry(2), entry(1), entry(0)]


def test_effect_of_a_stored_entry(writer: Database) -> None:
    """While a request is carried out in parts, its entry keeps its place and gets the effect so far."""
    audit.append(writer, {"a": entry(0)}, replace=True)
    audit.append(writer, {"b": entry(1)})
    audit.append(writer, {"a": entry(0)._replace(reason="2 runs")}, replace=True)
    audit.append(writer, {"a": entry(0)._replace(status=503)})
    assert [audited.entry for audited in audit.entries(writer, None, 9)] == [
        entry(1),
        entry(0)._replace(reason="2 runs"),
    ]


def test_pages(writer: Database, reader: Database) -> None:
    """Entries are listed newest first, without gaps or repeats, as they were stored."""
    append(writer, [entry(number) for number in range(5)])
    first = audit.entries(reader, None, 3)
    assert [audited.entry for audited in first] == [entry(4), entry(3), entry(2)]
    following = audit.entries(reader, first[-1].id, 3)
    assert [audited.entry for audited in following] == [entry(1), entry(0)]
    assert audit.entries(reader, following[-1].id, 3) == []


def test_chosen_entries(writer: Database, reader: Database) -> None:
    """Entries are chosen by parts of texts in any case, by operations and by an inclusive span of time."""
    append(writer, [entry(number) for number in range(12)])
    assert len(audit.entries(reader, None, 99, ChosenEntries(target="%"))) == 0
    some = audit.entries(reader, None, 99)[3:6]
    newest, _, oldest = (stored.entry for stored in some)
    assert audit.entries(reader, None, 99, ChosenEntries(since=oldest.at, until=newest.at)) == some
    for chosen in (
        ChosenEntries(who=newest.who.upper()),
        ChosenEntries(operations=(newest.operation,)),
        ChosenEntries(done=True),
    ):
        assert newest in [stored.entry for stored in audit.entries(reader, None, 99, chosen)]
    assert audit.entries(reader, None, 99, ChosenEntries(operations=("nothing",))) == []


def test_oldest_entries_are_pruned(writer: Database) -> None:
    """Each kind of entry has its own limit, beyond which the oldest are pruned."""
    append(writer, [entry(number, failed_login=number % 2 == 1) for number in range(20)])
    with writer.transaction() as view:
        assert audit.prune(view, kept=6, kept_failed_logins=2) == 12
        assert audit.prune(view, kept=6, kept_failed_logins=2) == 0
    remaining_entries = [audited.entry for audited in audit.entries(writer, None, 100)]
    assert [audited.at - T0 for audited in remaining_entries if not audited.failed_login] == [18, 16, 14, 12, 10, 8]
    assert [audited.at - T0 for audited in remaining_entries if audited.failed_login] == [19, 17]


def test_refused_requests_are_pruned_separately(writer: Database) -> None:
    """A client without permission cannot push out other entries by repeating refused requests."""
    append(writer, [entry(number, status=(201, 403, 404, 500)[number % 4]) for number in range(20)])
    with writer.transaction() as view:
        assert audit.prune(view, kept=10, kept_refused=3) == 7
    remaining_entries = [audited.entry for audited in audit.entries(writer, None, 100)]
    assert [audited.at - T0 for audited in remaining_entries if audited.status in (201, 500)] == [
        19,
        16,
        15,
        12,
        11,
        8,
        7,
        4,
        3,
        0,
    ]
    assert [audited.at - T0 for audited in remaining_entries if audited.status in (403, 404)] == [18, 17, 14]
    assert not any(audited.failed_login for audited in remaining_entries)


@on_sqlite
def test_failed_logins_push_out_nothing(writer: Database) -> None:
    """Any number of password guesses leaves all other entries."""
    append(writer, [entry(0)])
    append(writer, [entry(number, failed_login=True) for number in range(1, audit.KEPT_FAILED_LOGINS + 1000)])
    assert writer.rows("SELECT count(*) FROM audit WHERE failed_login = 0") == [(1,)]
    ((count,),) = writer.rows("SELECT count(*) FROM audit WHERE failed_login = 1")
    assert audit.KEPT_FAILED_LOGINS <= count < audit.KEPT_FAILED_LOGINS + 256
