"""The path of drawn output into the log: redrawn lines, their frames, and the live region.

A stream that may redraw has a `Drawing`. Plain output bypasses it, straight from the pipe into the ring. Only when
there is something to reduce is the stream's unfinished line taken out of the ring. While the reducer holds anything,
new output passes through it, in private memory.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from mmap import mmap

from logring.mask import Mask
from logring.redraw.pacing import Pace, redrawn, settled
from logring.redraw.reducer import Drawn, Redraw, needs

MAX_FRAMES = 65535
MAX_HISTORY = 24576
"""Bytes that the kept frames of one line may occupy, with 4 for each row and frame."""
MAX_WAITING = 1 << 20
"""Bytes of frames that may wait for the file thread; frames beyond this limit are dropped."""

Frame = tuple[bytes, ...]
"""One earlier look of a line: its rows."""


class LineEnd(bytes):
    """The end of a line that was drawn repeatedly, its text having gone before: a newline, or nothing.

    Attributes:
        frames: how the line came to be, at least one frame, oldest first.
    """

    frames: tuple[Frame, ...]

    @classmethod
    def of(cls, frames: tuple[Frame, ...]) -> "LineEnd":
        """Return the newline of a line that came to be so."""
        self = cls(b"\n")
        self.frames = frames
        return self

    def without_newline(self) -> "LineEnd":
        """Return the same at the end of a stream that does not end with a newline."""
        other = LineEnd()
        other.frames = self.frames
        return other


Item = tuple[int, bytes | None, int]
"""Output that waits for its place in the log: stream, text (None: the end of the stream), arrival time."""


class Drawing:
    """The output that one stream draws.

    Args:
        full: reduce whatever a terminal understands; otherwise carriage returns alone.
        mask: replaces the secrets in settled lines, because text drawn piece by piece can form a secret.
    """

    __slots__ = ("_full", "_mask", "_newline", "_pace", "_redraw")

    def __init__(self, *, full: bool, mask: Mask | None = None) -> None:
        self._full = full
        self._mask = mask
        self._redraw = Redraw(full=full)
        self._pace = Pace()
        self._newline = True  # whether the last byte it was fed was one

    @property
    def busy(self) -> bool:
        """Return whether the next output must be fed, because it may change earlier output."""
        return self._redraw.busy

    @property
    def rows(self) -> Frame:
        """Return the current look of the unsettled rows."""
        rows = self._redraw.region() if self._redraw.busy else ()
        return rows if self._mask is None else tuple(map(self._mask.clean, rows))

    def concerns(self, mm: mmap, start: int, end: int) -> bool:
        """Return whether these bytes of a mapping have to be fed. Plain output costs one look for a carriage return."""
        if not self._full and mm.find(b"\r", start, end) < 0:
            return False
        return needs(mm[start:end], self._full)

    def wants(self, data: bytes) -> bool:
        """Return whether these bytes have to be fed."""
        return self.busy or needs(data, self._full)

    def feed(self, data: bytes, now_ms: int) -> list[bytes]:
        """Take bytes, from the start of a line on unless it is `busy`; return the lines that they settle.

        That is text and, behind the text of a line that was redrawn, its `LineEnd`. An unfinished line that is plain
        so far is returned too, so that long plain output does not stay here.
        """
        self._newline = data.endswith(b"\n")
        cut = data.rfind(b"\n") + 1
        pieces = self._whole_lines(data[:cut], now_ms) if cut else []
        rest = data[cut:]
        if rest and self.wants(rest):
            pieces += self._pieces(self._redraw.feed(rest))
        elif rest:
            pieces.append(rest if self._mask is None or not self._mask.held else self._mask.feed(rest))
        return pieces

    def _whole_lines(self, data: bytes, now_ms: int) -> list[bytes]:
        room = self._pace.room(now_ms)
        if self._full or redrawn(data, room + 1) <= room:
            drawn = self._redraw.feed(data)
            self._pace.take(sum(isinstance(one, Drawn) for one in drawn))
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
        """Return the held output at the end of the stream; it is settled."""
        pieces = list(self._pieces(self._redraw.finish()))
        if self._mask is not None and self._mask.held:
            pieces.append(self._mask.finish())
        if pieces and not self._newline:
            last = pieces[-1]
            pieces[-1] = last.without_newline() if isinstance(last, LineEnd) else last.removesuffix(b"\n")
        return pieces

    def _pieces(self, settled: Iterable[bytes | Drawn]) -> Iterator[bytes]:
        mask = self._mask  # a secret may stand across the edges of rows that settle one by one
        for one in settled:
            if not isinstance(one, Drawn):
                yield one if mask is None else mask.feed(one)
                continue
            text, frames = one.text, one.frames
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
    """As many of the newest as may be kept."""
    room = MAX_HISTORY
    first = len(frames)
    while first and len(frames) - first < MAX_FRAMES:
        room -= history_size(frames[first - 1])
        if room < 0:
            break
        first -= 1
    return frames[first:]


def history_size(frame: Frame) -> int:
    """Bytes that a frame occupies in the sidecar."""
    return 4 + sum(4 + len(row) for row in frame)


def take_unfinished(backlog: list[Item], stream: int) -> tuple[bytes, bool]:
    """Take a stream's unfinished line out of the waiting output; return also whether the line began there."""
    taken = b""
    for index in range(len(backlog) - 1, -1, -1):
        item_stream, data, now_ms = backlog[index]
        if item_stream != stream:
            continue
        if data is None or isinstance(data, LineEnd):
            return taken, True
        cut = data.rfind(b"\n") + 1
        taken = data[cut:] + taken
        backlog[index] = stream, data[:cut], now_ms
        if cut:
            return taken, True
    return taken, False


class FrameQueue:
    """Frames on their way from the pump to the file thread.

    Frames beyond the limit are dropped, so lines never wait.
    """

    __slots__ = ("_added", "_items", "_taken", "_told")

    def __init__(self) -> None:
        self._items: deque[tuple[int, tuple[Frame, ...]]] = deque()
        # Each is written by one thread alone: bytes ever added, bytes ever taken.
        self._added = 0
        self._taken = 0
        self._told = False

    def add(self, line: int, frames: tuple[Frame, ...]) -> None:
        """The line with this number was drawn so. From the pump."""
        size = sum(map(history_size, frames))
        if self._added - self._taken + size <= MAX_WAITING:
            self._items.append((line, frames))
            self._added += size

    @property
    def pressing(self) -> bool:
        """Whether so many wait that the file thread is to be woken; True once in each such case. From the pump."""
        many = 2 * (self._added - self._taken) > MAX_WAITING
        told, self._told = self._told, many
        return many and not told

    @property
    def waiting(self) -> bool:
        """Return whether there is anything to take."""
        return bool(self._items)

    def take(self) -> list[tuple[int, tuple[Frame, ...]]]:
        """Return all that wait: numbers of lines and their frames, ascending. From the file thread."""
        found = []
        while self._items:
            item = self._items.popleft()
            self._taken += sum(map(history_size, item[1]))
            found.append(item)
        return found
