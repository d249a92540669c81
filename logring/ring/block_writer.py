"""Placing text in the blocks of a ring, where it stays. No disk is touched here.

The unfinished line of the stream that printed last (`live`) is in the head block, after the complete lines, where the
next read continues it. When another stream prints, or the block is closed, the line is kept in its state until its
stream prints again.
"""

import errno
from dataclasses import dataclass, field
from mmap import mmap
from zlib import crc32

from logring.layout import (
    BLOCK_CLOSED,
    CONTINUED,
    FRAMES,
    NO_NEWLINE,
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
from logring.ring.ring import Ring, read_publication
from logring.ring.stream_state import StreamState, new_streams
from logring.state_json import tagged

LOG_FULL = "the log is full"
"""Why a log drops output as its policy demands."""

_CALM_BYTES = 1 << 20
_PRIVATE_BLOCKS = 2


@tagged(
    "",
    "_blocks=ring_blocks _first_line _lines_long _live=live _max_line _min_room _open=is_open _policy=policy"
    " _published_first _published_lines _region_epoch=region_epoch _resumed _seq _starts block_size closed_blocks"
    " created dropped file_blocks first_available frames head_block lines path place_error run_id sealed shortage"
    " written_blocks",
)
@dataclass(eq=False)
class BlockWriter:
    """Places text in the blocks of a ring, and publishes it.

    It knows no mask, reducer, backlog or gap: it places the text that it gets, or raises `BlockingIOError` if there is
    no free slot.

    Attributes:
        lines: number of the next line.
        dropped: number of lines that were not kept.
        created: whether there is a ring.
        ring: the ring; exists only if `created` is True.
        sealed: whether everything is in blocks and nothing will follow.
        is_open: whether the head block takes more text.
        live: number of the stream whose unfinished line is in the head block; -1 if there is none.
        head_block: number of the block opened last.
        closed_blocks: blocks [0, closed_blocks) are complete.
        written_blocks: blocks [0, written_blocks) are in the log file; set by the file thread.
        first_available: first line still kept; set by the file thread when it reuses a file slot.
        place_error: why the ring could not be created in its directory. A log with a file then has a private ring; if
            there is no memory for that either, output is counted and dropped.
        place_errno: the number of that error.
        shortage: why the log file cannot grow at present; None if it can; set by the file thread. While it is set,
            output for which the ring has no room is dropped instead of waiting.
        reserve_open: whether only messages of the daemon are left to place, for which a block is reserved.
        frames: frames of redrawn lines, for the file thread.
    """

    path: str
    run_id: str
    file_blocks: int
    ring_blocks: int
    block_size: int
    policy: int
    lines: int
    _max_line: int
    _min_room: int
    _first_line: int
    first_available: int
    _published_first: int
    _published_lines: int
    _starts: list[int]
    """The first line of the block in each slot."""
    dropped: int = 0
    created: bool = False
    sealed: bool = False
    head_block: int = 0
    closed_blocks: int = 0
    written_blocks: int = 0
    place_error: str | None = None
    shortage: str | None = None
    frames: FrameQueue = field(default_factory=FrameQueue)
    _seq: int = 0
    _resumed: bool = False
    _lines_long: bool = False
    """Whether the last read had few lines for its size."""
    is_open: bool = False
    live: int = -1
    region_epoch: int = 0
    reserve_open: bool = False
    streams: list[StreamState] = field(default_factory=new_streams)
    ring: Ring = field(init=False)
    mm: mmap = field(init=False)
    view: memoryview = field(init=False)
    head: HeadBlock = field(init=False)

    @classmethod
    def new(cls, path: str, run_id: str, shape: RingShape, policy: int, first_line: int) -> "BlockWriter":
        """Return the writer of a ring that does not exist yet; see :meth:`logring.ring.writer.RingWriter.new`."""
        return cls(
            path,
            run_id,
            *shape,
            policy,
            first_line,
            _max_line=max_line(shape.block_size),
            _min_room=shape.block_size // 32,
            _first_line=first_line,
            first_available=first_line,
            _published_first=first_line,
            _published_lines=first_line,
            _starts=[first_line] * shape.ring_blocks,
        )

    @classmethod
    def resume(cls, ring: Ring) -> "BlockWriter":
        """Continue a ring that another writer left, from its last publication.

        Raises:
            Corrupt: there is no valid publication.
        """
        static = ring.static
        publication = read_publication(ring.mm, ring.path)
        publication.check(static, ring.path)
        state, header = publication.state, publication.header
        ring.slots = ring.taken = state.blocks
        shape = RingShape(static.file_blocks, state.blocks, static.block_size)
        self = cls.new(ring.path, static.run_id.decode(), shape, state.policy, static.first_line)
        self.attach(ring)
        self.head = HeadBlock.resume(ring, header)
        self._resumed = True
        self.lines, self.dropped, self.sealed = state.lines, state.dropped, state.sealed
        self.first_available = self._published_first = state.first_available
        self.region_epoch = state.region_epoch
        self._seq = publication.seq
        for stream, size in zip(self.streams, state.bytes, strict=False):
            stream.line_bytes = size
        self.is_open = True
        self.head_block = self.closed_blocks = header.number
        self.written_blocks = max(0, header.number - ring.slots + 1)
        if header.flags & BLOCK_CLOSED:
            self._close_block()
        return self

    # Text

    def ready(self, now_ms: int) -> bool:
        """Return whether a read can go into the head block now."""
        head = self.head
        return head.limit - head.fill >= self._min_room and head.floor_ms <= now_ms <= head.ceiling_ms

    def has_tail(self, stream: StreamState) -> bool:
        """Return whether the stream has an unfinished line."""
        if stream.number == self.live:
            return self.head.fill > self.head.start
        return bool(stream.tail)

    def prepare(self, stream: StreamState, now_ms: int) -> None:
        """Make sure that a block is open, has the stream's unfinished line at its end, and has room.

        Raises:
            BlockingIOError: there is no free slot.
        """
        if self.is_open and not self.head.floor_ms <= now_ms <= self.head.ceiling_ms:
            self._close_block()  # time went backwards, or too far for a delta
        while True:
            if not self.is_open:
                self._open_block()
            head = self.head
            if stream.number != self.live:
                self.park()
                tail = stream.tail
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
                stream.tail = b""
                self.live = stream.number
            if head.limit - head.fill >= self._min_room:
                return
            if not head.grow():
                if head.lines:
                    self._close_block()
                else:
                    self.park()  # the next iteration splits it, because it is too long for the block

    def place(self, stream: StreamState, data: bytes, now_ms: int) -> bytes:
        """Place as much of the data as the head block takes; return the rest.

        Raises:
            BlockingIOError: there is no free slot.
        """
        self.prepare(stream, now_ms)
        head = self.head
        count = min(len(data), head.limit - head.fill)
        self._write(head.fill, data[:count])
        self.absorb(stream, count, now_ms)
        return data[count:]

    def skip(self, lines: int) -> None:
        """Count lines that are dropped."""
        self.lines += lines
        self.dropped += lines

    def _force_split(self, stream: StreamState, now_ms: int) -> None:
        """Split a parked unfinished line that does not fit an empty block, because shared memory is short."""
        head, tail = self.head, stream.tail
        fits = head.limit - head.start
        cut = utf8_cut(tail, 0, fits) if fits < len(tail) else len(tail)
        self._write(head.start, tail[:cut])
        head.fill = head.start + cut
        self._commit(head.fill, 1, stream, NO_NEWLINE, now_ms)
        stream.tail = tail[cut:]

    def finish(self, stream: StreamState, now_ms: int) -> None:
        """End the stream's unfinished line without a newline."""
        if self.has_tail(stream):
            if stream.number != self.live or not self.head.floor_ms <= now_ms <= self.head.ceiling_ms:
                self.prepare(stream, now_ms)
            self._commit(self.head.fill, 1, stream, NO_NEWLINE, now_ms)
            stream.continued = 0
            self._after_commit()

    def end_drawn(self, stream: StreamState, end: LineEnd, now_ms: int) -> None:
        """End the stream's unfinished line, for which there are frames."""
        self.prepare(stream, now_ms)
        head = self.head
        newline = end or (b"\n" if head.fill == head.start else b"")
        self._write(head.fill, newline)
        head.fill += len(newline)
        if self.file_blocks:
            self.frames.add(self.lines, end.frames)
        self._commit(head.fill, 1, stream, FRAMES if newline else FRAMES | NO_NEWLINE, now_ms, len(end.frames))
        self._after_commit()

    def absorb(self, stream: StreamState, count: int, now_ms: int) -> None:
        """Take in `count` bytes that were written after the unfinished line."""
        mm, head = self.mm, self.head
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
            stream.last_ms = now_ms
            stream.changed = True
        if head.start != before:
            self._after_commit()

    def _split(self, stream: StreamState, end: int, now_ms: int) -> None:
        """Take in text up to `end`, in which at least one line is too long, and split such lines."""
        mm, head, longest = self.mm, self.head, self._max_line
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

    def _commit(self, cut: int, lines: int, stream: StreamState, flags: int, now_ms: int, frames: int = 0) -> None:
        """Add the text up to `cut` to the lines of the head block; with NO_NEWLINE, the next line continues it."""
        head = self.head
        stream.line_bytes += cut - head.start
        head.commit(cut, lines, stream.number, flags | stream.continued, now_ms, frames)
        stream.continued = CONTINUED if flags & NO_NEWLINE else 0
        self.lines += lines

    def _after_commit(self) -> None:
        head = self.head
        if head.limit - head.fill < self._min_room and not head.grow():
            self._close_block()
        self.publish()

    def unfinished(self, stream: StreamState) -> bytes:
        """Return the stream's unfinished line, as far as it is not waiting for a place."""
        return self.mm[self.head.start : self.head.fill] if stream.number == self.live else stream.tail

    def park(self) -> None:
        """Move the unfinished line from the head block to the state of its stream."""
        if self.live >= 0:
            head = self.head
            self.streams[self.live].tail = self.mm[head.start : head.fill]
            head.fill = head.start
            self.live = -1

    def _write(self, at: int, data: bytes) -> None:
        self.mm[at : at + len(data)] = data

    # Ring and blocks

    @property
    def private(self) -> bool:
        """Whether only this process sees the ring, because there was no place for it in its directory."""
        return self.created and self.place_error is not None

    def create(self, now_ms: int) -> bool:
        """Create the ring, or a small private one if there is no place for it. Return False if that fails too."""
        shape = RingShape(self.file_blocks, self.ring_blocks, self.block_size)
        try:
            ring = self._new_ring(shape, now_ms)
            self.place_error = None
        except OSError as err:  # ENOSPC, EDQUOT, EFBIG, EMFILE, ENOENT, EACCES ...
            self.place_error, self.place_errno = f"{self.path}: {err.strerror}", err.errno or errno.ENOMEM
            if not self.file_blocks:  # nobody would read it
                return False
            try:
                ring = self._new_ring(shape._replace(ring_blocks=min(_PRIVATE_BLOCKS, self.ring_blocks)), now_ms, True)
            except OSError:  # EMFILE, ENOMEM: the run continues without a log
                return False
        self.attach(ring)
        self._open_block()
        ring.announce()
        return True

    def _new_ring(self, shape: RingShape, now_ms: int, private: bool = False) -> Ring:
        return Ring.create(self.path, self.run_id, shape, first_line=self._first_line, now_ms=now_ms, private=private)

    def attach(self, ring: Ring) -> None:
        """Use this ring, whose head block the caller sets."""
        self.created = True
        self.ring = ring
        self.mm = ring.mm
        self.view = memoryview(ring.mm)

    def seal(self) -> None:
        """Close the last block and the log."""
        self.sealed = True  # set before the last block is counted as closed, so the file thread packs that block
        if self.created:
            if self.is_open and not self._leave_empty_head():
                self._close_block()
            self.publish()

    def close(self) -> None:
        """Unmap the ring; its file stays."""
        if self.created:
            self.view.release()
            self.ring.close()

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
        if not self.block_free():
            raise BlockingIOError(errno.EAGAIN, "no free slot in the ring")
        self._starts[number % ring.slots] = self.lines
        if not self.file_blocks and number >= ring.slots:
            self.first_available = self._starts[(number + 1) % ring.slots]
        self.head = HeadBlock.empty(ring, number, self.lines)
        self.head_block = number
        self.is_open = True
        self.publish()

    def _close_block(self) -> None:
        self.park()
        self.is_open = False
        self.head.close(self._seq)
        # Count the block last, because the file thread writes it as soon as it is counted.
        self.closed_blocks = self.head_block + 1

    def _leave_empty_head(self) -> bool:
        """Go back to the previous block if the head block is empty: an empty block would take space in the file.

        This is not done in a resumed ring with one slot: the dead writer may already have read output into the slot.
        """
        before = None if self.head.lines or (self._resumed and self.ring.slots == 1) else self.head.previous()
        if before is not None:
            self.park()
            self.is_open = False
            self.head = before
            self.head_block = before.number
        return before is not None

    def publish(self) -> None:
        """Show readers the present state."""
        seq = self._seq = (self._seq + 1) & 0xFFFFFFFF
        self._published_first, self._published_lines = self.first_available, self.lines
        out, err, _ = self.streams
        flags = STATE_SEALED if self.sealed else 0
        counts = self.head_block, self.lines, self._published_first, self.dropped
        state = STATE_BODY.pack(
            *counts, out.line_bytes, err.line_bytes, self.ring.slots, flags, self.policy, self.region_epoch
        )
        body = state + PREFIX.pack(seq, 0) + self.head.body()
        at = PUBLICATION_AT[seq & 1]
        self.mm[at : at + PUBLICATION_SIZE] = PREFIX.pack(seq, crc32(body, seq)) + body

    @property
    def unpublished(self) -> bool:
        """Whether the state has changes that no block publishes, so it must be published separately."""
        changed = self.first_available != self._published_first or self.lines != self._published_lines
        return changed and self.created

    # Room

    @property
    def no_place(self) -> str | None:
        """The reason to drop output that finds no room; None if the output waits instead."""
        full = self.policy and self.file_blocks and self.closed_blocks >= self.file_blocks - 1
        return LOG_FULL if full and not self.reserve_open else self.shortage

    def block_free(self) -> bool:
        """Return whether the next block may be opened.

        The last block of a log that keeps its oldest lines, and the last slot of a ring, are reserved for the daemon's
        messages at the end. A ring of two slots reserves one only while the disk is short: otherwise each block would
        wait for the log file.
        """
        if not self.file_blocks:
            return True
        number, slots, spared = self.closed_blocks, self.ring.slots, 0 if self.reserve_open else 1
        if self.policy and number >= self.file_blocks - spared:
            return False
        if slots > 2 or (slots > 1 and self.shortage is not None):
            slots -= spared
        return number - self.written_blocks < slots
