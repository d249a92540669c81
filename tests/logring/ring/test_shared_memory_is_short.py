"""If shared memory is short, the ring is smaller, the run continues, and no process is killed."""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from logring.layout import RING_BLOCKS_AT, STDERR, STDOUT
from logring.ring import ring
from tests.logring.support.rings import T0, Log, texts

MakeLog = Callable[..., Log]


def touched_pages(path: str) -> set[int]:
    """Return the pages of a file that have content; pages that are only allocated count as a hole."""
    pages_used: set[int] = set()
    fd = os.open(path, os.O_RDONLY)
    end = 0
    with contextlib.suppress(OSError):  # ENXIO: no further content
        while True:
            start = os.lseek(fd, end, os.SEEK_DATA)
            end = os.lseek(fd, start, os.SEEK_HOLE)
            pages_used |= set(range(start // 4096, -(-end // 4096)))
    os.close(fd)
    return pages_used


class Memory:
    """Shared memory with a limited number of pages, or in which certain steps fail.

    Attributes:
        have: the allocated pages.
        touched_early: the pages that had content before they were allocated.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pages: int, fails: tuple[str, ...] = ()) -> None:
        self.pages = pages
        self.fails = fails
        self.have: set[int] = set()
        self.touched_early: set[int] = set()
        self.steps: list[str] = []
        monkeypatch.setattr(ring, "fallocate", self.fallocate)

    def fallocate(self, step: str, fd: int, offset: int, length: int) -> None:
        self.steps.append(step)
        self.touched_early |= touched_pages(f"/proc/self/fd/{fd}") - self.have
        want = self.have | set(range(offset // 4096, (offset + length) // 4096))
        if step in self.fails or len(want) > self.pages:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.have = want
        os.posix_fallocate(fd, offset, length)


def test_pages_are_allocated_on_demand(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small log takes three pages and more as it grows; each page is allocated before it has text."""
    memory = Memory(monkeypatch, 1_000_000)
    log = make_log(blocks=8, block_size=65536)
    log.feed(STDOUT, b"line\n")
    assert len(memory.have) == 3
    log.feed(STDOUT, b"x" * 99 + b"\n")
    for number in range(300):
        log.feed(STDOUT if number % 2 else STDERR, b"x" * 9 + b"\n", T0 + number)
    assert 3 < len(memory.have) < 10
    log.feed(STDOUT, b"half")
    log.writer.mirror_pending()
    assert "pending" in memory.steps
    log.feed(STDOUT, (b"x" * 99 + b"\n") * 5000, T0 + 500)
    assert len(memory.have) == 2 + 8 * 16
    assert os.stat(log.ring_path).st_size == RING_BLOCKS_AT + 8 * 65536
    assert memory.touched_early == set()
    assert touched_pages(log.ring_path) <= memory.have


@pytest.mark.parametrize(("calm", "slots"), [(True, 4), (False, 16)])
def test_only_a_flood_needs_a_large_ring(make_log: MakeLog, calm: bool, slots: int) -> None:
    """If the first block is written before the fourth is full, four slots suffice; nothing is lost either way."""
    log = make_log(blocks=16, block_size=262144)
    assert log.file is not None
    line = b"x" * 99 + b"\n"
    for number in range(60):
        log.feed(STDOUT, line * 1000, T0 + number)
        if calm:
            log.file.write_closed()
    assert log.writer.blocks.ring.slots == log.writer.blocks.ring.taken == slots
    log.finish(T0 + 60)
    assert b"".join(log.reader.raw()) == line * 60_000


@pytest.mark.parametrize("pages", [*range(3, 36), 60, 100])
def test_smaller_ring_loses_nothing(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, pages: int) -> None:
    """With any number of pages from three up, nothing is lost; the ring has fewer or smaller blocks."""
    Memory(monkeypatch, pages)
    log = make_log(blocks=4, block_size=65536)
    expected = []
    for number in range(1500):
        line = b"%d:" % number + b"y" * (number * 37 % 400)
        expected.append(line)
        log.feed(STDOUT if number % 5 else STDERR, line + b"\n", T0 + number // 3)
    log.feed(STDOUT, b"z" * 20000 + b"\n", T0 + 1000)
    log.writer.mirror_pending()
    log.finish(T0 + 1000)
    lines = log.lines()
    assert texts(lines)[:1500] == expected
    assert b"".join(texts(lines)[1500:]) == b"z" * 20000
    assert [line.continued for line in lines[1500:]] == [False] + [True] * (len(lines) - 1501)
    assert log.writer.blocks.ring.slots == max(1, min(4, (pages - 1) // 16))


def test_half_of_the_memory_stays_free(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring takes its second block only while half of the shared memory is free."""
    free = 500
    monkeypatch.setattr(os, "fstatvfs", lambda _: os.statvfs_result((4096, 4096, 1000, free, free, 9, 9, 9, 0, 255)))
    log = make_log(blocks=4, block_size=65536)
    log.feed(STDOUT, b"x" * 99 + b"\n" * 100_000)
    assert log.writer.blocks.ring.slots == 4
    free = 499
    log = make_log(blocks=4, block_size=65536)
    log.feed(STDOUT, (b"x" * 99 + b"\n") * 10_000)
    assert log.writer.blocks.ring.slots == 1
    log.finish()
    assert b"".join(log.reader.raw()) == (b"x" * 99 + b"\n") * 10_000


@pytest.mark.parametrize("step", ["first", "table", "slot", "pending"])
def test_shortage_at_each_step(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Whichever pages are missing, all lines are stored."""
    memory = Memory(monkeypatch, 1_000_000, (step,))
    log = make_log(blocks=4, block_size=65536)
    expected = []
    for number in range(2000):
        expected.append(b"%d" % number)
        log.feed(STDOUT, b"%d\n" % number + b"half", T0 + number)
        log.writer.mirror_pending()
        log.feed(STDOUT, b"\n", T0 + number)
    log.feed(STDOUT, b"x" * 300_000 + b"\n", T0 + 3000)
    assert step in memory.steps
    log.finish(T0 + 3000)
    raw = b"".join(log.reader.raw())
    assert raw == b"".join(b"%d\nhalf\n" % number for number in range(2000)) + b"x" * 300_000 + b"\n"


def test_unfinished_line_longer_than_the_memory(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unfinished line that does not fit into a block any more is split earlier than others."""
    Memory(monkeypatch, 3)
    log = make_log(blocks=4, block_size=65536)
    for _ in range(20):
        log.feed(STDOUT, "€".encode() * 500)
        log.feed(STDERR, b"e" * 1000)
    log.finish()
    assert b"".join(log.reader.raw([STDOUT])).decode() == "€" * 10_000
    assert b"".join(log.reader.raw([STDERR])) == b"e" * 20_000
    for line in log.lines():
        line.text.decode()


@pytest.mark.parametrize("pages", [0, 1, 2])
def test_no_memory_for_a_ring(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, pages: int) -> None:
    """Without memory for a ring, output is read and counted as dropped. The file waits for memory, and says so."""
    with monkeypatch.context() as patch:
        Memory(patch, pages)
        log = without_memory(make_log)
    log.finish()
    assert (log.writer.blocks.dropped, log.writer.blocks.sealed) == (5, True)
    assert not os.path.exists(log.ring_path)
    first, last = log.reader.read(0, 10).lines
    assert (first.n, first.text) == (5, b"system")
    assert last.text.endswith(b"No space left on device")


def without_memory(make_log: MakeLog) -> Log:
    """Return a log whose output had no place, and which could not be finished."""
    log = make_log()
    log.feed(STDOUT, b"one\ntwo\nthr")
    log.feed(STDERR, b"err")
    log.feed(STDOUT, b"ee\nfour")
    log.writer.system_line("system", T0)
    log.writer.mirror_pending()
    assert log.writer.blocks.place_error is not None
    assert "No space left" in log.writer.blocks.place_error
    assert log.writer.writable
    with pytest.raises(OSError, match="No space left on device"):
        log.finish()
    return log


def test_ring_without_a_place(make_log: MakeLog) -> None:
    """If the runtime directory is full or missing, a private ring serves the log file, which has every line."""
    log = make_log(blocks=8)
    assert log.file is not None
    log.writer.blocks.path = log.ring_path = "/nonexistent/run.ring"
    log.reader = log.open_reader()
    log.feed(STDOUT, b"line\n")
    assert log.writer.blocks.place_error == "/nonexistent/run.ring: No such file or directory"
    assert log.writer.blocks.private
    log.file.write_unfinished()
    assert [line.text for line in log.lines()] == [b"line"]
    log.feed(STDOUT, b"x" * 99_999 + b"\n")
    log.carry_over()
    log.feed(STDOUT, b"last\n")
    log.finish()
    assert log.writer.blocks.dropped == 0
    assert b"".join(log.reader.raw()) == b"line\n" + b"x" * 99_999 + b"\nlast\n"


def test_private_ring_gets_a_place(make_log: MakeLog, tmp_path: Path) -> None:
    """A private ring moves to the runtime directory with its content."""
    log = make_log()
    log.writer.blocks.path = log.ring_path = str(tmp_path / "missing" / "run.ring")
    log.reader = log.open_reader()
    log.feed(STDOUT, b"first\nhalf")
    (tmp_path / "missing").mkdir()
    log.writer = log.writer.in_a_new_file()
    assert not log.writer.blocks.private
    log.feed(STDOUT, b" a line\n")
    assert [line.text for line in log.lines()] == [b"first", b"half a line"]
