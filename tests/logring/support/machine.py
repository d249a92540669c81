"""A log and all events that can happen to it, for `test_machine`."""

import errno
import os
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from logring.errors import Corrupt
from logring.layout import PAGE, PUBLICATION_AT, PUBLICATION_SIZE, STDERR, STDOUT, SYSTEM, max_line
from logring.logfile import log_file
from logring.logfile.leftover_ring import save_leftover_ring
from logring.reader import Line, LogReader
from logring.ring import ring
from tests.logring.support.model import Model
from tests.logring.support.rings import T0, Log, read_all

PIPE_BYTES = 60_000
_WRITING_SIDE = (
    "logring/ring/writer.py",
    "logring/ring/open_block.py",
    "logring/ring/ring.py",
    "logring/logfile/log_file.py",
    "logring/logfile/leftover_ring.py",
)


class Killed(BaseException):
    """The writer's process was killed."""


class Cursor:
    """A reader and its position."""

    def __init__(self, reader: LogReader, position: int) -> None:
        self.reader = reader
        self.position = position


class World:
    """A log with its model, readers, disk and shared memory.

    Attributes:
        now_ms: the clock.
        survives: the directory with copies of a killed writer's files.
    """

    def __init__(self, directory: Path, *, blocks: int, block_size: int, file_blocks: int) -> None:
        directory.mkdir()
        self.log = Log(directory, blocks=blocks, block_size=block_size, file_blocks=file_blocks)
        self.model = Model(max_line(block_size))
        self.now_ms = T0
        self.queued = {STDOUT: b"", STDERR: b""}
        self.cursors: list[Cursor] = []
        self.survives = directory / "survives"
        self.loose = False
        """Whether shared memory was so short that lines may be split earlier than in the model."""
        self._killed = False
        self._mirrors = True  # whether there was always memory for unfinished lines
        self._synced, self._synced_lines = b"", 0
        self._reading: int | None = None
        self._seen: dict[int, Line] = {}
        self._writes_left: int | None = None
        self._dies_in_write = False
        self._memory_fails: frozenset[str] = frozenset()
        self._fallocate, self._pwritev = ring.fallocate, log_file.pwritev
        ring.fallocate, log_file.pwritev = self._take_memory, self._write_disk

    def close(self) -> None:
        ring.fallocate, log_file.pwritev = self._fallocate, self._pwritev
        for cursor in self.cursors:
            cursor.reader.close()
        if self._killed:  # at any step, so only its open descriptors are certain
            with suppress(AttributeError):
                self.log.writer.blocks.view.release()
            with suppress(AttributeError):
                self.log.writer.blocks.ring.close()
            self.log.writer.blocks.created = False
        self.log.close()

    # Disk and memory

    def _write_disk(self, fd: int, parts: Sequence[bytes | memoryview], at: int) -> int:
        data = b"".join(parts)
        if self._dies_in_write:
            os.pwrite(fd, data[: random.Random(len(data)).randrange(len(data) + 1)], at)
            self._leave()
        if self._writes_left is not None:
            if not self._writes_left:
                raise OSError(errno.ENOSPC, "No space left on device")
            self._writes_left -= 1
            data = data[: -(-len(data) // 2)]  # a filling disk takes only a part
        return os.pwrite(fd, data, at)

    def _take_memory(self, step: str, fd: int, offset: int, length: int) -> None:
        if step in self._memory_fails:
            self.loose = self.loose or step in ("first", "table")
            self._mirrors = self._mirrors and step != "pending"
            raise OSError(errno.ENOSPC, "No space left on device")
        self._fallocate(step, fd, offset, length)

    def disk_fills(self, after: int | None) -> None:
        """Let the disk take so many more writes; None: any number."""
        self._writes_left = after

    def memory_is_short(self, steps: frozenset[str]) -> None:
        """Let these steps of allocating memory fail from now on."""
        self._memory_fails = steps

    # The program, the pump and the file thread

    def print(self, stream: int, data: bytes) -> None:
        """Let the program print as much as its pipe has room for, and the pump read as much as the ring has."""
        data = data[: PIPE_BYTES - len(self.queued[stream])]
        with suppress(BlockingIOError):  # small writes and reads leave pages of the pipe partly used
            self.queued[stream] += data[: os.write(self.log.pipes[stream][1], data)]
        self.pump(stream)

    def pump(self, stream: int) -> None:
        """Read as much as the ring has room for."""
        while self.queued[stream] and self.log.writer.writable:
            self._reading = stream
            try:
                count = self.log.writer.readv(self.log.pipes[stream][0], stream, self.now_ms)
            except BlockingIOError:
                self._reading = None
                break
            self._reading = None
            self.model.add(stream, self.queued[stream][:count], self.now_ms)
            self.queued[stream] = self.queued[stream][count:]

    def append(self, stream: int, data: bytes) -> None:
        """Append text that comes from no pipe."""
        self.model.add(stream, data, self.now_ms)
        self.log.writer.append(stream, data, self.now_ms)

    def system_line(self) -> None:
        """Append a system line."""
        self.model.add(SYSTEM, b"at %d\n" % self.now_ms, self.now_ms)
        self.log.writer.system_line(f"at {self.now_ms}", self.now_ms)

    def file_thread(self, *, unfinished: bool) -> None:
        """Run one turn of the file thread, then let the pump read the waiting output."""
        if self.log.file is not None:
            failed = False
            try:
                if unfinished:
                    self.log.file.write_unfinished()
                else:
                    self.log.file.write_closed()
            except OSError:
                failed = True
            assert not failed or self._writes_left == 0
        self.log.writer.complete_waiting()
        for stream in (STDOUT, STDERR):
            self.pump(stream)

    def mirror(self) -> None:
        """Mirror unfinished lines, and check that they are visible."""
        self.log.writer.mirror_pending()
        if self.loose or not self._mirrors or not self.log.writer.complete_waiting():
            return
        by_stream = {pending.stream: pending.text for pending in self.log.reader.pending()}
        assert by_stream == {
            stream: text for stream, text in self.model.unfinished.items() if text and stream in (STDOUT, STDERR)
        }

    # Readers

    def open_cursor(self, anchor: int) -> None:
        """Add another reader."""
        reader = self.log.open_reader()
        self.cursors.append(Cursor(reader, reader.resolve(anchor)))

    def read(self, cursor: Cursor, limit: int, max_bytes: int) -> None:
        """Read a page, which must have the model's lines or a gap of exactly the dropped ones."""
        writer = self.log.writer
        head = cursor.reader.head()
        newest = cursor.reader.newest(cursor.position, limit, max_bytes)
        page = cursor.reader.read(cursor.position, limit, max_bytes)
        assert newest in (None, page.lines)
        start = page.lines[0].n if page.lines else page.next
        assert page.skipped == start - cursor.position
        if page.skipped:
            assert head.first_available <= start <= max(writer.blocks.first_available, head.first_available)
        assert page.next == start + len(page.lines)
        assert page.next > cursor.position or cursor.position == head.lines
        assert len(page.lines) <= limit
        assert len(page.lines) < 2 or sum(len(line.text) for line in page.lines) <= max_bytes
        self.compare(page.lines)
        cursor.position = page.next

    def compare(self, lines: list[Line]) -> None:
        """Check that lines equal the model's lines, and the same lines seen before."""
        for line in lines:
            assert self._seen.setdefault(line.n, line) == line
            if not self.loose:
                assert line == self.model.lines[line.n]

    def look(self) -> None:
        """Check that the permanent reader sees all available lines."""
        head = self.log.reader.head()
        if not self.loose:
            assert head.lines <= len(self.model.lines)
            if self.log.writer.complete_waiting() and self.log.writer.blocks.created:
                assert self.log.reader.head().lines == len(self.model.lines)
        if self.log.writer.blocks.first_available == head.first_available:
            self.compare(read_all(self.log.reader))
            assert b"".join(self.log.reader.raw([STDOUT])) in self.model.raw[STDOUT]

    # Ends

    def seal(self) -> None:
        """End the run, and check that the file and all readers have everything."""
        self.disk_fills(None)
        for _ in range(1000):
            if not any(self.queued.values()):
                break
            self.file_thread(unfinished=False)
        self.log.writer.seal(self.now_ms)
        if self.log.file is not None:
            self.log.file.finish()
        self.model.end(self.now_ms)
        for cursor in self.cursors:
            for _ in range(10_000):
                if cursor.position >= cursor.reader.head().lines:
                    break
                self.read(cursor, 100, 1 << 20)
            assert cursor.reader.head().sealed == bool(self.model.lines)
        for reader in (self.log.reader, self.log.open_reader()):
            lines = read_all(reader)
            self.compare(lines)
            head = reader.head()
            if not self.loose:
                assert head.lines == len(self.model.lines)
                assert lines == self.model.lines[head.first_available :]
            if not head.first_available:
                for stream, raw in self.model.raw.items():
                    assert b"".join(reader.raw([stream])) == raw
            if self.log.file is not None or reader is not self.log.reader:
                reader.close()

    def kill(self, action: Callable[[], None], after: int) -> None:
        """Do an action, kill the writer before statement `after` of the writing side, and save the remains.

        If the action has fewer statements, the writer is killed after it.
        """
        bytes_left = after

        def trace(frame: FrameType, event: str, _arg: Any) -> Any:
            nonlocal bytes_left
            if event == "call":
                return trace if frame.f_code.co_filename.endswith(_WRITING_SIDE) else None
            if event == "line":
                bytes_left -= 1
                if bytes_left == 0:
                    self._leave()
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            action()
            sys.settrace(before)
            self._leave()
        except Killed:
            pass
        finally:
            sys.settrace(before)
        self._save()

    def kill_in_write(self, action: Callable[[], None]) -> None:
        """Do an action, kill the writer in or after the first write to the disk, and save the remains."""
        self._dies_in_write = True
        try:
            action()
            self._leave()
        except Killed:
            pass
        finally:
            self._dies_in_write = False
        self._save()

    def _leave(self) -> None:
        """Copy the files that survive the writer, perhaps amid the next publication, and raise Killed."""
        self._killed = True
        self.survives.mkdir()
        for path in (self.log.ring_path, self.log.log_path):
            if os.path.exists(path):
                shutil.copy(path, self.survives)
        ring_file = self.survives / "run.ring"
        if ring_file.exists():
            with open(ring_file, "r+b") as file:
                page = file.read(4096)
                seqs = [int.from_bytes(page[at : at + 4], "little") for at in PUBLICATION_AT]
                if all(seqs):
                    file.seek(PUBLICATION_AT[seqs.index(min(seqs))])
                    file.write(b"\x55" * (len(page) * self.now_ms % PUBLICATION_SIZE))
        raise Killed

    def _save(self) -> None:
        """Save the ring, and check that published and mirrored lines are readable before and after."""
        self.disk_fills(None)
        if self._reading is not None:  # as much as may have been read before the kill
            self.model.add(self._reading, self.queued[self._reading], self.now_ms)
        self.model.end(self.now_ms)
        path, file = str(self.survives / "run.ring"), str(self.survives / "run.log")
        reader = LogReader(path, file)
        first, count = reader.head().first_available, reader.head().lines
        pending = {unfinished.stream: unfinished.text for unfinished in reader.pending()}
        if first >= self.log.writer.blocks.first_available:  # otherwise their slot was being reused
            self.compare(read_all(reader))
        reader.close()
        had_ring = os.path.exists(path)
        saved = save_leftover_ring(path, file)
        reader = LogReader(path, file)
        head = reader.head()
        assert not had_ring or head.lines == saved
        assert head.sealed or not head.lines
        lines = read_all(reader)
        self.compare([line for line in lines if line.n < count])
        later_lines = [line for line in lines if line.n >= count]
        if head.first_available <= count:
            assert {stream: text for stream, text in pending.items() if text} == {
                stream: b"".join(line.text for line in later_lines if line.stream == stream)
                for stream in {line.stream for line in later_lines}
            }
        assert head.first_available <= count
        reader.close()

    def disk_syncs(self) -> None:
        """Let all lines written so far survive a power loss."""
        writer = self.log.writer
        if os.path.exists(self.log.log_path):
            self._synced = Path(self.log.log_path).read_bytes()
            complete = writer.blocks.written_blocks == writer.blocks.closed_blocks
            self._synced_lines = writer.blocks.head.first_line if complete and writer.blocks.is_open else 0

    def lose_power(self, seed: int) -> None:
        """Lose the ring and some unsynced pages of the file, and check that whole blocks are readable."""
        if not self._synced or self.log.writer.blocks.head_block >= self.log.writer.blocks.file_blocks:
            return
        rng = random.Random(seed)
        now = Path(self.log.log_path).read_bytes()
        old = self._synced.ljust(len(now), b"\0")
        pages = [rng.choice((now, old))[at : at + PAGE] for at in range(0, len(now), PAGE)]
        left = self.survives / "run.log"
        self.survives.mkdir(exist_ok=True)
        left.write_bytes(b"".join(pages))
        reader = LogReader(None, str(left))
        lines: dict[int, Line] = {}
        position, end = 0, reader.head().lines
        while position < end:
            try:
                page = reader.read(position, 100)
                lines |= {line.n: line for line in page.lines}
                following = page.next
            except Corrupt as err:
                following = err.next or 0
            assert following > position
            position = following
        reader.close()
        # A page that never reached the disk is zero: only a line of zeros can pass for a printed one.
        self.compare([line for line in lines.values() if b"\0" not in line.text])
        assert set(range(self._synced_lines)) <= set(lines)
