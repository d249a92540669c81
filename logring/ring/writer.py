"""The writing end of a log: it reads output from the pipe straight into the mapped ring. No disk is touched here.

`logring.ring.block_writer` places text in the ring. This module handles the steps before that: a stream's output first
passes the mask and the reducer of redrawn lines. Output without room waits in a short backlog; output that must not
wait is dropped and counted. `mirror_pending` copies unfinished lines to a place where readers find them, and the next
daemon after a crash.
"""

import errno
import os
from collections.abc import Sequence

from logring.layout import (
    BLOCK_CLOSED,
    CONTINUED,
    FRAMES,
    PENDING_TEXT_SIZE,
    POLICY_KILL,
    STDERR,
    STDOUT,
    SYSTEM,
    RingShape,
)
from logring.lines import harmless
from logring.mask import Mask
from logring.redraw.redraw_writer import Drawing, Item, LineEnd, take_unfinished
from logring.ring.block_writer import BlockWriter
from logring.ring.dropped_lines import Gap
from logring.ring.live_region import Rows, last_rows
from logring.ring.open_block import HeadBlock
from logring.ring.ring import Ring, read_pending, read_publication

_CREATE_AGAIN_MS = 1000
_READ_BYTES = 131072
_PRIVATE_READ_BYTES = 65536


class RingWriter(BlockWriter):
    """Writes one log's ring. One thread (the pump) uses it, while another thread may write the log file.

    Args:
        path: path of the ring; the first output creates the file.
        run_id: at most 32 bytes.
        shape: number and size of the blocks. Without a log file, the ring reuses its oldest slot.
        policy: the behaviour when the log file is full. ``drop_old`` discards the oldest block; ``drop_new`` and
            ``kill`` drop new output, except that the last block is kept for the line that reports this.
        first_line: number of the first line, for a log that continues another log's numbers.

    Attributes:
        lines: number of the next line.
        dropped: number of lines that were not kept.
        created: whether there is a ring.
        ring: the ring; exists only if `created` is True.
        sealed: whether everything is in blocks and nothing will follow.
        head_block: number of the block opened last.
        closed_blocks: blocks [0, closed_blocks) are complete.
        written_blocks: blocks [0, written_blocks) are in the log file; set by the file thread.
        first_available: first line still kept; set by the file thread when it reuses a file slot.
        place_error: why the ring could not be created; output is then counted and dropped.
        shortage: why the log file cannot grow at present; None if it can; set by the file thread. While it is set,
            output for which the ring has no room is dropped instead of waiting.
        gap: the lines being dropped; None while all lines are kept.
        overflowed: whether output was dropped under the policy ``kill``.
        frames: frames of redrawn lines, for the file thread.
    """

    def __init__(
        self,
        path: str,
        run_id: str,
        shape: RingShape,
        *,
        policy: str = "drop_old",
        first_line: int = 0,
    ) -> None:
        super().__init__(path, run_id, shape, policy=policy, first_line=first_line)
        self.gap: Gap | None = None
        self.overflowed = False
        self._backlog: list[Item] = []
        self._seal_ms = self._create_at_ms = 0
        self._masks: list[Mask | None] = [None, None, None]
        self._drawings: list[Drawing | None] = [None, None, None]  # set for each stream that may redraw
        self._region: list[Rows] = [((), 0), ((), 0)]  # the rows of stdout and stderr, as readers see them
        self._swallow = [False, False, False]  # whether to drop the rest of a line that a gap cut off

    @classmethod
    def resume(cls, ring: Ring) -> "RingWriter":
        """Continue a ring that another writer left, from its last publication.

        Raises:
            Corrupt: there is no valid publication.
        """
        static = ring.static
        publication = read_publication(ring.mm, ring.path)
        publication.check(static, ring.path)
        state, header = publication.state, publication.header
        ring.slots = ring.taken = state.blocks
        self = cls(
            ring.path,
            static.run_id.decode(),
            RingShape(static.file_blocks, state.blocks, static.block_size),
            first_line=static.first_line,
        )
        self._attach(ring)
        self._resumed = True
        self.lines, self.dropped, self.sealed = state.lines, state.dropped, state.sealed
        self.first_available = self._published_first = state.first_available
        self._policy = state.policy
        self._region_epoch = state.region_epoch
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
                self._tail_ms[stream], flags, text = pending
                self._continued[stream] = flags & CONTINUED
                if b"\n" in text:  # rows
                    self._backlog.append((stream, text, self._tail_ms[stream]))
                else:
                    self._tails[stream] = text
        return self

    # State handed to another program (:mod:`logring.writer_state`)

    @property
    def open_block(self) -> HeadBlock:
        """The block that receives text; available only if the ring was created."""
        return self._head

    def adopt(self, ring: Ring, block: HeadBlock) -> None:
        """Continue in a ring that another program created, with the block that receives text."""
        block.ring = ring
        self.ring, self._mm, self._view, self._head = ring, ring.mm, memoryview(ring.mm), block

    # Called by the pump

    @property
    def writable(self) -> bool:
        """Whether output need not wait. It waits while the next slot holds a block not yet in the log file."""
        return self._open or not self.created or self._block_free() or self._no_place is not None

    @property
    def wants_writing(self) -> bool:
        """Whether to wake the file thread: half the ring's blocks wait for the log file."""
        waiting = self.closed_blocks - self.written_blocks
        return self.created and self.file_blocks > 0 and 2 * waiting >= self.ring.slots

    @property
    def last_ms(self) -> int:
        """Time of the last known output, in ms since the epoch."""
        head_ms = self._head.base_ms + self._head.last_delta if self.created else 0
        return max(head_ms, *self._tail_ms)

    def redraw(self, stream: int, *, full: bool) -> None:
        """Keep only the final state of lines that a stream redraws. Call this before its first output.

        Args:
            stream: STDOUT or STDERR.
            full: interpret all sequences of a terminal (for a pseudo-terminal); otherwise only carriage returns.
        """
        mask = self._masks[stream]
        self._drawings[stream] = Drawing(full=full, mask=mask.another() if mask is not None else None)

    def mask(self, secrets: Sequence[bytes]) -> None:
        """Replace secrets in the output of both streams. Call this before `redraw` and the first output.

        Raises:
            ValueError: a secret is too short or too long; see `logring.mask`.
        """
        self._masks[STDOUT], self._masks[STDERR] = Mask(secrets), Mask(secrets)

    @property
    def masked(self) -> int:
        """Number of replaced secrets so far."""
        return sum(mask.count for mask in self._masks if mask is not None)

    @property
    def masking(self) -> bool:
        """Whether output is searched for secrets."""
        return any(self._masks)

    @property
    def withheld(self) -> tuple[bytes, bytes, int]:
        """The output of stdout and stderr held back as a possible secret, and the number of replacements."""
        out, err, _ = (mask.possible_secret if mask is not None else b"" for mask in self._masks)
        return out, err, self.masked

    def hold(self, out: bytes, err: bytes, masked: int) -> None:
        """Continue where the masks of another writer stopped, with the output that it held. Call `mask` first."""
        for mask, output in zip(self._masks, (out, err), strict=False):
            if mask is not None:
                mask.hold(output, masked)
                masked = 0

    def readv(self, fd: int, stream: int, now_ms: int) -> int:
        """Read once from `fd`, straight into the head block, and publish the lines that are complete now.

        Returns:
            Bytes read, at most 128 KiB; 0 at end of file.

        Raises:
            BlockingIOError: there is nothing to read, or no room for it while `writable` is False.
            OSError: the read failed.
        """
        drawing = self._drawings[stream]
        private = self._masks[stream] is not None or (drawing is not None and drawing.busy)
        if private or stream != self._live or not self._ready(now_ms):
            if self._backlog and not self._drain():
                raise BlockingIOError(errno.EAGAIN, "no free slot in the ring")
            if (
                private
                or not self.created
                or self.gap is not None
                or self._swallow[stream]
                or not self._try_prepare(stream, now_ms)
            ):
                data = os.read(fd, _PRIVATE_READ_BYTES)
                self.append(stream, data, now_ms)
                return len(data)
        head = self._head
        # The read is limited, so that the text is still in the processor's cache when it is searched below.
        count = os.readv(fd, [self._view[head.fill : min(head.limit, head.fill + _READ_BYTES)]])
        if drawing is not None and drawing.concerns(self._mm, head.fill, head.fill + count):
            head.fill += count
            self._draw(drawing, stream, b"", now_ms)
        elif count:
            self._absorb(stream, count, now_ms)
        return count

    def append(self, stream: int, data: bytes, now_ms: int) -> None:
        """Add bytes that were not read from a descriptor here: complete lines or parts of lines.

        Output that finds no place now is kept and placed later; see `settle`.

        Raises:
            ValueError: the log is sealed.
        """
        if self._seal_wanted:
            raise ValueError("the log is sealed")
        mask = self._masks[stream]
        self._take(stream, data if mask is None else mask.feed(data), now_ms)

    def _take(self, stream: int, data: bytes, now_ms: int) -> None:
        drawing = self._drawings[stream]
        if drawing is not None and data and drawing.wants(data):
            self._draw(drawing, stream, data, now_ms)
        elif data:
            self._add(stream, data, now_ms)

    def system_line(self, text: str, now_ms: int) -> None:
        """Add a line of the daemon's own, in the stream `system`; control characters are escaped."""
        self.append(SYSTEM, harmless(text) + b"\n", now_ms)

    def finish_stream(self, stream: int, now_ms: int) -> None:
        """Handle the end of one stream: its unfinished line becomes a line, marked as having no newline."""
        mask = self._masks[stream]
        if mask is not None:
            self._take(stream, mask.finish(), now_ms)
        drawing = self._drawings[stream]
        if drawing is not None and drawing.busy:
            self._unmirrored[stream] = True
            for piece in drawing.finish():
                self._add(stream, piece, now_ms)
        if self.gap is not None or self._has_tail(stream) or any(item[0] == stream for item in self._backlog):
            self._add(stream, None, now_ms)
        self._swallow[stream] = False

    def mirror_pending(self) -> None:
        """Show readers the unfinished lines that changed. Call this once in each round of the pump."""
        if not self.created or self.sealed:
            return
        if self._backlog or self._unpublished:
            self.complete_waiting()
        if not any(self._unmirrored):
            return
        region = list(self._region)
        for stream in (STDOUT, STDERR):
            if self._unmirrored[stream]:
                self._unmirrored[stream] = False
                drawing, head, flags = self._drawings[stream], self._head, self._continued[stream]
                text = self._mm[head.start : head.fill] if stream == self._live else self._tails[stream]
                if drawing is not None:
                    rows = drawing.rows
                    region[stream] = rows, self._tail_ms[stream]
                    if rows:  # they continue the settled text
                        rows = last_rows((text + rows[0], *rows[1:]), PENDING_TEXT_SIZE)
                        text, flags = b"\n".join(rows), flags | FRAMES
                if text or flags or drawing is not None:
                    self.ring.write_pending(stream, self._bytes[stream], self._tail_ms[stream], text, flags)
        if any(now[0] != shown[0] for now, shown in zip(region, self._region, strict=True)):
            self._mirror_region(region)

    def seal(self, now_ms: int) -> bool:
        """Finish all streams and close the log.

        Returns:
            Whether the log is closed. If not, something still waits for a free slot: the log file's `finish` completes
            the seal, as does a call of `settle` when `writable`.
        """
        if not self._seal_wanted:
            for stream in (STDOUT, STDERR, SYSTEM):
                self.finish_stream(stream, now_ms)
            self._seal_wanted = True
            self._seal_ms = now_ms
        return self.complete_waiting()

    def complete_waiting(self) -> bool:
        """Place output that waits for a free slot, complete a waiting seal; return whether nothing waits any more."""
        if not self._drain():
            return False
        if self._seal_wanted and self.gap is not None:
            if self._leave_gap(self._seal_ms):
                self._drain()
            elif self.created and self.shortage is None:
                return False
            else:
                self._give_up(self.gap)
        if self._seal_wanted and not self.sealed:
            self.sealed = True  # set before the last block is counted as closed, so the file thread packs that block
            if self.created:
                if self._open and not self._leave_empty_head():
                    self._close_block()
                self._publish()
        elif self._unpublished:
            self._publish()
        return True

    def close(self) -> None:
        """Unmap the ring; its file stays."""
        if self.created:
            self._view.release()
            self.ring.close()

    def _mirror_region(self, region: list[Rows]) -> None:
        epoch = self.ring.write_region(*region)
        if epoch is not None:
            self._region, self._region_epoch = region, epoch
            self._publish()

    # Placing text

    def _draw(self, drawing: Drawing, stream: int, data: bytes, now_ms: int) -> None:
        """Reduce output of a stream. If the reducer is idle, it first gets the stream's unfinished line."""
        if not drawing.busy:
            data = self._take_unfinished(stream) + data
        self._tail_ms[stream] = now_ms
        self._unmirrored[stream] = True
        pieces = drawing.feed(data, now_ms)
        if not self.created and self.gap is None:
            pieces.insert(0, b"")  # creates the ring even if nothing is settled, for the live region
        for piece in pieces:
            self._add(stream, piece, now_ms)

    def _take_unfinished(self, stream: int) -> bytes:
        unfinished, whole = take_unfinished(self._backlog, stream)
        if not whole:
            if stream == self._live:
                self._park()
            unfinished, self._tails[stream] = self._tails[stream] + unfinished, b""
        return unfinished

    def _drain(self) -> bool:
        """Place as much of the backlog as there are slots for; return whether it is empty now."""
        backlog = self._backlog
        while backlog:
            stream, data, now_ms = backlog[0]
            if not self.created and not self._create(now_ms):
                self._create_at_ms = now_ms
                self._enter_gap(f"there is no place for the log: {self.place_error}", now_ms)
                return True
            try:
                if data is None:
                    self._finish(stream, now_ms)
                elif isinstance(data, LineEnd):
                    self._end_drawn(stream, data, now_ms)
                    data = b""
                while data:
                    self._prepare(stream, now_ms)
                    head = self._head
                    count = min(len(data), head.limit - head.fill)
                    self._write(head.fill, data[:count])
                    self._absorb(stream, count, now_ms)
                    data = data[count:]
                    backlog[0] = stream, data, now_ms
            except BlockingIOError:  # from `_prepare`: no free slot
                if self._no_place is None:
                    return False
                self._enter_gap(self._no_place, now_ms)
                return True
            del backlog[0]
        return True

    def _try_prepare(self, stream: int, now_ms: int) -> bool:
        """Call `_prepare`; return False if there is no room and output must not wait for it."""
        try:
            self._prepare(stream, now_ms)
        except BlockingIOError:
            if self._no_place is None:
                raise
            return False
        return True

    # Gaps

    def _add(self, stream: int, data: bytes | None, now_ms: int) -> None:
        """Place output of a stream (None: its end), keep it until there is room, or drop it."""
        data = self._swallowed(stream, data)
        if self.gap is not None:
            if not self._leave_gap(now_ms):
                self._drop(stream, data, now_ms)
                return
            data = self._swallowed(stream, data)
        self._backlog.append((stream, data, now_ms))
        self._drain()

    def _swallowed(self, stream: int, data: bytes | None) -> bytes | None:
        """Return the output without the rest of a line whose beginning was dropped."""
        if data is None or not self._swallow[stream]:
            return data
        cut = data.find(b"\n") + 1
        self._swallow[stream] = not cut
        return data[cut:] if cut else b""

    def _drop(self, stream: int, data: bytes | None, now_ms: int) -> None:
        if self.gap is not None:
            count = self.gap.drop(stream, data, now_ms)
            self.lines += count
            self.dropped += count

    def _enter_gap(self, reason: str, now_ms: int) -> None:
        """Drop the waiting output, and further output until there is room again."""
        gap = self.gap = Gap(reason, self.block_size // 4)
        self.overflowed = self.overflowed or (self._policy == POLICY_KILL and self.shortage is None and self.created)
        for stream in (STDOUT, STDERR):
            tail = self._tails[stream]
            if tail or self._continued[stream]:
                gap.inside[stream] = True
                gap.bytes += len(tail)
                self._tails[stream] = b""
                self._continued[stream] = 0
                if self.created:
                    self.ring.write_pending(stream, self._bytes[stream], now_ms, b"", 0)
        backlog, self._backlog = self._backlog, []
        for item in backlog:
            self._drop(*item)

    def _give_up(self, gap: Gap) -> None:
        """Drop the notes and the line that reports the gap too, for lack of space; they remain in the counts."""
        self.lines += len(gap.notes)
        self.dropped += len(gap.notes)
        self.gap = None

    def _leave_gap(self, now_ms: int) -> bool:
        """Keep output again, if there is room, beginning with the notes and the report of the gap."""
        gap = self.gap
        if gap is None:
            return True
        if not self.created:
            if abs(now_ms - self._create_at_ms) < _CREATE_AGAIN_MS and not self._seal_wanted:
                return False
            self._create_at_ms = now_ms
            if not self._create(now_ms):
                return False
        elif not self._block_free():
            return False
        for stream, inside in enumerate(gap.inside):
            if inside:
                self._drop(stream, None, now_ms)
                self._swallow[stream] = True
        self.gap = None
        self._backlog += [(SYSTEM, note, ms) for note, ms in gap.notes]
        self._backlog.append((SYSTEM, gap.notice.encode() + b"\n", now_ms))
        return True
