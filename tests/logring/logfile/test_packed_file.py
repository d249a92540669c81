"""Packed log files read like plain ones."""

import gzip
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logring.__main__ import main as look_into
from logring.errors import Corrupt, ForeignFile
from logring.layout import (
    FILE_BLOCKS_AT,
    HEADER_SIZE,
    KIND_PACKED,
    PAGE,
    STDERR,
    STDOUT,
    Static,
)
from logring.log_search import Pattern, SearchLimits, search
from logring.logfile import zstd
from logring.logfile.compress import SUFFIX, compress
from logring.reader import Head, Line, LogReader
from tests.logring.support.rings import T0, Log, read_all, texts
from tests.logring.support.steps import STEPS, Step, play

MakeLog = Callable[..., Log]
DATA = Path(__file__).parent / "data"


class Content(NamedTuple):
    """Everything that readers return for a log."""

    head: Head
    lines: dict[int, Line]
    gone: list[tuple[int, int]]
    raw: list[list[bytes] | None]
    found: tuple[list[int], int]


def content(path: str) -> Content:
    reader = LogReader(None, path)
    try:
        head = reader.head()
        lines, gone = walked(reader, head)
        raw = [raw_of(reader, streams) for streams in ([STDOUT, STDERR], [STDOUT], [STDERR])]
        result = search(reader, Pattern("7"), limits=SearchLimits(10**9, 1 << 30))
        assert result.exhausted
        return Content(head, lines, gone, raw, ([hit.n for hit in result.hits], result.damaged))
    finally:
        reader.close()


def walked(reader: LogReader, head: Head) -> tuple[dict[int, Line], list[tuple[int, int]]]:
    """Return the readable lines by number, and the ranges of damaged or dropped lines."""
    lines: dict[int, Line] = {}
    gone: list[tuple[int, int]] = []
    position = head.first_available
    while position < head.lines:
        try:
            page = reader.read(position, 100)
        except Corrupt as err:
            gone.append((position, err.next or head.lines))
            position = err.next or head.lines
            continue
        if page.skipped:
            gone.append((position, position + page.skipped))
        lines |= {line.n: line for line in page.lines}
        position = page.next
    return lines, gone


def raw_of(reader: LogReader, streams: list[int]) -> list[bytes] | None:
    try:
        return [b"".join(reader.raw(streams))]
    except Corrupt:
        return None


def printed(log: Log, count: int = 600) -> None:
    """Lines of both streams, some long and split, some random, and a last one without its newline."""
    rng = random.Random(7)
    for number in range(count):
        text = rng.randbytes(900).replace(b"\n", b"") if number % 37 == 36 else b"line %d of many" % number
        log.feed(STDERR if number % 3 == 0 else STDOUT, text + b"\n", T0 + number)
        if number % 200 == 199:
            log.feed(STDOUT, b"x" * 3000 + b"\n", T0 + number)
    log.feed(STDOUT, b"no newline", T0 + count)
    log.finish(T0 + count)


def damage(path: str, at: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize("file_blocks", [1000, 5, 1])
def test_packed_log_equals_the_plain_one(
    make_log: MakeLog, file_blocks: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines, raw bytes, search and ``python -m logring`` are the same for a packed log, which is smaller and as old."""
    log = make_log(block_size=4096, file_blocks=file_blocks)
    printed(log)
    path = log.log_path
    os.utime(path, ns=(T0, T0))
    before, size = content(path), os.stat(path).st_size
    shown = []
    for _ in range(2):
        for command in (["dump"], ["check"], ["tail", "-n", "700"]):
            assert look_into([*command, path]) == 0
        shown.append(capsys.readouterr().out)
        assert compress(path) == (len(shown) == 1)
    assert shown[0] == shown[1]
    assert content(path) == before
    assert os.stat(path).st_mtime_ns == T0
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]
    assert os.stat(path).st_size <= size - PAGE
    assert Static.parse(Path(path).read_bytes(), path).kind == KIND_PACKED


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(STEPS, max_size=40),
    blocks=st.integers(1, 3),
    block_size=st.sampled_from([4096, 8192]),
    file_blocks=st.sampled_from([1, 2, 5, 1000]),
    bad=st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=2),
)
def test_packing_any_log(
    steps: list[Step],
    blocks: int,
    block_size: int,
    file_blocks: int,
    bad: list[tuple[int, bool]],
) -> None:
    """For any log with any damage, the same lines are readable before and after packing."""
    with tempfile.TemporaryDirectory() as directory:
        log = Log(Path(directory), blocks=blocks, block_size=block_size, file_blocks=file_blocks)
        try:
            play(log, steps)
        finally:
            log.close()
        if not os.path.exists(log.log_path):
            return
        slots = os.stat(log.log_path).st_size // block_size
        for slot, header in bad:
            if slot < slots:
                damage(log.log_path, FILE_BLOCKS_AT + slot * block_size + (8 if header else HEADER_SIZE + 1), b"\0?\0")
        before = content(log.log_path)
        compress(log.log_path)
        assert content(log.log_path) == before


def test_reader_during_packing(make_log: MakeLog) -> None:
    """A reader with the log open reads the old file to its end; a later one reads the new file."""
    log = make_log(block_size=4096)
    printed(log)
    reader = LogReader(None, log.log_path)
    page = reader.read(0, 10)
    assert compress(log.log_path)
    late = LogReader(None, log.log_path)
    assert read_all(reader) == read_all(late)
    assert reader.read(0, 10) == late.read(0, 10) == page
    reader.close()
    late.close()


def test_only_sealed_logs_are_packed(make_log: MakeLog, tmp_path: Path) -> None:
    """An unsealed log, a missing log and a foreign file are not changed."""
    log = make_log(block_size=4096)
    for number in range(600):
        log.feed(STDOUT, b"line %d\n" % number, T0)
    assert log.file is not None
    log.file.write_unfinished()
    before = Path(log.log_path).read_bytes()
    with pytest.raises(Corrupt, match="not sealed"):
        compress(log.log_path)
    assert Path(log.log_path).read_bytes() == before
    assert not os.path.exists(log.log_path + SUFFIX)
    assert not compress(str(tmp_path / "none.log"))
    foreign = tmp_path / "foreign.log"
    foreign.write_bytes(b"text" * 5000)
    with pytest.raises(ForeignFile):
        compress(str(foreign))


def test_incompressible_log_is_kept(make_log: MakeLog) -> None:
    """Random bytes are not rewritten; three lines are, because they then take one page of disk instead of two."""
    log = make_log(block_size=65536)
    log.feed(STDOUT, random.Random(1).randbytes(32_300).replace(b"\n", b"") + b"\n", T0)
    log.finish(T0)
    before = Path(log.log_path).read_bytes()
    assert not compress(log.log_path)
    assert Path(log.log_path).read_bytes() == before
    small = make_log()
    small.feed(STDOUT, b"one\ntwo\nthree\n", T0)
    small.finish(T0)
    assert compress(small.log_path)
    assert os.stat(small.log_path).st_size < PAGE
    assert texts(small.lines()) == [b"one", b"two", b"three"]


def test_log_removed_during_packing(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that is deleted while it is packed stays deleted."""
    log = make_log(block_size=4096)
    printed(log)

    def pack(data: bytes, level: int) -> bytes:
        if os.path.exists(log.log_path):
            os.unlink(log.log_path)
        return original(data, level)

    original = zstd.pack
    monkeypatch.setattr(zstd, "pack", pack)
    assert not compress(log.log_path)
    assert os.listdir(os.path.dirname(log.log_path)) == []


def test_file_of_an_earlier_release(tmp_path: Path) -> None:
    """A kept packed file of format 1 is read as it was then."""
    path = tmp_path / "run.log"
    path.write_bytes(gzip.decompress((DATA / "format-1-packed.log.gz").read_bytes()))
    reader = LogReader(None, str(path))
    lines = read_all(reader)
    assert texts(lines) == [b"line %d of all" % number for number in range(450)]
    assert [(line.n, line.ts, line.stream) for line in lines] == [
        (number, T0 + number // 10, STDERR if number % 5 == 0 else STDOUT) for number in range(450)
    ]
    reader.close()
