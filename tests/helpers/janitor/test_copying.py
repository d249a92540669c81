"""The janitor's copies of the database."""

import os
from types import SimpleNamespace

import pytest

from store.recovery.copies import copied_at_ms, copy_path, is_suspect
from supervisor.helpers.janitor.work import work
from tests.helpers.janitor.support import HOUR_MS, Place
from tests.helpers.janitor.test_work import Said


def grow_old(path: str, ms: int) -> None:
    """As if it had been made so much earlier."""
    made_ns = os.stat(path).st_mtime_ns - ms * 1_000_000
    os.utime(path, ns=(made_ns, made_ns))


def test_once_an_hour(place: Place) -> None:
    """The next copy is made an hour after the last one, and the janitor says when."""
    report = work(place.job(copy=True), Said())
    made_ms = copied_at_ms(place.database)
    assert made_ms is not None
    assert report.next_ms is not None
    assert abs(report.next_ms - made_ms - HOUR_MS) < HOUR_MS / 2
    assert work(place.job(copy=True), Said()).next_ms == made_ms + HOUR_MS
    assert copied_at_ms(place.database) == made_ms
    grow_old(copy_path(place.database), HOUR_MS)
    work(place.job(copy=True), Said())
    assert copied_at_ms(place.database) not in (made_ms, made_ms - HOUR_MS)


def test_too_little_room(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy does not fill the disk: there is none then, and the log says so."""
    log = Said()
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_bavail=1, f_frsize=4096, f_blocks=1 << 30))
    work(place.job(copy=True), log)
    assert copied_at_ms(place.database) is None
    assert "cannot copy the database: it has" in "".join(log.lines)


def test_damage_is_told(place: Place) -> None:
    """A damaged database is not copied, and the next start looks at it; the copy of before is kept."""
    work(place.job(copy=True), Said())
    grow_old(copy_path(place.database), 2 * HOUR_MS)
    before = copied_at_ms(place.database)
    size = os.path.getsize(place.database)
    with open(place.database, "r+b") as file:
        file.write(b"\xa5" * size)
    log = Said()
    work(place.job(copy=True), log)
    assert copied_at_ms(place.database) == before
    assert is_suspect(place.database)
    assert "the previous copy is kept" in "".join(log.lines)


@pytest.mark.parametrize("look", [True, False])
def test_damage_that_purging_meets_is_told(place: Place, look: bool) -> None:
    """A janitor that cannot read which runs were purged reports damage, even when no copy is due."""
    work(place.job(copy=True), Said())
    size = os.path.getsize(place.database)
    with open(place.database, "r+b") as file:
        file.write(b"\xa5" * size)
    assert work(place.job(copy=True, look=look), Said()).damaged
    assert is_suspect(place.database)
