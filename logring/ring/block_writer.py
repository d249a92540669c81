"""Placing text in the blocks of a ring, where it stays. No disk is touched here.

The unfinished line of the stream that printed last (`_live`) is in the head block, after the complete lines, where the
next read continues it. When another stream prints, or the block is closed, the line is kept in `_tails` until its
stream prints again.
"""

import errno
from mmap import mmap
from zlib import crc32

from logring.layout import (
    CONTINUED,
    FRAMES,
    NO_NEWLINE,
    POLICIES,
    PREFIX,
    PUBLICATION_AT,
    PUBLICATION_SIZE,
    STATE_BODY,
    STATE_SEALED,
    RingShape,
    max_line,
)
from logring.lines import LONG_LINE, count_lines, has_long_line, utf8_cut
from logring.redraw.redraw_writer import FrameQueue, LineEnd
from logring.ring.open_block import HeadBlock
from logring.ring.ring import Ring

_CALM_BYTES = 1 << 20


class BlockWriter:
    """Places text in the blocks of a ring, and publishes it; the base class of `RingWriter`.

    The writer is split in two classes, because it is too long for one file. This class knows no mask, reducer, backlog
    or gap: it places the text that it gets, or raises `BlockingIOError` if there is no free slot. `RingWriter` decides
    when and whether text is placed. This is a base class rather than a component, because both classes work on the
    head block for each read.
    """

    ring: Ring
    _mm: mmap
    _view: memoryview
    _head: HeadBlock

    def __init__(self, path: str, run_id: str, shape: RingShape, *, policy: str, first_line: int) -> None:
        self.path, self.run_id = path, run_id
        self.file_blocks, blocks, self.block_size = shape
        self.lines = self.first_available = self._first_line = first_line
        self.dropped = 0
        self.created = self.sealed = False
        self.head_block = self.closed_blocks = self.written_blocks = 0
        self.place_error: str | None = None
        self.shortage: str | None = None
        self.frames = FrameQueue()
        self._blocks = blocks
        self._policy = POLICIES[policy]
        self._max_line = max_line(self.block_size)
        self._min_room = self.block_size // 32
        self._seq = 0
        self._published_first = self._published_lines = first_line
        self._starts = [first_line] * blocks  # first line of the block in each slot
        self._bytes = [0, 0, 0]
        self._seal_wanted = self._resumed = False
        self._lines_long = False  # whether the last read had few lines for its size
        self._open = False  # whether the head block takes more text
        self._live = -1  # the stream whose unfinished line is in the head block; -1 if there is none
        # For each stream: its unfinished line if the head block does not hold it, whether that continues a line, the
        # time of its last bytes, and whether it has changed since the last mirroring.
        self._tails = [b"", b"", b""]
        self._continued = [0, 0, 0]
        self._tail_ms = [0, 0, 0]
        self._unmirrored = [False, False, False]
        self._region_epoch = 0

    # Text

    def _ready(self, now_ms: int) -> bool:
        """Return whether a read can go into the head block now."""
        head = self._head
        return head.limit - head.fill >= self._min_room and head.floor_ms <= now_ms <= head.ceiling_ms

    def _has_tail(self, stream: int) -> bool:
        if stream == self._live:
            return self._head.fill > self._head.start
        return bool(self._tails[stream])

    def _prepare(self, stream: int, now_ms: int) -> None:
        """Make sure that a block is open, has the stream's unfinished line at its end, and has room.

        Raises:
            BlockingIOError: there is no free slot.
        """
        if self._open and not self._head.floor_ms <= now_ms <= self._head.ceiling_ms:
            self._close_block()  # time went backwards, or too far for a delta
        while True:
            if not self._open:
                self._open_block()
            head = self._head
            if stream != self._live:
                self._park()
                tail = self._tails[stream]
                need = len(tail) + self._min_room
                while head.limit - head.start < need and head.grow():
                    pass
                if head.limit - head.start < need:
                    if not head.lines:
                        self._force_split(stream, now_ms)
                    self._close_block()
                    continue
                self._write(head.start, tail)
                head.fill = head.start + len(tail)
                self._tails[stream] = b""
                self._live = stream
            if head.limit - head.fill >= self._min_room:
                return
            if not head.grow():
                if head.lines:
                    self._close_block()
                else:
                    self._park()  # the next iteration splits it, because it is too long for the block

    def _force_split(self, stream: int, now_ms: int) -> None:
        """Split a parked unfinished line that does not fit an empty block, because shared memory is short."""
        head, tail = self._head, self._tails[stream]
        fits = head.limit - head.start
        cut = utf8_cut(tail, 0, fits) if fits < len(tail) else len(tail)
        self._write(head.start, tail[:cut])
        head.fill = head.start + cut
        self._commit(head.fill, 1, stream, NO_NEWLINE, now_ms)
        self._tails[stream] = tail[cut:]

    def _finish(self, stream: int, now_ms: int) -> None:
        if self._has_tail(stream):
            if stream != self._live or not self._head.floor_ms <= now_ms <= self._head.ceiling_ms:
                self._prepare(stream, now_ms)
            self._commit(self._head.fill, 1, stream, NO_NEWLINE, now_ms)
            self._continued[stream] = 0
            self._after_commit()

    def _end_drawn(self, stream: int, end: LineEnd, now_ms: int) -> None:
        """End the stream's unfinished line, for which there are frames."""
        self._prepare(stream, now_ms)
        head = self._head
        newline = end or (b"\n" if head.fill == head.start else b"")
        self._write(head.fill, newline)
        head.fill += len(newline)
        if self.file_blocks:
            self.frames.add(self.lines, end.frames)
        self._commit(head.fill, 1, stream, FRAMES if newline else FRAMES | NO_NEWLINE, now_ms, len(end.frames))
        self._after_commit()

    def _absorb(self, stream: int, count: int, now_ms: int) -> None:
        """Take in `count` bytes that were written after the unfinished line."""
        mm, head = self._mm, self._head
        start = head.fill
        end = head.fill = start + count
        cut = mm.rfind(b"\n", start, end) + 1
        before = head.start
        if end - before > self._max_line and has_long_line(mm, before, cut, end, self._max_line):
            self._split(stream, end, now_ms)
        elif cut:
            lines = count_lines(mm, start, cut, self._lines_long)
            self._lines_long = lines * LONG_LINE < cut - start
            self._commit(cut, lines, stream, 0, now_ms)
        if end > head.start:
            self._tail_ms[stream] = now_ms
            self._unmirrored[stream] = True
        if head.start != before:
            self._after_commit()

    def _split(self, stream: int, end: int, now_ms: int) -> None:
        """Take in text up to `end`, in which at least one line is too long, and split such lines."""
        mm, head, longest = self._mm, self._head, self._max_line
        position = head.start
        while position < end:
            newline = mm.rfind(b"\n", position, min(end, position + longest + 1))
            if newline >= 0:
                position = newline + 1
            elif end - position <= longest:
                break
            else:
                cut = utf8_cut(mm, position, position + longest)
                lines = mm[head.start : position].count(b"\n") + 1
                self._commit(cut, lines, stream, NO_NEWLINE, now_ms)
                position = cut
        if position > head.start:
            self._commit(position, mm[head.start : position].count(b"\n"), stream, 0, now_ms)

    def _commit(self, cut: int, lines: int, stream: int, flags: int, now_ms: int, frames: int = 0) -> None:
        """Add the text up to `cut` to the lines of the head block; with NO_NEWLINE, the next line continues it."""
        head = self._head
        self._bytes[stream] += cut - head.start
        head.commit(cut, lines, stream, flags | self._continued[stream], now_ms, frames)
        self._continued[stream] = CONTINUED if flags & NO_NEWLINE else 0
        self.lines += lines

    def _after_commit(self) -> None:
        head = self._head
        if head.limit - head.fill < self._min_room and not head.grow():
            self._close_block()
        self._publish()

    def _park(self) -> None:
        """Move the unfinished line from the head block to `_tails`."""
        if self._live >= 0:
            head = self._head
            self._tails[self._live] = self._mm[head.start : head.fill]
            head.fill = head.start
            self._live = -1

    def _write(self, at: int, data: bytes) -> None:
        self._mm[at : at + len(data)] = data

    # Ring and blocks

    def _create(self, now_ms: int) -> bool:
        """Create the ring. Return False, and set `place_error`, if that fails."""
        try:
            ring = Ring.create(
                self.path,
                self.run_id,
                RingShape(self.file_blocks, self._blocks, self.block_size),
                first_line=self._first_line,
                now_ms=now_ms,
            )
        except OSError as err:  # ENOSPC, EDQUOT, EMFILE, ENOENT, EACCES ...: the run continues without a log
            self.place_error = f"{self.path}: {err.strerror}"
            return False
        self._attach(ring)
        self._open_block()
        ring.announce()
        return True

    def _attach(self, ring: Ring) -> None:
        self.created = True
        self.ring = ring
        self._mm = ring.mm
        self._view = memoryview(ring.mm)

    def _open_block(self) -> None:
        """Open the next block, and publish it before its slot is touched: readers of the old block rely on that.

        Raises:
            BlockingIOError: the slot holds a block that the log file does not have yet.
        """
        ring = self.ring
        number = self.closed_blocks
        if number * self.block_size == _CALM_BYTES and self.written_blocks and number == ring.taken:
            ring.wrap()  # a block has already reached the file: output is slow enough for the slots there are
        ring.take_slot(number)
        if not self._block_free():
            raise BlockingIOError(errno.EAGAIN, "no free slot in the ring")
        self._starts[number % ring.slots] = self.lines
        if not self.file_blocks and number >= ring.slots:
            self.first_available = self._starts[(number + 1) % ring.slots]
        self._head = HeadBlock(ring, number, self.lines)
        self.head_block = number
        self._open = True
        self._publish()

    def _close_block(self) -> None:
        self._park()
        self._open = False
        self._head.close(self._seq)
        # Count the block last, because the file thread writes it as soon as it is counted.
        self.closed_blocks = self.head_block + 1

    def _leave_empty_head(self) -> bool:
        """Go back to the previous block if the head block is empty: an empty block would take space in the file.

        This is not done in a resumed ring with one slot: the dead writer may already have read output into the slot.
        """
        before = None if self._head.lines or (self._resumed and self.ring.slots == 1) else self._head.previous()
        if before is not None:
            self._park()
            self._open = False
            self._head = before
            self.head_block = before.number
        return before is not None

    def _publish(self) -> None:
        seq = self._seq = (self._seq + 1) & 0xFFFFFFFF
        self._published_first, self._published_lines = self.first_available, self.lines
        out, err, _ = self._bytes
        flags = STATE_SEALED if self.sealed else 0
        counts = self.head_block, self.lines, self._published_first, self.dropped
        state = STATE_BODY.pack(*counts, out, err, self.ring.slots, flags, self._policy, self._region_epoch)
        body = state + PREFIX.pack(seq, 0) + self._head.body()
        at = PUBLICATION_AT[seq & 1]
        self._mm[at : at + PUBLICATION_SIZE] = PREFIX.pack(seq, crc32(body, seq)) + body

    @property
    def _unpublished(self) -> bool:
        """Whether the state has changes that no block publishes, so it must be published separately."""
        changed = self.first_available != self._published_first or self.lines != self._published_lines
        return changed and self.created

    # Room

    @property
    def _no_place(self) -> str | None:
        """The reason to drop output that finds no room; None if the output waits instead."""
        full = self._policy and self.file_blocks and self.closed_blocks >= self.file_blocks - 1
        return "the log is full" if full and not self._seal_wanted else self.shortage

    def _block_free(self) -> bool:
        """Return whether the next block may be opened.

        The last block of a log that keeps its oldest lines, and the last slot of a ring, are reserved for the daemon's
        messages at the end. A ring of two slots reserves one only while the disk is short: otherwise each block would
        wait for the log file.
        """
        if not self.file_blocks:
            return True
        number, slots, spared = self.closed_blocks, self.ring.slots, 0 if self._seal_wanted else 1
        if self._policy and number >= self.file_blocks - spared:
            return False
        if slots > 2 or (slots > 1 and self.shortage is not None):
            slots -= spared
        return number - self.written_blocks < slots
