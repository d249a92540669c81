"""The path of drawn output into the log: redrawn lines, their frames, and the live region.

A stream that may redraw has a `Drawing`. Plain output bypasses it and goes straight from the pipe into the ring. The
stream's unfinished line is taken out of the ring only when there is something to reduce. While the reducer holds
anything, new output passes through it, in private memory.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from mmap import mmap

from logring.mask import Mask
from logring.redraw.pacing import Pace, redrawn, settled
from logring.redraw.reducer import Redraw, RedrawnLine, needs
from logring.state_json import tagged

MAX_FRAMES = 65535
MAX_HISTORY = 24576
"""Maximum size in bytes of the frames kept for one line, counting 4 more for each row and frame."""
MAX_WAITING = 1 << 20
"""Maximum size in bytes of frames that wait for the file thread; further frames are dropped."""

Frame = tuple[bytes, ...]
"""One earlier state of a line, as its rows."""


@tagged("LineEnd", "=text frames")
@dataclass(frozen=True)
class LineEndState:
    """A line end in a handover."""

    text: str
    """A newline, or nothing."""
    frames: tuple[Frame, ...]


class LineEnd(bytes):
    """The end of a line that was drawn repeatedly: a newline, or nothing. It follows the text of the line.

    Attributes:
        frames: the states that the line went through, at least one, oldest first.
    """

    frames: tuple[Frame, ...]

    @classmethod
    def of(cls, frames: tuple[Frame, ...]) -> "LineEnd":
        """Return the newline of a line with these frames."""
        return cls.from_state(LineEndState("\n", frames))

    @classmethod
    def from_state(cls, state: LineEndState) -> "LineEnd":
        """Return the line end with this state."""
        self = cls(state.text.encode())
        self.frames = state.frames
        return self

    def state(self) -> LineEndState:
        """Return the state for another program."""
        return LineEndState(self.decode(), self.frames)

    def without_newline(self) -> "LineEnd":
        """Return the same line end for a stream that ends without a newline."""
        return LineEnd.from_state(LineEndState("", self.frames))


Item = tuple[int, bytes | LineEnd | None, int]
"""Output that waits for a place in the log: stream, text (None at the end of the stream), arrival time in ms."""


@tagged("Drawing", "_full _mask _newline _pace _redraw")
@dataclass(slots=True, eq=False)
class Drawing:
    """The output that one stream draws.

    :meth:`of` creates one.
    """

    _full: bool
    _mask: Mask | None
    _redraw: Redraw
    _pace: Pace = field(default_factory=Pace)
    _newline: bool = True
    """Whether the last byte fed was a newline."""

    @classmethod
    def of(cls, *, full: bool, mask: Mask | None = None) -> "Drawing":
        """Return the drawing of a stream without output.

        Args:
            full: reduce all control sequences of a terminal; otherwise only carriage returns.
            mask: replaces secrets in settled lines, because text drawn piece by piece can form a secret.
        """
        return cls(full, mask, Redraw(full=full))

    @property
    def busy(self) -> bool:
        """Whether the next output must go through `feed`, because it may change earlier output."""
        return self._redraw.busy

    @property
    def rows(self) -> Frame:
        """The unsettled rows as they look now, with secrets replaced."""
        rows = self._redraw.region() if self._redraw.busy else ()
        return rows if self._mask is None else tuple(map(self._mask.clean, rows))

    def concerns(self, mm: mmap, start: int, end: int) -> bool:
        """Return whether these bytes of a mapping must go through `feed`. Plain output takes one search for a byte."""
        if not self._full and mm.find(b"\r", start, end) < 0:
            return False
        return needs(mm[start:end], self._full)

    def wants(self, data: bytes) -> bool:
        """Return whether these bytes must go through `feed`: they redraw text, or may change earlier output."""
        return self.busy or needs(data, self._full)

    def feed(self, data: bytes, now_ms: int) -> list[bytes]:
        """Take output, which starts at the start of a line unless `busy` is set; return the text that it settles.

        The text of a redrawn line is followed by its `LineEnd`. An unfinished line that is plain so far is returned
        too, so long plain output does not accumulate here.
        """
        self._newline = data.endswith(b"\n")
        cut = data.rfind(b"\n") + 1
        pieces = self._whole_lines(data[:cut], now_ms) if cut else []
        remaining = data[cut:]
        if remaining and self.wants(remaining):
            pieces += self._pieces(self._redraw.feed(remaining))
        elif remaining:
            pieces.append(
                remaining if self._mask is None or not self._mask.possible_secret else self._mask.feed(remaining)
            )
        return pieces

    def _whole_lines(self, data: bytes, now_ms: int) -> list[bytes]:
        room = self._pace.room(now_ms)
        if self._full or redrawn(data, room + 1) <= room:
            drawn = self._redraw.feed(data)
            self._pace.take(sum(isinstance(part, RedrawnLine) for part in drawn))
            return list(self._pieces(drawn))
        pieces: list[bytes] = []
        if self._redraw.busy:
            cut = data.find(b"\n") + 1
            pieces += self._pieces(self._redraw.feed(data[:cut]))
            data = data[cut:]
        text = settled(data)
        pieces.append(text if self._mask is None else self._mask.feed(text))
        return pieces

    def finish(self) -> list[bytes]:
        """End the stream: settle and return the output still held."""
        pieces = list(self._pieces(self._redraw.finish()))
        if self._mask is not None and self._mask.possible_secret:
            pieces.append(self._mask.finish())
        if pieces and not self._newline:
            last = pieces[-1]
            pieces[-1] = last.without_newline() if isinstance(last, LineEnd) else last.removesuffix(b"\n")
        return pieces

    def _pieces(self, settled: Iterable[bytes | RedrawnLine]) -> Iterator[bytes]:
        mask = self._mask  # keeps its state between rows: a secret may span rows that settle one by one
        for part in settled:
            if not isinstance(part, RedrawnLine):
                yield part if mask is None else mask.feed(part)
                continue
            text, frames = part.text, part.frames
            if mask is not None:
                text = mask.feed(text) + mask.finish()
                frames = tuple(tuple(map(mask.clean, rows)) for rows in frames)
            frames = _kept(frames)
            if not frames:
                yield text + b"\n"
                continue
            if text:
                yield text
            yield LineEnd.of(frames)


def _kept(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Return the newest frames that fit the limits of one line's history."""
    room = MAX_HISTORY
    first = len(frames)
    while first and len(frames) - first < MAX_FRAMES:
        room -= history_size(frames[first - 1])
        if room < 0:
            break
        first -= 1
    return frames[first:]


def history_size(frame: Frame) -> int:
    """Return the size of a frame in the sidecar, in bytes."""
    return 4 + sum(4 + len(row) for row in frame)


def take_unfinished(backlog: list[Item], stream: int) -> tuple[bytes, bool]:
    """Remove a stream's unfinished line from the waiting output. Return it, and whether the line begins there."""
    unfinished = b""
    for index in range(len(backlog) - 1, -1, -1):
        item_stream, data, now_ms = backlog[index]
        if item_stream != stream:
            continue
        if data is None or isinstance(data, LineEnd):
            return unfinished, True
        cut = data.rfind(b"\n") + 1
        unfinished = data[cut:] + unfinished
        backlog[index] = stream, data[:cut], now_ms
        if cut:
            return unfinished, True
    return unfinished, False


@tagged("FrameQueue", "_added _items _taken _told=_was_pressing")
@dataclass(slots=True, eq=False)
class FrameQueue:
    """The queue of frames from the pump to the file thread.

    Frames over the limit are dropped, so lines never wait for them.
    """

    _items: deque[tuple[int, tuple[Frame, ...]]] = field(default_factory=deque)
    # Totals in bytes since the start. Each is written by one thread only, so neither needs a lock.
    _added: int = 0
    _taken: int = 0
    _was_pressing: bool = False

    def add(self, line: int, frames: tuple[Frame, ...]) -> None:
        """Add the frames of a line. Called by the pump."""
        size = sum(map(history_size, frames))
        if self._added - self._taken + size <= MAX_WAITING:
            self._items.append((line, frames))
            self._added += size

    @property
    def pressing(self) -> bool:
        """Whether to wake the file thread: True once each time the queue becomes half full. Called by the pump."""
        many = 2 * (self._added - self._taken) > MAX_WAITING
        before, self._was_pressing = self._was_pressing, many
        return many and not before

    @property
    def waiting(self) -> bool:
        """Whether the queue has frames."""
        return bool(self._items)

    def take(self) -> list[tuple[int, tuple[Frame, ...]]]:
        """Remove and return all line numbers with their frames, ascending. Called by the file thread."""
        items = []
        while self._items:
            item = self._items.popleft()
            self._taken += sum(map(history_size, item[1]))
            items.append(item)
        return items
