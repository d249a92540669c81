"""SQLite read by a user without write access, such as an API worker of a daemon that runs as root."""

import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from store.daemon_values import get_meta, set_meta
from store.database import open_reader, open_writer
from store.errors import DatabaseNotOpened, DatabaseUnusable

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user")
UID = 64321


@pytest.fixture
def path() -> Iterator[str]:
    """The path of a database in a directory that its group may enter."""
    with TemporaryDirectory() as name:
        os.chown(name, 0, UID)
        Path(name).chmod(0o710)
        yield f"{name}/ringward.db"


def as_them(look: Callable[[], bool]) -> bool:
    """Return whether `look` succeeds in a process of the other user."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(UID, UID, UID)
            os.setresuid(UID, UID, UID)
            os._exit(0 if look() else 1)
        except BaseException:  # noqa: BLE001 - the child must not go on with the test
            traceback.print_exc()
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_reader_beside_a_writer(path: str) -> None:
    """A reader of another user sees all stored rows without write access to the -shm file."""
    writer = open_writer(path)
    set_meta(writer, "k", 1)
    assert as_them(lambda: get_meta(open_reader(path), "k") == 1)
    assert as_them(lambda: not any(os.access(path + end, os.W_OK) for end in ("", "-wal", "-shm")))
    writer.close()


def killed_writer(path: str) -> None:
    """Write a value in a process that ends without closing the database."""
    pid = os.fork()
    if pid == 0:
        writer = open_writer(path)
        set_meta(writer, "k", 2)
        os._exit(0)
    os.waitpid(pid, 0)


def waits(path: str) -> bool:
    with pytest.raises(DatabaseNotOpened):
        open_reader(path)
    return True


def test_reader_after_a_killed_writer(path: str) -> None:
    """A reader of another user reads the WAL of a killed writer."""
    killed_writer(path)
    assert Path(f"{path}-wal").stat().st_size
    assert as_them(lambda: get_meta(open_reader(path), "k") == 2)


def test_reader_before_a_writer(path: str) -> None:
    """Only a writer can create the -shm file, which the last process to close removes: the reader waits for it."""
    open_writer(path).close()
    assert not Path(f"{path}-shm").exists()
    assert as_them(lambda: waits(path))


def test_reader_while_a_writer_closes(path: str) -> None:
    """A closing writer removes the -shm file before the -wal file; meanwhile, a reader waits."""
    killed_writer(path)
    Path(f"{path}-shm").unlink()
    assert as_them(lambda: waits(path))


@pytest.mark.parametrize("part", ["", "-wal"])
def test_unreadable_files(path: str, part: str) -> None:
    """A file that the reader may not read is an error, not a reason to wait for a writer."""
    killed_writer(path)
    Path(f"{path}-shm").unlink()
    Path(f"{path}{part}").chmod(0o600)

    def refused() -> bool:
        with pytest.raises(DatabaseUnusable):
            open_reader(path)
        return True

    assert as_them(refused)
