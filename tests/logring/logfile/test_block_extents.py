"""Sizes of a log's blocks, found in their headers."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logring.errors import LogError
from logring.layout import FILE_BLOCKS_AT, HEADER_SIZE, STDERR, STDOUT, SYSTEM
from logring.logfile.compress import compress
from logring.logfile.stored_file import StoredFile
from logring.reader import Extent, LogReader
from tests.logring.support.rings import T0, Log
from tests.logring.support.steps import STEPS, Step, play

MakeLog = Callable[..., Log]
WANTED = ((STDOUT, STDERR), (STDOUT,), (STDERR,), (SYSTEM,), (STDOUT, STDERR, SYSTEM))


def extents_of(path: str, streams: tuple[int, ...], start: int = 0) -> list[Extent | LogError]:
    reader = LogReader(None, path)
    try:
        return list(reader.extents(streams, start))
    finally:
        reader.close()


def read(path: str, streams: tuple[int, ...], start: int = 0) -> list[Extent]:
    """Return the same extents, found by reading the blocks."""
    reader = LogReader(None, path)
    try:
        extents = []
        for block in reader.blocks(start):
            assert not isinstance(block, LogError)
            extents.append(Extent(block.header.first_line, sum(map(len, block.raw(streams)))))
        return extents
    finally:
        reader.close()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(STEPS, max_size=40),
    block_size=st.sampled_from([4096, 8192]),
    file_blocks=st.sampled_from([2, 5, 1000]),
    start=st.integers(0, 2000),
)
def test_extents_match_the_blocks(steps: list[Step], block_size: int, file_blocks: int, start: int) -> None:
    """For any log, plain or packed, headers and tables give the size of each block's streams exactly."""
    with tempfile.TemporaryDirectory() as directory:
        log = Log(Path(directory), block_size=block_size, file_blocks=file_blocks)
        try:
            play(log, steps)
        finally:
            log.close()
        for packed in (False, True):
            if packed and os.path.exists(log.log_path):
                compress(log.log_path)
            for streams in WANTED:
                assert extents_of(log.log_path, streams) == read(log.log_path, streams)
            assert extents_of(log.log_path, WANTED[0], start) == read(log.log_path, WANTED[0], start)


def chatty(log: Log, lines: int = 2000) -> None:
    for number in range(lines):
        log.feed(STDERR if number % 3 else STDOUT, b"line %d\n" % number, T0 + number)
    log.finish(T0 + lines)


def test_only_headers_are_read(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Extents are found without reading text, for logs of one or both streams and any requested stream."""
    log = make_log()
    chatty(log)

    def load(_file: StoredFile, number: int) -> None:
        raise AssertionError(f"block {number} is read")

    expected = [read(log.log_path, streams) for streams in WANTED]
    monkeypatch.setattr(StoredFile, "_load", load)
    assert [extents_of(log.log_path, streams) for streams in WANTED] == expected


def test_damaged_blocks(make_log: MakeLog) -> None:
    """A damaged text keeps the size from its header; a damaged or missing header is an error."""
    log = make_log(block_size=8192)
    chatty(log)
    whole = extents_of(log.log_path, WANTED[0])
    assert len(whole) > 5
    with open(log.log_path, "r+b") as file:
        file.seek(FILE_BLOCKS_AT + 8192 + HEADER_SIZE + 5)
        file.write(b"\xff" * 9)
        file.seek(FILE_BLOCKS_AT + 3 * 8192 + 9)
        file.write(b"\xff")
    extents_found = extents_of(log.log_path, WANTED[0])
    assert isinstance(extents_found[3], LogError)
    assert [*extents_found[:3], whole[3], *extents_found[4:]] == whole
    os.truncate(log.log_path, FILE_BLOCKS_AT + 2 * 8192)
    extents_found = extents_of(log.log_path, WANTED[0])
    assert extents_found[:2] == whole[:2]
    assert isinstance(extents_found[2], LogError)
