"""Whole rings and log files for the fuzzer to damage, with their lines and the location of each block."""

import os
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from logring.errors import LogError
from logring.layout import FILE_BLOCKS_AT, INDEX_RECORD_AT, RING_BLOCKS_AT, STDERR, STDOUT
from logring.log_paths import frames_path
from logring.logfile.compress import compress
from logring.logfile.packed_file import Index
from logring.reader import Line
from logring.redraw.history_file import FramesWriter
from logring.redraw.redraw_writer import FrameQueue
from tests.logring.support.rings import T0, Log, read_all

BLOCK_SIZE = 4096


class Place(NamedTuple):
    """The location of a block, and its lines."""

    part: str
    begin: int
    end: int
    first_line: int
    end_line: int


FRAMES = "file.frames"

RUN_FRAMES = {
    line: tuple((b"%d %%" % (percent * line), b"row" * (line % 40)) for percent in range(1, 9))
    for line in range(0, 250, 3)
}


class Specimen(NamedTuple):
    """A ring, a log file and a sidecar as on a machine, named "ring", "file" and FRAMES."""

    name: str
    parts: dict[str, bytes]
    lines: dict[int, Line]
    places: list[Place]

    def write(self, directory: str, part: str, data: bytes) -> None:
        """Replace the content of a part that `spread` wrote."""
        path = os.path.join(directory, part)
        with open(path, "wb") as file:
            file.write(data)

    def spread(self, directory: str) -> None:
        """Write all parts."""
        for part, data in self.parts.items():
            self.write(directory, part, data)


def _print(log: Log, count: int, start: int = 0) -> None:
    """Print lines of both streams: empty, long, of arbitrary bytes, several at once; times step back."""
    for number in range(start, start + count):
        stream = STDERR if number % 3 else STDOUT
        if number % 41 == 40:
            text = b"z" * 1500 + b"\n"
        elif number % 7 == 6:
            text = b"a\n\nb %d\n" % number
        else:
            text = b"line %d \xff\xc3\xa4\n" % number
        log.feed(stream, text, T0 + number - (300 if number % 97 == 96 else 0))


def _live(log: Log) -> None:
    _print(log, 330)
    assert log.file is not None
    log.file.write_unfinished()
    _print(log, 20, 330)
    log.writer.system_line("of our own", T0 + 500)
    log.feed(STDOUT, b"half a line", T0 + 600)
    log.writer.mirror_pending()
    log.feed(STDOUT, b" and more", T0 + 601)
    log.feed(STDERR, b"another", T0 + 601)
    log.writer.mirror_pending()


def _young(log: Log) -> None:
    _print(log, 60)
    log.feed(STDERR, b"half", T0 + 100)
    log.writer.mirror_pending()


def _without_file(log: Log) -> None:
    _print(log, 400)


def _sealed(log: Log) -> None:
    _print(log, 250)
    log.feed(STDOUT, b"no newline", T0 + 500)
    log.finish(T0 + 500)


def _packed(log: Log) -> None:
    _sealed(log)
    assert compress(log.log_path)


def _with_frames(log: Log) -> None:
    _sealed(log)
    queue = FrameQueue()
    sidecar = FramesWriter(frames_path(log.log_path), "01ARZ3NDEKTSV4RRFFQ69G5FAV", queue, 0)
    for line, frames in RUN_FRAMES.items():
        queue.add(line, frames)
        sidecar.write()
    sidecar.close()


def _short_sealed(log: Log) -> None:
    _print(log, 110)
    log.finish(T0 + 500)


def _short_unsealed(log: Log) -> None:
    _print(log, 110)
    assert log.file is not None
    log.file.write_unfinished()
    os.unlink(log.ring_path)


def _unsealed(log: Log) -> None:
    _print(log, 250)
    assert log.file is not None
    log.file.write_unfinished()
    os.unlink(log.ring_path)


KINDS: dict[str, tuple[Callable[[Log], None], dict[str, Any]]] = {
    "ring and file": (_live, {"blocks": 2}),
    "ring and wrapped file": (_live, {"blocks": 2, "file_blocks": 3}),
    "ring before its file": (_young, {"blocks": 2}),
    "ring of a log without a file": (_without_file, {"blocks": 2, "file_blocks": 0}),
    "sealed file": (_sealed, {}),
    "sealed file with other line numbers": (_sealed, {"first_line": 1000}),
    "sealed wrapped file": (_sealed, {"file_blocks": 3}),
    "unsealed file": (_unsealed, {}),
    "sealed file and frames": (_with_frames, {}),
    "packed file": (_packed, {}),
    "packed wrapped file": (_packed, {"file_blocks": 3}),
    "short sealed file": (_short_sealed, {}),
    "short unsealed file": (_short_unsealed, {}),
    "unsealed wrapped file": (_unsealed, {"file_blocks": 3}),
}


def specimen(kind: str) -> Specimen:
    """Return a specimen of a kind."""
    fill, arguments = KINDS[kind]
    with tempfile.TemporaryDirectory() as directory:
        log = Log(Path(directory), block_size=BLOCK_SIZE, **arguments)
        try:
            fill(log)
            return _taken(kind, log)
        finally:
            log.close()


def _taken(kind: str, log: Log) -> Specimen:
    parts = {}
    for part, path in (("ring", log.ring_path), ("file", log.log_path), (FRAMES, frames_path(log.log_path))):
        if os.path.exists(path):
            parts[part] = Path(path).read_bytes()
    lines = read_all(log.reader)
    index = Index.parse(parts["file"][INDEX_RECORD_AT:]) if kind.startswith("packed") else None
    places = []
    for block in log.reader.blocks():
        assert not isinstance(block, LogError)
        header = block.header
        if index is not None:
            start, end = struct.unpack_from("<QQ", parts["file"], index.at + 8 * (header.number - index.first))
            places.append(Place("file", start, end, header.first_line, header.end_line))
            continue
        if block.where.startswith(log.ring_path):
            part, at = "ring", RING_BLOCKS_AT + header.number % log.writer.blocks.ring.slots * BLOCK_SIZE
        else:
            slots = log.writer.blocks.file_blocks
            part, at = "file", FILE_BLOCKS_AT + header.number % slots * BLOCK_SIZE
        places.append(Place(part, at, at + header.extent, header.first_line, header.end_line))
    return Specimen(kind, parts, {line.n: line for line in lines}, places)
