"""SQLite read by a user who can write nothing: what API workers of a daemon that is root's are."""

import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from store.daemon_values import get_meta, set_meta
from store.database import open_reader, open_writer
from store.errors import Unopened, Unusable

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="other users take root")
UID = 64321


@pytest.fixture
def path() -> Iterator[str]:
    """Of a database in a directory that its group may enter."""
    with TemporaryDirectory() as name:
        os.chown(name, 0, UID)
        Path(name).chmod(0o710)
        yield f"{name}/ringward.db"


def as_them(look: Callable[[], bool]) -> bool:
    """What `look` finds in a process of theirs."""
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


def test_beside_the_writer(path: str) -> None:
    """They read all stored rows, without the right to write the -shm."""
    writer = open_writer(path)
    set_meta(writer, "k", 1)
    assert as_them(lambda: get_meta(open_reader(path), "k") == 1)
    assert as_them(lambda: not any(os.access(path + end, os.W_OK) for end in ("", "-wal", "-shm")))
    writer.close()


def killed_writer(path: str) -> None:
    """Write something, and close nothing."""
    pid = os.fork()
    if pid == 0:
        writer = open_writer(path)
        set_meta(writer, "k", 2)
        os._exit(0)
    os.waitpid(pid, 0)


def waits(path: str) -> bool:
    with pytest.raises(Unopened):
        open_reader(path)
    return True


def test_after_a_writer_that_was_killed(path: str) -> None:
    """Its WAL is read all the same."""
    killed_writer(path)
    assert Path(f"{path}-wal").stat().st_size
    assert as_them(lambda: get_meta(open_reader(path), "k") == 2)


def test_before_the_writer(path: str) -> None:
    """The last process to close removes the -shm, which only the next writer can make: the reader waits for that."""
    open_writer(path).close()
    assert not Path(f"{path}-shm").exists()
    assert as_them(lambda: waits(path))


def test_while_the_writer_leaves(path: str) -> None:
    """It takes the -shm along first, and the -wal after that."""
    killed_writer(path)
    Path(f"{path}-shm").unlink()
    assert as_them(lambda: waits(path))


@pytest.mark.parametrize("part", ["", "-wal"])
def test_what_they_may_not_read(path: str, part: str) -> None:
    """No writer has to come first for that: it is an error, and stays one."""
    killed_writer(path)
    Path(f"{path}-shm").unlink()
    Path(f"{path}{part}").chmod(0o600)

    def refused() -> bool:
        with pytest.raises(Unusable):
            open_reader(path)
        return True

    assert as_them(refused)
