"""The janitor's copies of the database."""

import os
from types import SimpleNamespace

import pytest

from store.recovery.copies import copied_at_ms, copy_path, is_suspect
from supervisor.helpers.janitor.upkeep import maintain
from tests.helpers.janitor.support import HOUR_MS, DataDirectory
from tests.helpers.janitor.test_failing_disk import RecordedLog


def grow_old(path: str, ms: int) -> None:
    """Make a file so much older."""
    made_ns = os.stat(path).st_mtime_ns - ms * 1_000_000
    os.utime(path, ns=(made_ns, made_ns))


def test_copy_once_an_hour(place: DataDirectory) -> None:
    """The next copy is made an hour after the last one, and the report has its time."""
    report = maintain(place.job(copy=True), RecordedLog())
    made_ms = copied_at_ms(place.database)
    assert made_ms is not None
    assert report.next_ms is not None
    assert abs(report.next_ms - made_ms - HOUR_MS) < HOUR_MS / 2
    assert maintain(place.job(copy=True), RecordedLog()).next_ms == made_ms + HOUR_MS
    assert copied_at_ms(place.database) == made_ms
    grow_old(copy_path(place.database), HOUR_MS)
    maintain(place.job(copy=True), RecordedLog())
    assert copied_at_ms(place.database) not in (made_ms, made_ms - HOUR_MS)


def test_no_room_for_a_copy(place: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a copy would fill the disk, none is made, and the log has the reason."""
    log = RecordedLog()
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_bavail=1, f_frsize=4096, f_blocks=1 << 30))
    maintain(place.job(copy=True), log)
    assert copied_at_ms(place.database) is None
    assert "cannot copy the database: it has" in "".join(log.lines)


def test_damaged_database_is_not_copied(place: DataDirectory) -> None:
    """A damaged database is not copied and is checked at the next start; the previous copy is kept."""
    maintain(place.job(copy=True), RecordedLog())
    grow_old(copy_path(place.database), 2 * HOUR_MS)
    before = copied_at_ms(place.database)
    size = os.path.getsize(place.database)
    with open(place.database, "r+b") as file:
        file.write(b"\xa5" * size)
    log = RecordedLog()
    maintain(place.job(copy=True), log)
    assert copied_at_ms(place.database) == before
    assert is_suspect(place.database)
    assert "the previous copy is kept" in "".join(log.lines)


@pytest.mark.parametrize("look", [True, False])
def test_damage_found_by_purging(place: DataDirectory, look: bool) -> None:
    """A janitor that cannot read which runs were purged reports damage, even if no copy is due."""
    maintain(place.job(copy=True), RecordedLog())
    size = os.path.getsize(place.database)
    with open(place.database, "r+b") as file:
        file.write(b"\xa5" * size)
    assert maintain(place.job(copy=True, look=look), RecordedLog()).damaged
    assert is_suspect(place.database)
