"""A copy of a SQLite database beside it, and starting again from that when the database is damaged or gone.

=========================  ===========================================================================
``ringward.db.copy``       the newest copy; it was read through when it was made
``ringward.db.suspect``    there from the moment in which somebody met damage until all of the database was read
``ringward.db.new``        the next database, while it is made
``ringward.db.damaged-T``  a database that was moved aside at the time T; nothing ever removes it
=========================  ===========================================================================
"""

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import apsw

from store.backends.sqlite import translated
from store.database import Database, open_writer
from store.errors import Damaged, StoreError, Unusable
from store.meta import set_meta
from store.recovery.online_copy import duplicate
from store.tasks import all_tasks, update_task

if TYPE_CHECKING:
    from store.recovery.salvage import Salvaged

_PARTS = ("", "-wal", "-shm")
RESERVE = "reserve"
"""Name of a file beside the database, which is room that is kept for it."""
_GAP = 1_000_000
"""More events than there can have been since the copy: their numbers are not given twice."""
_BUSY_MS = 5000


@dataclass(frozen=True)
class Restored:
    """A database that was started again."""

    copied_at_ms: int
    """When the copy was made, since the epoch."""
    damaged: str | None
    """Where the damaged one is now; None: there was none."""
    salvaged: "Salvaged"
    """What was taken over from that."""


def had_history(path: str) -> bool:
    """Whether there was a database of that name once: others of its files are still there."""
    reserve = f"{os.path.dirname(path)}/{RESERVE}"
    return any(map(os.path.exists, (f"{path}-wal", f"{path}-shm", reserve)))


def copy_path(path: str) -> str:
    """Where the copy of a database is."""
    return f"{path}.copy"


def copied_at_ms(path: str) -> int | None:
    """When the copy of a database was made, ms since the epoch; None: there is none."""
    with contextlib.suppress(OSError):
        return os.stat(copy_path(path)).st_mtime_ns // 1_000_000
    return None


def suspect(path: str) -> None:
    """Have the next start read all of the database.

    Raises:
        OSError: that cannot be noted.
    """
    os.close(os.open(f"{path}.suspect", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def is_suspect(path: str) -> bool:
    """Whether somebody has met damage."""
    return os.path.exists(f"{path}.suspect")


def check_copy(path: str) -> int:
    """Read all of the copy of a database; returns when it was made, ms since the epoch.

    Raises:
        Unusable: there is none, or something is wrong in it.
        StoreError: it cannot be read.
    """
    made_ms = copied_at_ms(path)
    if made_ms is None:
        raise Unusable(f"(there is no copy of {path})")
    _check(copy_path(path))
    return made_ms


def check(path: str) -> None:
    """Read all of a database; when it is well, nobody suspects it any more.

    Raises:
        Damaged: there is something wrong in it, or it is gone.
        StoreError: it cannot be read.
    """
    if not os.path.exists(path):
        raise Damaged(f"({path} is gone)")
    _check(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{path}.suspect")


def make_copy(path: str) -> None:
    """Copy a database that others write meanwhile; the copy of before stays until the new one is whole.

    Raises:
        Unusable: there is something wrong in it.
        StoreError: it cannot be read, or there is no room.
        OSError: the copy cannot be put in its place.
    """
    new = f"{copy_path(path)}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    duplicate(path, new)
    _put(new, copy_path(path))


def is_closed(path: str) -> bool:
    """Whether all that was written is in the file itself, as whoever closes a database leaves it."""
    try:
        return os.path.getsize(f"{path}-wal") == 0
    except FileNotFoundError:
        return True


def restore(
    path: str,
    now_ms: int,
    remember: Callable[[Restored], Mapping[str, Any]] = lambda _: {},
    newest_event: int | None = None,
) -> Restored:
    """Put a copy in the place of a database that nobody writes; that one is moved aside.

    What can be read of that one, and is younger than the copy, is taken over (:mod:`store.recovery.salvage`). Who reads
    it goes on with it until it looks again. Other runs of the copy are left as they are.

    Args:
        path: of the database.
        now_ms: up to this moment the instants of schedules count as accounted for, unless more is known; ms since the
            epoch.
        remember: what is stored with it, as values of :mod:`store.meta` by their names.
        newest_event: the number of the newest event that anybody has seen; None: nobody knows.

    Raises:
        Damaged: there is something wrong in the copy, too.
        Unusable: there is no copy.
        OSError: it cannot be done now; doing it again is no harm.
    """
    made_ms = copied_at_ms(path)
    if made_ms is None:
        raise Unusable(f"(there is no copy of {path})")
    new = _no_new(path)
    shutil.copyfile(copy_path(path), new)
    os.chmod(new, 0o600)
    _check(new)
    aside = _aside(path, now_ms)
    with contextlib.closing(open_writer(new)) as database:
        salvaged = _salvaged(database, path, newest_event)
        found = Restored(made_ms, aside, salvaged)
        with database.transaction():
            _settle(database, now_ms, salvaged)
            for name, value in remember(found).items():
                set_meta(database, name, value)
    _replace(path, new, aside)
    return found


def take_as_restored(database: Database, now_ms: int, remember: Mapping[str, Any], newest_event: int) -> None:
    """Go on with a database that knows nothing of what its daemon did last: somebody has restored it.

    Args:
        database: the writer.
        now_ms: ms since the epoch.
        remember: what is stored with it, as values of :mod:`store.meta` by their names.
        newest_event: the number of the newest event that anybody has seen.
    """
    from store.recovery.salvage import Salvaged

    with database.transaction():
        _settle(database, now_ms, Salvaged(last_event=newest_event))
        for name, value in remember.items():
            set_meta(database, name, value)


def begin_anew(
    path: str, now_ms: int, remember: Callable[[str | None], Mapping[str, Any]], newest_event: int | None
) -> str | None:
    """Put an empty history in the place of a database that is lost; that one is moved aside.

    Args:
        path: of the database, which nobody writes.
        now_ms: ms since the epoch.
        remember: given where the damaged one is moved, says what is stored, as values of :mod:`store.meta` by their
            names.
        newest_event: the number of the newest event that anybody has seen; None: nobody knows.

    Returns:
        Where the damaged one is now; None: there was none.

    Raises:
        StoreError, OSError: it cannot be done now; doing it again is no harm.
    """
    new = _no_new(path)
    aside = _aside(path, now_ms)
    with contextlib.closing(open_writer(new)) as database:
        take_as_restored(database, now_ms, remember(aside), newest_event or 0)
    _replace(path, new, aside)
    return aside


def _no_new(path: str) -> str:
    """The name of the next database, under which there is nothing."""
    new = f"{path}.new"
    for part in _PARTS:  # of one that was not completed
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new + part)
    return new


def _aside(path: str, now_ms: int) -> str | None:
    """Where a damaged database is to be moved; None: there is none."""
    if not any(os.path.exists(path + part) for part in _PARTS):
        return None
    name = f"{path}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now_ms / 1000))}"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(one for one in names if not any(os.path.lexists(one + part) for part in _PARTS))


def _replace(path: str, new: str, aside: str | None) -> None:
    if aside is not None:
        for part in _PARTS:
            with contextlib.suppress(FileNotFoundError):
                os.rename(path + part, aside + part)
    _put(new, path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{path}.suspect")


@contextlib.contextmanager
def _opened(path: str) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(_BUSY_MS)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        yield connection
    finally:
        connection.close()


def _salvaged(database: Database, path: str, newest_event: int | None) -> "Salvaged":
    """What there is goes into the database, or nothing."""
    from store.recovery.salvage import Salvaged, salvage  # with all that writes runs: not for who only makes copies

    if not os.path.exists(path):
        return Salvaged()
    try:
        return salvage(database, path, copy_path(path), newest_event)
    except (StoreError, OSError) as err:
        return Salvaged(failed=str(err))


def _settle(database: Database, now_ms: int, salvaged: "Salvaged") -> None:
    """What was due since the copy has perhaps run, unless that is known, and events have been announced."""
    from store.events import append  # not for who only makes copies, either
    from store.notifications import unread_count

    for task in all_tasks(database):
        if task.last_instant is not None and task.name not in salvaged.accounted:
            update_task(database, task.name, last_instant=max(task.last_instant, now_ms))
    # There may be none whose number could be raised; and what nobody has read is that of the copy again.
    append(database, "notification.unreadCountChanged", {"count": unread_count(database)}, now_ms)
    database.execute(
        "UPDATE outbox SET seq = max(seq, ?) + ? WHERE seq = (SELECT max(seq) FROM outbox)",
        [salvaged.last_event, _GAP],
    )


def _check(path: str) -> None:
    try:
        with _opened(path) as connection:
            found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(1)")]
    except apsw.Error as err:
        raise translated(err, path) from err
    if found != ["ok"]:
        raise Damaged(f"({path}: {'; '.join(found)})")


def _put(new: str, path: str) -> None:
    """Give a file its name, so that a power failure leaves the one or the other."""
    _flush(new)
    os.rename(new, path)
    _flush(os.path.dirname(path))


def _flush(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
