"""Helpers of the logring tests: a log with pipes, and a program that writes numbered lines."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from logring.layout import STDERR, STDOUT, RingShape
from logring.logfile.log_file import LogFileWriter
from logring.reader import Line, LogReader
from logring.ring.writer import RingWriter
from tests.support.paths import ROOT

T0 = 1_700_000_000_000


class Log:
    """A writer with one pipe for each stream, its log file, and a reader."""

    def __init__(
        self,
        directory: Path,
        *,
        blocks: int = 3,
        block_size: int = 8192,
        file_blocks: int = 1000,
        first_line: int = 0,
        policy: str = "drop_old",
    ) -> None:
        self.ring_path = str(directory / "run.ring")
        self.log_path = str(directory / "logs" / "run.log")
        self.writer = RingWriter.new(
            self.ring_path,
            "01ARZ3NDEKTSV4RRFFQ69G5FAV",
            RingShape(file_blocks, blocks, block_size),
            first_line=first_line,
            policy=policy,
        )
        self.file = LogFileWriter(self.log_path, self.writer, file_blocks) if file_blocks else None
        self.reader = self.open_reader()
        self.pipes = {stream: os.pipe() for stream in (STDOUT, STDERR)}
        for reading, writing in self.pipes.values():
            os.set_blocking(reading, False)
            os.set_blocking(writing, False)

    def open_reader(self) -> LogReader:
        return LogReader(self.ring_path, self.log_path if self.file else None)

    def feed(self, stream: int, data: bytes, now_ms: int = T0) -> None:
        """Let the program print `data`, and the pump take all of it; the file thread helps only when it must."""
        reading, writing = self.pipes[stream]
        while data:
            data = data[os.write(writing, data[:65536]) :]
            while True:
                if not self.writer.writable:
                    assert self.file is not None
                    assert self.file.write_closed() > 0
                try:
                    self.writer.readv(reading, stream, now_ms)
                except BlockingIOError:
                    if self.writer.writable:
                        break

    def fill_ring(self) -> list[bytes]:
        """Let the program print until no slot is free; return all lines, of which some are still in the pipe."""
        reading, writing = self.pipes[STDOUT]
        lines: list[bytes] = []
        while self.writer.writable:
            lines += [b"%08d" % number for number in range(len(lines), len(lines) + 10)]
            os.write(writing, b"".join(line + b"\n" for line in lines[-10:]))
            with suppress(BlockingIOError):
                self.writer.readv(reading, STDOUT, T0)
        return lines

    def carry_over(self) -> None:
        """Continue the log in another program, which knows only the handed-over state."""
        document = json.loads(json.dumps(self.writer.dump(os.dup)))
        self.writer.close()
        self.writer = RingWriter.load(document)
        if self.file is not None:
            before = self.file
            before.close()
            self.file = LogFileWriter(self.log_path, self.writer, self.writer.blocks.file_blocks)
            self.file.progress = before.progress

    def finish(self, now_ms: int = T0) -> None:
        self.writer.seal(now_ms)
        if self.file is not None:
            self.file.finish()

    def lines(self) -> list[Line]:
        return read_all(self.reader)

    def close(self) -> None:
        self.reader.close()
        if self.file is not None:
            self.file.close()
        self.writer.close()
        for pair in self.pipes.values():
            for fd in pair:
                os.close(fd)


def read_all(reader: LogReader, start: int | None = None, limit: int = 1000) -> list[Line]:
    """Return all lines from `start` (default: the first available) to the present end; none may be skipped."""
    head = reader.head()
    position = head.first_available if start is None else start
    lines: list[Line] = []
    while position < head.lines:
        page = reader.read(position, limit)
        assert page.skipped == 0, f"line {position} is gone"
        assert page.lines
        lines += page.lines
        position = page.next
    return lines


def texts(lines: Iterable[Line]) -> list[bytes]:
    return [line.text for line in lines]


def numbered(number: int) -> bytes:
    """Return line `number` of the program, without its newline; some are long, some have arbitrary bytes."""
    if number % 499 == 498:
        return b"%d:" % number + "ä€😀".encode() * (number % 4000)
    return b"%d:" % number + bytes((number + i * 31) % 256 for i in range(number % 61)).replace(b"\n", b"\0")


class Joiner:
    """Joins parts of lines and checks that they are the numbered lines, each once and in order.

    Even lines belong to stdout, odd ones to stderr.
    """

    def __init__(self) -> None:
        self.next_line = 0
        self._parts = {STDOUT: b"", STDERR: b""}
        self._expected = {STDOUT: 0, STDERR: 1}
        self._whole = {STDOUT: True, STDERR: True}

    def add(self, lines: Iterable[Line]) -> None:
        for line in lines:
            assert line.n == self.next_line
            self.next_line += 1
            stream = line.stream
            if not line.continued:
                self._check(stream)
                self._parts[stream] = line.text
            else:
                self._parts[stream] += line.text

    def _check(self, stream: int) -> None:
        if self._parts[stream]:
            assert self._parts[stream] == numbered(self._expected[stream])
            self._expected[stream] += 2

    def end(self, *, torn: bool = False) -> None:
        """Check the last lines, which may be unfinished if `torn`."""
        for stream, part in self._parts.items():
            if torn:
                assert numbered(self._expected[stream]).startswith(part)
            else:
                self._check(stream)


@contextmanager
def child_writer(*args: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run the program in child.py, and kill it at the end if it still runs."""
    with subprocess.Popen([sys.executable, "-m", "tests.logring.support.child", *map(str, args)], cwd=ROOT) as child:
        try:
            yield child
        finally:
            child.kill()
