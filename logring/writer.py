"""The writing end of a log: output goes from the pipe straight into the mapped ring. No disk is touched here.

The unfinished line of the stream that prints (`_live`) stands in the head block, behind the whole lines, where the
next read continues it. When another stream prints, or the block is closed, it is kept in `_tails` until its stream
goes on. `mirror_pending` copies unfinished lines to where readers, and the next daemon after a crash, find them.
"""

import errno
import os
from mmap import mmap
from zlib import crc32

from logring.head import HeadBlock
from logring.layout import (
    BLOCK_CLOSED,
    BLOCK_SIZE,
    CONTINUED,
    NO_NEWLINE,
    POLICIES,
    PREFIX,
    PUBLICATION_AT,
    PUBLICATION_SIZE,
    RING_BLOCKS,
    STATE_BODY,
    STATE_SEALED,
    STDERR,
    STDOUT,
    SYSTEM,
    max_line,
)
from logring.lines import LONG_LINE, harmless, has_long_line, newlines, utf8_cut
from logring.ring import Ring, read_pending, read_publication


class RingWriter:
    """Writes one log's ring; used by one thread (the pump), beside which one other may write the log file.

    Args:
        path: of the ring; the file is made with the first byte of output.
        run_id: at most 32 bytes.
        blocks: slots of the ring.
        block_size: in bytes, a multiple of 4096.
        file_blocks: slots of the log file; 0 when there is none: the oldest ring slot is then simply used again.
        policy: what happens when the log file is full.
        first_line: number of the first line, for a log that goes on with another one's numbers.

    Attributes:
        lines: number of the next line.
        dropped: lines that were not kept.
        created: whether there is a ring.
        ring: the ring; only when `created`.
        sealed: whether everything is in blocks and nothing will follow.
        head_block: number of the block opened last.
        closed_blocks: blocks [0, closed_blocks) are complete.
        written_blocks: blocks [0, written_blocks) are in the log file; set by the file thread.
        first_available: first line still kept; set by the file thread when it uses a file slot again.
        place_error: why there is no ring although there was output; that output is counted and dropped.
    """

    ring: Ring
    _mm: mmap
    _view: memoryview
    _head: HeadBlock

    def __init__(
        self,
        path: str,
        run_id: str,
        *,
        blocks: int = RING_BLOCKS,
        block_size: int = BLOCK_SIZE,
        file_blocks: int,
        policy: str = "drop_old",
        first_line: int = 0,
    ) -> None:
        self.path, self.run_id = path, run_id
        self.block_size = block_size
        self.file_blocks = file_blocks
        self.lines = self.first_available = self._first_line = first_line
        self.dropped = 0
        self.created = self.sealed = False
        self.head_block = self.closed_blocks = self.written_blocks = 0
        self.place_error: str | None = None
        self._blocks = blocks
        self._policy = POLICIES[policy]
        self._max_line = max_line(block_size)
        self._min_room = block_size // 32
        self._seq = 0
        self._published_first = first_line
        self._starts = [first_line] * blocks  # first line of the block in each slot
        self._bytes = [0, 0, 0]
        self._backlog: list[tuple[int, bytes | None, int]] = []
        self._seal_wanted = self._resumed = False
        self._lines_long = False  # whether the last read had few lines for its size
        self._open = False  # whether the head block takes more
        self._live = -1  # the stream whose unfinished line stands in the head block; -1 when none can
        # Of each stream: its unfinished line when that is not in the head block, whether it continues a line, when
        # its last bytes came, whether it changed since it was mirrored.
        self._tails = [b"", b"", b""]
        self._continued = [0, 0, 0]
        self._tail_ms = [0, 0, 0]
        self._unmirrored = [False, False, False]

    @classmethod
    def resume(cls, ring: Ring) -> "RingWriter":
        """Go on with a ring that another writer left, from what it published last.

        Raises:
            Corrupt: no valid publication.
        """
        static = ring.static
        publication = read_publication(ring.mm, ring.path)
        state, header = publication.state, publication.header
        ring.slots = ring.taken = state.blocks
        self = cls(
            ring.path,
            static.run_id.decode(),
            blocks=state.blocks,
            block_size=static.block_size,
            file_blocks=static.file_blocks,
            first_line=static.first_line,
        )
        self._attach(ring)
        self._resumed = True
        self.lines, self.dropped, self.sealed = state.lines, state.dropped, state.sealed
        self.first_available = self._published_first = state.first_available
        self._policy = state.policy
        self._seq = publication.seq
        self._bytes = [*state.bytes, 0]
        self._head = HeadBlock.resume(ring, header)
        self._open = True
        self.head_block = self.closed_blocks = header.number
        self.written_blocks = max(0, header.number - ring.slots + 1)
        if header.flags & BLOCK_CLOSED:
            self._close_block()
        for stream in (STDOUT, STDERR):
            pending = read_pending(ring.mm, stream, state.bytes[stream])
            if pending is not None:
                self._tail_ms[stream], self._continued[stream], self._tails[stream] = pending
        return self

    # What the pump calls

    @property
    def writable(self) -> bool:
        """False while the slot that the next block needs holds a block that is not in the log file yet."""
        if self._open or not self.created or not self.file_blocks:
            return True
        number, slots = self.closed_blocks, self.ring.slots
        return number < slots or number - slots < self.written_blocks

    @property
    def wants_writing(self) -> bool:
        """Whether half the ring's blocks wait for the log file: time to wake the file thread (not for each block)."""
        waiting = self.closed_blocks - self.written_blocks
        return self.created and self.file_blocks > 0 and 2 * waiting >= self.ring.slots

    @property
    def last_ms(self) -> int:
        """When the last bytes came, as far as that is known."""
        head_ms = self._head.base_ms + self._head.last_delta if self.created else 0
        return max(head_ms, *self._tail_ms)

    def readv(self, fd: int, stream: int, now_ms: int) -> int:
        """Read once from `fd`, straight into the head block, and publish the lines that are complete now.

        Returns:
            Bytes read, at most 64 KiB; 0 at end of file.

        Raises:
            BlockingIOError: nothing to read, or no place for it as long as `writable` is False.
            OSError: the read failed.
        """
        if stream != self._live or not self._ready(now_ms):
            if not self.created:
                data = os.read(fd, BLOCK_SIZE)
                self.append(stream, data, now_ms)
                return len(data)
            if self._backlog and not self._drain():
                raise BlockingIOError(errno.EAGAIN, "no free slot in the ring")
            self._prepare(stream, now_ms)
        head = self._head
        count = os.readv(fd, [self._view[head.fill : head.limit]])
        if count:
            self._absorb(stream, count, now_ms)
        return count

    def append(self, stream: int, data: bytes, now_ms: int) -> None:
        """Add bytes that come from no descriptor: whole lines, or parts of lines.

        What finds no place now is kept and placed later; see `settle`.

        Raises:
            ValueError: the log is sealed.
        """
        if self._seal_wanted:
            raise ValueError("the log is sealed")
        if data:
            self._backlog.append((stream, data, now_ms))
            self._drain()

    def system_line(self, text: str, now_ms: int) -> None:
        """Add a line of our own, in the stream `system`; control characters are escaped."""
        self.append(SYSTEM, harmless(text) + b"\n", now_ms)

    def finish_stream(self, stream: int, now_ms: int) -> None:
        """End of file of one stream: its unfinished line becomes a line, marked as having no newline."""
        if self._has_tail(stream) or any(item[0] == stream for item in self._backlog):
            self._backlog.append((stream, None, now_ms))
            self._drain()

    def mirror_pending(self) -> None:
        """Show unfinished lines that changed to readers; to be called once in a round of the pump."""
        if not self.created or self.sealed:
            return
        if self._backlog or self.first_available != self._published_first:
            self.settle()
        for stream in (STDOUT, STDERR):
            if self._unmirrored[stream]:
                self._unmirrored[stream] = False
                head = self._head
                text = self._mm[head.start : head.fill] if stream == self._live else self._tails[stream]
                if text or self._continued[stream]:
                    self.ring.write_pending(
                        stream, self._bytes[stream], self._tail_ms[stream], text, self._continued[stream]
                    )

    def seal(self, now_ms: int) -> bool:
        """Finish all streams and close the log.

        Returns:
            Whether that is done. Otherwise something still waits for a free slot: the log file's `finish` completes
            it, as does calling `settle` when `writable`.
        """
        if not self._seal_wanted:
            for stream in (STDOUT, STDERR, SYSTEM):
                self.finish_stream(stream, now_ms)
            self._seal_wanted = True
        return self.settle()

    def settle(self) -> bool:
        """Place what waits for a free slot, complete a seal that does; whether nothing waits any more."""
        if not self._drain():
            return False
        if self._seal_wanted and not self.sealed:
            self.sealed = True  # before the last block is counted as closed: the file thread packs it
            if self.created:
                if self._open and not self._leave_empty_head():
                    self._close_block()
                self._publish()
        elif self.first_available != self._published_first:
            self._publish()
        return True

    def close(self) -> None:
        """Unmap the ring; its file stays."""
        if self.created:
            self._view.release()
            self.ring.close()

    # Placing text

    def _ready(self, now_ms: int) -> bool:
        """Whether the head block can take a read now."""
        head = self._head
        return head.limit - head.fill >= self._min_room and head.floor_ms <= now_ms <= head.ceiling_ms

    def _has_tail(self, stream: int) -> bool:
        if stream == self._live:
            return self._head.fill > self._head.start
        return bool(self._tails[stream])

    def _drain(self) -> bool:
        """Place the backlog, as far as there are slots; whether all of it is placed."""
        backlog = self._backlog
        while backlog:
            stream, data, now_ms = backlog[0]
            if not self.created and not self._create(now_ms):
                self._count_dropped(stream, data)
                del backlog[0]
                continue
            try:
                if data is None:
                    self._finish(stream, now_ms)
                while data:
                    self._prepare(stream, now_ms)
                    head = self._head
                    count = min(len(data), head.limit - head.fill)
                    self._write(head.fill, data[:count])
                    self._absorb(stream, count, now_ms)
                    data = data[count:]
                    backlog[0] = stream, data, now_ms
            except BlockingIOError:  # ours: no free slot
                return False
            del backlog[0]
        return True

    def _prepare(self, stream: int, now_ms: int) -> None:
        """See to it that a block is open, has the stream's unfinished line at its end, and room.

        Raises:
            BlockingIOError: no free slot.
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
                    self._park()  # comes back above, as a text that is too long for the block

    def _force_split(self, stream: int, now_ms: int) -> None:
        """Split a parked unfinished line that is longer than a block: shared memory is short."""
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
            self._after_commit()

    def _absorb(self, stream: int, count: int, now_ms: int) -> None:
        """Take in `count` bytes that stand behind the unfinished line."""
        mm, head = self._mm, self._head
        start = head.fill
        end = head.fill = start + count
        cut = mm.rfind(b"\n", start, end) + 1
        before = head.start
        if end - before > self._max_line and has_long_line(mm, before, cut, end, self._max_line):
            self._split(stream, end, now_ms)
        elif cut:
            text = mm[start:cut]
            lines = newlines(text, self._lines_long)
            self._lines_long = lines * LONG_LINE < len(text)
            self._commit(cut, lines, stream, 0, now_ms)
        if end > head.start:
            self._tail_ms[stream] = now_ms
            self._unmirrored[stream] = True
        if head.start != before:
            self._after_commit()

    def _split(self, stream: int, end: int, now_ms: int) -> None:
        """Take in text up to `end` in which at least one line is too long."""
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

    def _commit(self, cut: int, lines: int, stream: int, flags: int, now_ms: int) -> None:
        """Make the text up to `cut` lines of the head block; with NO_NEWLINE, the stream's next line continues it."""
        head = self._head
        self._bytes[stream] += cut - head.start
        head.commit(cut, lines, stream, flags | self._continued[stream], now_ms)
        self._continued[stream] = CONTINUED if flags else 0
        self.lines += lines

    def _after_commit(self) -> None:
        head = self._head
        if head.limit - head.fill < self._min_room and not head.grow():
            self._close_block()
        self._publish()

    def _park(self) -> None:
        """Take the unfinished line out of the head block."""
        if self._live >= 0:
            head = self._head
            self._tails[self._live] = self._mm[head.start : head.fill]
            head.fill = head.start
            self._live = -1

    def _write(self, at: int, data: bytes) -> None:
        self._mm[at : at + len(data)] = data

    # Ring and blocks

    def _create(self, now_ms: int) -> bool:
        """Make the ring; False when there is no place for one."""
        if self.place_error is not None:
            return False
        try:
            ring = Ring.create(
                self.path,
                self.run_id,
                blocks=self._blocks,
                block_size=self.block_size,
                file_blocks=self.file_blocks,
                first_line=self._first_line,
                now_ms=now_ms,
            )
        except OSError as err:  # ENOSPC, EDQUOT, EMFILE, ENOENT, EACCES ...: the run goes on without a log
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
        """Open the next block, and publish that before its slot is touched: readers of the old block rely on it.

        Raises:
            BlockingIOError: the slot holds a block that is not in the log file yet.
        """
        ring = self.ring
        number = self.closed_blocks
        ring.take_slot(number)
        if not self.writable:
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
        # Only now: the file thread takes the block as soon as it is counted.
        self.closed_blocks = self.head_block + 1

    def _leave_empty_head(self) -> bool:
        """When the head block has no line, go back to the one before: an empty block would cost room in the file.

        (Not when a dead writer with one slot left it: what that one read may stand in the block before already.)
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
        self._published_first = self.first_available
        out, err, _ = self._bytes
        flags = STATE_SEALED if self.sealed else 0
        counts = self.head_block, self.lines, self._published_first, self.dropped
        state = STATE_BODY.pack(*counts, out, err, self.ring.slots, flags, self._policy, 0)
        body = state + PREFIX.pack(seq, 0) + self._head.body()
        at = PUBLICATION_AT[seq & 1]
        self._mm[at : at + PUBLICATION_SIZE] = PREFIX.pack(seq, crc32(body, seq)) + body

    def _count_dropped(self, stream: int, data: bytes | None) -> None:
        """Count lines for which there is no place at all; of an unfinished one is only kept that it exists."""
        if data is None:
            count = 1 if self._tails[stream] else 0
            self._tails[stream] = b""
        else:
            count = data.count(b"\n")
            self._tails[stream] = b"" if data.endswith(b"\n") else b"?"
        self.lines += count
        self.dropped += count
