"""Database files that are removed or replaced while they are open."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store.daemon_values import get_meta, set_meta
from store.database import open_reader, open_writer
from store.errors import DatabaseReplaced, DatabaseUnusable
from store.recovery.replaced_files import File, file_of
from store.store_thread import StoreListener, StoreThread
from tests.support.waiting import until


class Store(StoreListener):
    """A store thread and its messages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.placed: list[File] = []
        self.messages: list[str] = []
        self.when_placing: Callable[[File], None] = self.placed.append
        self.thread = StoreThread(open_writer(str(path)), self)

    def before_replace(self, file: File) -> None:
        self.when_placing(file)

    def rescued(self, text: str) -> None:
        self.messages.append(text)

    def set(self, name: str, value: object) -> object:
        """Store a value; return None or the error."""
        results: list[object] = []
        self.thread.submit(lambda db: set_meta(db, name, value), results.append)

        def done() -> bool:
            self.thread.drain()
            return bool(results)

        until(done, "the store thread")
        return results[0]

    def get(self, name: str) -> object:
        """Return the value that a new reader finds."""
        reader = open_reader(str(self.path))
        try:
            return get_meta(reader, name)
        finally:
            reader.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "ringward.db")
    assert made.set("before", 1) is None
    yield made
    made.thread.close()


def part(store: Store, name: str) -> Path:
    return Path(f"{store.path}{name}")


@pytest.mark.parametrize("parts", [("",), ("-wal",), ("-shm",), ("-wal", "-shm"), ("", "-wal"), ("", "-wal", "-shm")])
def test_removed_files(store: Store, parts: tuple[str, ...]) -> None:
    """If any of the files is removed, the next transaction is stored with everything before it, and reported once."""
    for name in parts:
        part(store, name).unlink()
    assert store.set("after", 2) is None
    assert store.set("later", 3) is None
    assert [store.get(name) for name in ("before", "after", "later")] == [1, 2, 3]
    assert len(store.messages) == 1
    assert "nothing is lost" in store.messages[0]
    assert store.placed == ([file_of(str(store.path))] if "" in parts else [])
    assert sorted(path.name for path in store.path.parent.iterdir()) == [
        "ringward.db",
        "ringward.db-shm",
        "ringward.db-wal",
    ]
    assert store.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("parts", [("",), ("-wal",), ("-shm",), ("-wal", "-shm"), ("", "-wal", "-shm")])
def test_removed_files_with_an_open_reader(store: Store, parts: tuple[str, ...]) -> None:
    """A reader that was already open finds the new files and later rows at its next query."""
    reader = open_reader(str(store.path))
    assert get_meta(reader, "before") == 1
    for name in parts:
        part(store, name).unlink()
    assert store.set("after", 2) is None
    assert [get_meta(reader, name) for name in ("before", "after")] == [1, 2]
    for value in range(5):
        assert store.set("more", value) is None
        assert get_meta(reader, "more") == value
    reader.close()


def test_moved_database(store: Store, tmp_path: Path) -> None:
    """A database that was moved is treated like a removed one; the moved file is not touched."""
    moved = tmp_path / "moved.db"
    store.path.rename(moved)
    content = moved.read_bytes()
    assert store.set("after", 2) is None
    assert (store.get("before"), store.get("after")) == (1, 2)
    assert moved.read_bytes() == content


def another(tmp_path: Path) -> Path:
    path = tmp_path / "backup" / "ringward.db"
    path.parent.mkdir()
    writer = open_writer(str(path))
    set_meta(writer, "before", "of the backup")
    writer.close()
    return path


@pytest.mark.parametrize("wal", [True, False])
def test_replaced_database(store: Store, tmp_path: Path, wal: bool) -> None:
    """Nothing is stored and no file is touched until the foreign file is removed; then stored rows are there again."""
    backup = another(tmp_path)
    for name in ("", "-wal", "-shm"):
        part(store, name).unlink()
    shutil.copyfile(backup, store.path)
    if wal:
        part(store, "-wal").write_bytes(b"anything")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    for _ in range(2):
        assert isinstance(store.set("after", 2), DatabaseReplaced)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    store.path.unlink()
    part(store, "-wal").unlink(missing_ok=True)
    assert store.set("later", 3) is None
    assert [store.get(name) for name in ("before", "after", "later")] == [1, None, 3]


def test_foreign_file_at_shutdown(store: Store, tmp_path: Path) -> None:
    """A daemon that ends leaves a foreign file and its companions unchanged."""
    backup = another(tmp_path)
    os.replace(backup, store.path)
    part(store, "-wal").unlink()
    part(store, "-wal").write_bytes(b"anything")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    store.thread.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_foreign_wal(store: Store) -> None:
    """A foreign -wal file with content is not taken for the database's own."""
    part(store, "-wal").unlink()
    part(store, "-wal").write_bytes(b"anything")
    assert isinstance(store.set("after", 2), DatabaseReplaced)
    assert part(store, "-wal").read_bytes() == b"anything"


def test_repeated_removal(store: Store) -> None:
    """Each removal is noticed, however often it happens."""
    for value in range(3):
        store.path.unlink()
        assert store.set("value", value) is None
        assert store.get("value") == value
    assert len(store.messages) == 3


def test_copy_lost_before_its_rename(store: Store) -> None:
    """A copy that vanishes before its rename is made again; no empty database takes its place."""
    store.when_placing = lambda _file: part(store, ".rescued").unlink()
    store.path.unlink()
    for _ in range(2):
        assert isinstance(store.set("after", 2), DatabaseUnusable)
    assert not store.path.exists()
    store.when_placing = lambda _file: None
    assert store.set("after", 2) is None
    assert (store.get("before"), store.get("after")) == (1, 2)
