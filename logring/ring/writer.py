"""The writing end of a log: it reads output from the pipe straight into the mapped ring. No disk is touched here.

`logring.ring.block_writer` places text in the ring. This module handles the steps before that: a stream's output first
passes the mask and the reducer of redrawn lines. Output without room waits in a short backlog; output that must not
wait is dropped and counted. `mirror_pending` copies unfinished lines to a place where readers find them, and the next
daemon after a crash.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from logring.layout import (
    CONTINUED,
    FRAMES,
    PENDING_TEXT_SIZE,
    POLICIES,
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
from logring.ring.live_region import last_rows
from logring.ring.open_block import HeadBlock
from logring.ring.ring import Ring, RingState, read_pending
from logring.ring.stream_state import StreamState, from_fields, to_fields
from logring.state_json import from_json, tagged, to_json

_CREATE_AGAIN_MS = 1000
_READ_BYTES = 131072
_PRIVATE_READ_BYTES = 65536


Keep = Callable[[int], int]
"""Registers a descriptor to be inherited, and returns it."""


_FIELDS = "_backlog _create_at_ms _seal_ms _seal_wanted gap overflowed"


@tagged("", _FIELDS)
@dataclass(eq=False)
class RingWriter:
    """Writes one log's ring. One thread (the pump) uses it, while another thread may write the log file.

    :meth:`new` creates a writer. :meth:`dump` and :meth:`load` hand it over to a new program across execve.

    Attributes:
        blocks: the ring, its blocks and their counts.
        gap: the lines being dropped; None while all lines are kept.
        overflowed: whether output was dropped under the policy ``kill``.
    """

    gap: Gap | None = None
    overflowed: bool = False
    _backlog: list[Item] = field(default_factory=list)
    _seal_ms: int = 0
    _create_at_ms: int = 0
    _seal_wanted: bool = False
    blocks: BlockWriter = field(init=False)

    @classmethod
    def new(
        cls, path: str, run_id: str, shape: RingShape, *, policy: str = "drop_old", first_line: int = 0
    ) -> "RingWriter":
        """Return the writer of a new log.

        Args:
            path: path of the ring; the first output creates the file.
            run_id: at most 32 bytes.
            shape: number and size of the blocks. Without a log file, the ring reuses its oldest slot.
            policy: the behaviour when the log file is full. ``drop_old`` discards the oldest block; ``drop_new`` and
                ``kill`` drop new output, except that the last block is kept for the line that reports this.
            first_line: number of the first line, for a log that continues another log's numbers.
        """
        self = cls()
        self.blocks = BlockWriter.new(path, run_id, shape, POLICIES[policy], first_line)
        return self

    @classmethod
    def resume(cls, ring: Ring) -> "RingWriter":
        """Continue a ring that another writer left, from its last publication.

        Raises:
            Corrupt: there is no valid publication.
        """
        self = cls()
        self.blocks = BlockWriter.resume(ring)
        for stream in self.blocks.streams[:SYSTEM]:
            pending = read_pending(ring.mm, stream.number, stream.line_bytes)
            if pending is not None:
                stream.last_ms, flags, text = pending
                stream.continued = flags & CONTINUED
                if b"\n" in text:  # rows
                    self._backlog.append((stream.number, text, stream.last_ms))
                else:
                    stream.tail = text
        return self

    # State handed to another program

    def dump(self, keep: Keep) -> dict[str, Any]:
        """Return the complete state of an idle writer as JSON values. The writer stays usable.

        That includes output that no reader has seen yet: unfinished lines, text held back as a possible secret, a
        progress bar that is being drawn, frames on their way to the disk. The ring stays in place.
        """
        state: dict[str, Any] = {"writer": self.to_dict()}
        blocks = self.blocks
        if blocks.created:
            state |= {"fd": keep(blocks.ring.fd), "ring": to_json(blocks.ring.state()), "head": to_json(blocks.head)}
        return state

    @classmethod
    def load(cls, state: dict[str, Any]) -> "RingWriter":
        """Restore a writer from the state that :meth:`dump` returned in another program. Nothing is written.

        Raises:
            UnknownFormat, KeyError: the state has a format that this version does not know.
            OSError: the ring cannot be mapped.
            LogError: the file is not a ring.
        """
        self = cls.from_dict(state["writer"])
        blocks = self.blocks
        if blocks.created:
            blocks.attach(Ring.adopt(blocks.path, state["fd"], from_json(RingState, state["ring"])))
            blocks.head = from_json(HeadBlock, state["head"])
            blocks.head.ring = blocks.ring
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the state without the ring's. The format has no parts: all fields are in one object."""
        fields = to_fields(self.blocks.streams).items()
        return {"dict": sorted([*to_json(self)["dict"], *to_json(self.blocks)["dict"], *map(list, fields)])}

    @classmethod
    def from_dict(cls, body: dict[str, Any]) -> "RingWriter":
        """Return the writer with the state that :meth:`to_dict` returned.

        Raises:
            UnknownFormat, KeyError: the state has a format that this version does not know.
        """
        fields = dict(body["dict"])
        streams = from_fields(fields)
        self: RingWriter = from_json(cls, {"dict": [[name, fields.pop(name)] for name in _FIELDS.split()]})
        self.blocks = from_json(BlockWriter, {"dict": list(fields.items())})
        self.blocks.streams = streams
        self._find_reserve()
        return self

    def in_a_new_file(self) -> "RingWriter":
        """Replace a writer whose ring was removed from its path, or never had a place there, and close this one.

        The new ring has the whole content of the old one. The writer must be idle during the call.

        Raises:
            OSError: the ring cannot be recreated; this writer is unchanged.
        """
        state = self.dump(lambda fd: fd)
        new = RingWriter.load({**state, "fd": self.blocks.ring.copied_file(self.blocks.path)})
        new.blocks.place_error = None
        self.close()
        return new

    # Called by the pump

    @property
    def writable(self) -> bool:
        """Whether output need not wait. It waits while the next slot holds a block not yet in the log file."""
        blocks = self.blocks
        return blocks.is_open or not blocks.created or blocks.block_free() or blocks.no_place is not None

    @property
    def wants_writing(self) -> bool:
        """Whether to wake the file thread: half the ring's blocks wait for the log file."""
        blocks = self.blocks
        waiting = blocks.closed_blocks - blocks.written_blocks
        return blocks.created and blocks.file_blocks > 0 and 2 * waiting >= blocks.ring.slots

    @property
    def final_lines(self) -> int:
        """Number of lines once everything that waits for a free slot is placed. An overlong line counts once."""
        lines, unfinished = self.blocks.lines, list(map(self.blocks.has_tail, self.blocks.streams))
        for stream, data, _ in self._backlog:
            if data is None or isinstance(data, LineEnd):
                lines += data is not None or unfinished[stream]
                unfinished[stream] = False
            elif data:
                lines += data.count(b"\n")
                unfinished[stream] = not data.endswith(b"\n")
        return lines if self.gap is None else lines + len(self.gap.notes) + 1

    @property
    def last_ms(self) -> int:
        """Time of the last known output, in ms since the epoch."""
        head_ms = self.blocks.head.base_ms + self.blocks.head.last_delta if self.blocks.created else 0
        return max(head_ms, *(stream.last_ms for stream in self.blocks.streams))

    def redraw(self, stream: int, *, full: bool) -> None:
        """Keep only the final state of lines that a stream redraws. Call this before its first output.

        Args:
            stream: STDOUT or STDERR.
            full: interpret all sequences of a terminal (for a pseudo-terminal); otherwise only carriage returns.
        """
        state = self.blocks.streams[stream]
        state.drawing = Drawing.of(full=full, mask=state.mask.another() if state.mask is not None else None)

    def mask(self, secrets: Sequence[bytes]) -> None:
        """Replace secrets in the output of both streams. Call this before `redraw` and the first output.

        Raises:
            ValueError: a secret is too short or too long; see `logring.mask`.
        """
        for stream in self.blocks.streams[:SYSTEM]:
            stream.mask = Mask(secrets)

    @property
    def _masks(self) -> Iterator[Mask]:
        return (stream.mask for stream in self.blocks.streams if stream.mask is not None)

    @property
    def masked(self) -> int:
        """Number of replaced secrets so far."""
        return sum(mask.count for mask in self._masks)

    @property
    def masking(self) -> bool:
        """Whether output is searched for secrets."""
        return any(self._masks)

    @property
    def withheld(self) -> tuple[bytes, bytes, int]:
        """The output of stdout and stderr held back as a possible secret, and the number of replacements."""
        out, err = (mask.possible_secret for mask in self._masks) if self.masking else (b"", b"")
        return out, err, self.masked

    def hold(self, out: bytes, err: bytes, masked: int) -> None:
        """Continue where the masks of another writer stopped, with the output that it held. Call `mask` first."""
        for mask, output, count in zip(self._masks, (out, err), (masked, 0), strict=False):
            mask.hold(output, count)

    def readv(self, fd: int, stream: int, now_ms: int) -> int:
        """Read once from `fd`, straight into the head block, and publish the lines that are complete now.

        Returns:
            Bytes read, at most 128 KiB; 0 at end of file.

        Raises:
            BlockingIOError: there is nothing to read, or no room for it while `writable` is False.
            OSError: the read failed.
        """
        blocks = self.blocks
        state = blocks.streams[stream]
        drawing = state.drawing
        private = state.mask is not None or (drawing is not None and drawing.busy)
        if private or stream != blocks.live or not blocks.ready(now_ms):
            if self._backlog and not self._drain():
                raise BlockingIOError(errno.EAGAIN, "no free slot in the ring")
            if (
                private
                or not blocks.created
                or self.gap is not None
                or state.swallow
                or not self._try_prepare(state, now_ms)
            ):
                data = os.read(fd, _PRIVATE_READ_BYTES)
                self.append(stream, data, now_ms)
                return len(data)
        head = blocks.head
        # The read is limited, so that the text is still in the processor's cache when it is searched below.
        count = os.readv(fd, [blocks.view[head.fill : min(head.limit, head.fill + _READ_BYTES)]])
        if drawing is not None and drawing.concerns(blocks.mm, head.fill, head.fill + count):
            head.fill += count
            self._draw(drawing, state, b"", now_ms)
        elif count:
            blocks.absorb(state, count, now_ms)
        return count

    def append(self, stream: int, data: bytes, now_ms: int) -> None:
        """Add bytes that were not read from a descriptor here: complete lines or parts of lines.

        Output that finds no place now is kept and placed later; see `complete_waiting`.

        Raises:
            ValueError: the log is sealed.
        """
        if self._seal_wanted:
            raise ValueError("the log is sealed")
        state = self.blocks.streams[stream]
        self._reduce(state, data if state.mask is None else state.mask.feed(data), now_ms)

    def _reduce(self, stream: StreamState, data: bytes, now_ms: int) -> None:
        drawing = stream.drawing
        if drawing is not None and data and drawing.wants(data):
            self._draw(drawing, stream, data, now_ms)
        elif data:
            self._add(stream, data, now_ms)

    def system_line(self, text: str, now_ms: int) -> None:
        """Add a line of the daemon's own, in the stream `system`; control characters are escaped."""
        self.append(SYSTEM, harmless(text) + b"\n", now_ms)

    def finish_stream(self, stream: int, now_ms: int) -> None:
        """Handle the end of one stream: its unfinished line becomes a line, marked as having no newline."""
        state = self.blocks.streams[stream]
        if state.mask is not None:
            self._reduce(state, state.mask.finish(), now_ms)
        drawing = state.drawing
        if drawing is not None and drawing.busy:
            state.changed = True
            for piece in drawing.finish():
                self._add(state, piece, now_ms)
        if self.gap is not None or self.blocks.has_tail(state) or any(item[0] == stream for item in self._backlog):
            self._add(state, None, now_ms)
        state.swallow = False

    def mirror_pending(self) -> None:
        """Show readers the unfinished lines that changed. Call this once in each round of the pump."""
        blocks = self.blocks
        if not blocks.created or blocks.sealed:
            return
        if self._backlog or blocks.unpublished:
            self.complete_waiting()
        shown = out, err = blocks.streams[:SYSTEM]
        if not (out.changed or err.changed):
            return
        region = [stream.rows for stream in shown]
        for stream in shown:
            if stream.changed:
                stream.changed = False
                drawing, flags, text = stream.drawing, stream.continued, blocks.unfinished(stream)
                if drawing is not None:
                    rows = drawing.rows
                    region[stream.number] = rows, stream.last_ms
                    if rows:  # they continue the settled text
                        rows = last_rows((text + rows[0], *rows[1:]), PENDING_TEXT_SIZE)
                        text, flags = b"\n".join(rows), flags | FRAMES
                if text or flags or drawing is not None:
                    blocks.ring.write_pending(stream.number, stream.line_bytes, stream.last_ms, text, flags)
        if any(now[0] != stream.rows[0] for now, stream in zip(region, shown, strict=True)):
            epoch = blocks.ring.write_region(*region)
            if epoch is not None:
                blocks.region_epoch = epoch
                for stream in shown:
                    stream.rows = region[stream.number]
                blocks.publish()

    def seal(self, now_ms: int) -> bool:
        """Finish all streams and close the log.

        Returns:
            Whether the log is closed. If not, something still waits for a free slot: the log file's `finish` completes
            the seal, as does a call of `complete_waiting` when `writable`.
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
        blocks = self.blocks
        if self._seal_wanted and self.gap is not None:
            if self._leave_gap(self._seal_ms):
                self._drain()
            elif blocks.shortage is None and (blocks.created or blocks.file_blocks):
                return False
            else:
                self._give_up(self.gap)
        if self._seal_wanted and not blocks.sealed:
            blocks.seal()
        elif blocks.unpublished:
            blocks.publish()
        return True

    def close(self) -> None:
        """Unmap the ring; its file stays."""
        self.blocks.close()

    # Placing text

    def _draw(self, drawing: Drawing, stream: StreamState, data: bytes, now_ms: int) -> None:
        """Reduce output of a stream. If the reducer is idle, it first gets the stream's unfinished line."""
        if not drawing.busy:
            data = self._remove_unfinished(stream) + data
        stream.last_ms = now_ms
        stream.changed = True
        pieces = drawing.feed(data, now_ms)
        if not self.blocks.created and self.gap is None:
            pieces.insert(0, b"")  # creates the ring even if nothing is settled, for the live region
        for piece in pieces:
            self._add(stream, piece, now_ms)

    def _remove_unfinished(self, stream: StreamState) -> bytes:
        unfinished, whole = take_unfinished(self._backlog, stream.number)
        if not whole:
            if stream.number == self.blocks.live:
                self.blocks.park()
            unfinished, stream.tail = stream.tail + unfinished, b""
        return unfinished

    def _drain(self) -> bool:
        """Place as much of the backlog as there are slots for; return whether it is empty now."""
        blocks = self.blocks
        while self._find_reserve():
            backlog = self._backlog
            number, data, now_ms = backlog[0]
            stream = blocks.streams[number]
            if not blocks.created and not blocks.create(now_ms):
                self._create_at_ms = now_ms
                self._enter_gap(f"there is no place for the log: {blocks.place_error}", now_ms)
                continue
            try:
                if data is None:
                    blocks.finish(stream, now_ms)
                elif isinstance(data, LineEnd):
                    blocks.end_drawn(stream, data, now_ms)
                    data = b""
                while data:
                    data = blocks.place(stream, data, now_ms)
                    backlog[0] = number, data, now_ms
            except BlockingIOError:  # no free slot
                if blocks.no_place is None:
                    return False
                self._enter_gap(blocks.no_place, now_ms)
                continue
            del backlog[0]
        return True

    def _find_reserve(self) -> bool:
        """Open the reserve if only messages of the daemon wait and none will follow; return whether output waits."""
        backlog = self._backlog
        self.blocks.reserve_open = self._seal_wanted and all(stream == SYSTEM for stream, _, _ in backlog)
        return bool(backlog)

    def _try_prepare(self, stream: StreamState, now_ms: int) -> bool:
        """Prepare a block; return False if there is no room and output must not wait for it."""
        try:
            self.blocks.prepare(stream, now_ms)
        except BlockingIOError:
            if self.blocks.no_place is None:
                raise
            return False
        return True

    # Gaps

    def _add(self, stream: StreamState, data: bytes | None, now_ms: int) -> None:
        """Place output of a stream (None: its end), keep it until there is room, or drop it."""
        data = _swallowed(stream, data)
        if self.gap is not None:
            if not self._leave_gap(now_ms):
                self._drop(stream.number, data, now_ms)
                return
            data = _swallowed(stream, data)
        self._backlog.append((stream.number, data, now_ms))
        self._drain()

    def _drop(self, stream: int, data: bytes | None, now_ms: int) -> None:
        if self.gap is not None:
            self.blocks.skip(self.gap.drop(stream, data, now_ms))

    def _enter_gap(self, reason: str, now_ms: int) -> None:
        """Drop the waiting output, and further output until there is room again."""
        blocks = self.blocks
        gap = self.gap = Gap(reason, blocks.block_size // 4)
        killed = blocks.policy == POLICY_KILL and blocks.shortage is None and blocks.created
        self.overflowed = self.overflowed or killed
        for stream in self.blocks.streams[:SYSTEM]:
            if stream.tail or stream.continued:
                gap.inside[stream.number] = True
                gap.bytes += len(stream.tail)
                stream.tail, stream.continued = b"", 0
                if blocks.created:
                    blocks.ring.write_pending(stream.number, stream.line_bytes, now_ms, b"", 0)
        backlog, self._backlog = self._backlog, []
        for item in backlog:
            self._drop(*item)

    def _give_up(self, gap: Gap) -> None:
        """Drop the notes and the line that reports the gap too, for lack of space; they remain in the counts."""
        self.blocks.skip(len(gap.notes))
        self.gap = None

    def _leave_gap(self, now_ms: int) -> bool:
        """Keep output again, if there is room, beginning with the notes and the report of the gap."""
        gap = self.gap
        if gap is None:
            return True
        if not self.blocks.created:
            if abs(now_ms - self._create_at_ms) < _CREATE_AGAIN_MS and not self._seal_wanted:
                return False
            self._create_at_ms = now_ms
            if not self.blocks.create(now_ms):
                return False
        elif not self.blocks.block_free():
            return False
        for stream, inside in zip(self.blocks.streams, gap.inside, strict=True):
            if inside:
                self._drop(stream.number, None, now_ms)
                stream.swallow = True
        self.gap = None
        self._backlog += [(SYSTEM, note, ms) for note, ms in gap.notes]
        self._backlog.append((SYSTEM, gap.notice.encode() + b"\n", now_ms))
        return True


def _swallowed(stream: StreamState, data: bytes | None) -> bytes | None:
    """Return the output without the rest of a line whose beginning was dropped."""
    if data is None or not stream.swallow:
        return data
    cut = data.find(b"\n") + 1
    stream.swallow = not cut
    return data[cut:] if cut else b""
