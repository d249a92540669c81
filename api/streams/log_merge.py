"""Merging several logs: the order of their lines, and a cursor that records how far they were sent.

Lines are ordered by time, then by run id, then by number. The lines of one run always keep their order: if the clock
was set back between two lines, the second counts as read at the same time as the first.

A cursor resumes a merge without loss or repetition. It lists each run that was sent in part, with its next line. Runs
that were sent completely are omitted if they ended before the cursor's time, and listed by a short key if they ended at
that time or later. Any other run that is still running, or ended at the cursor's time or later, is new::

    base64url(version u8 | floor ms varint | time ms varint | count varint | count * (ULID 16s, next line varint)
              | count varint | count * key 8s | crc32 u32)

The *floor* is the time of the oldest lines that the merge may send; older lines were not requested.
"""

import base64
import binascii
import heapq
import struct
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from logring.block import Batch

MAX_CURSOR = 6 * 1024
"""Maximum number of characters in a cursor."""
MAX_RUNS = 200
"""Maximum number of runs merged at once: a cursor has room for them and for some runs that ended recently."""

_VERSION = 1
_MAX_BYTES = MAX_CURSOR * 3 // 4
_KEY_BYTES = 8
_CRC = struct.Struct("<I")
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_DIGITS = str.maketrans(_ALPHABET, "0123456789ABCDEFGHIJKLMNOPQRSTUV")
"""Translates the digits of a ULID to digits that `int` accepts."""
_MAX_NUMBER = 2**63 - 1


class BadCursor(ValueError):
    """The text is not a valid cursor."""


class MissingLines(NamedTuple):
    """Lines of a run that are no longer kept, or unreadable."""

    after: int
    """Number of the line before them."""
    lines: int
    """Number of missing lines."""


class End(NamedTuple):
    """All lines of a run that has ended were sent."""


Item = Batch | MissingLines | End


class Track:
    """One run within a merge.

    Attributes:
        run_id: its ULID.
        next: number of the next line to send.
        latest_ms: time of the newest line taken so far.
        behind: whether the run is known to have lines that are not in the merge yet.
        queued: size of the lines in its queue, in bytes.
    """

    __slots__ = ("behind", "latest_ms", "next", "queue", "queued", "run_id")

    def __init__(self, run_id: str, next_line: int) -> None:
        self.run_id = run_id
        self.next = next_line
        self.latest_ms = 0
        self.behind = True
        self.queued = 0
        self.queue: deque[tuple[int, Item]] = deque()

    def advance(self, item: Item) -> None:
        """Move `next` past an item that is sent."""
        if isinstance(item, Batch):
            self.next = item.next
        elif isinstance(item, MissingLines):
            self.next = item.after + 1 + item.lines


class Merge:
    """Merges the lines of several runs in order."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str, Track]] = []
        """Tracks with queued items, ordered by their first item."""

    def __bool__(self) -> bool:
        return bool(self._heap)

    @property
    def first_ms(self) -> int:
        """Time of the first item in ms; the merge must not be empty."""
        return self._heap[0][0]

    def put(self, track: Track, items: Iterable[tuple[int, Item]], now_ms: int) -> None:
        """Queue items of a run with their times (ms), in the order of its log.

        A time in the future is reduced to `now_ms`: after the clock was set back, such an item would delay all later
        ones.
        """
        empty = not track.queue
        latest_ms = track.queue[-1][0] if track.queue else track.latest_ms
        for at_ms, item in items:
            latest_ms = min(max(latest_ms, at_ms), max(now_ms, latest_ms))
            track.queue.append((latest_ms, item))
            if isinstance(item, Batch):
                track.queued += len(item.text) + 1
        if empty and track.queue:
            heapq.heappush(self._heap, (track.queue[0][0], track.run_id, track))

    def take(self, before_ms: int, max_lines: int, max_bytes: int) -> Iterator[tuple[Track, Item]]:
        """Yield items in order, up to and including `before_ms`; stop when a run that is `behind` has none queued.

        At least one item is yielded if one is due. The caller calls :meth:`Track.advance` for each item that it sends.
        """
        heap = self._heap
        while heap and heap[0][0] <= before_ms and max_lines > 0 and max_bytes > 0:
            _, run_id, track = heap[0]
            at_ms, item = track.queue.popleft()
            track.latest_ms = at_ms
            if isinstance(item, Batch):
                max_lines -= item.lines
                max_bytes -= len(item.text)
                track.queued -= len(item.text) + 1
            if track.queue:
                heapq.heapreplace(heap, (track.queue[0][0], run_id, track))
            else:
                heapq.heappop(heap)
            yield track, item
            if not track.queue and track.behind:
                return


class Cursor(NamedTuple):
    """The position of a merge; the module's docstring describes it."""

    floor_ms: int
    time_ms: int
    lines: Mapping[str, int]
    """Next line of each run that was sent in part, by run id."""
    complete: frozenset[bytes]
    """Keys of runs that were sent completely and ended at or after the time."""

    def is_complete(self, run_id: str) -> bool:
        """Return whether a run that ended at or after `time_ms` was sent completely."""
        return key_of(run_id) in self.complete

    def encode(self) -> str:
        """Return the cursor as text, at most :data:`MAX_CURSOR` characters."""
        data = bytearray([_VERSION])
        for number in (max(self.floor_ms, 0), max(self.time_ms, 0), len(self.lines)):
            _put_number(data, number)
        for run_id, line in self.lines.items():
            data += _packed(run_id)
            _put_number(data, line)
        _put_number(data, len(self.complete))
        for key in sorted(self.complete):
            data += key
        data += _CRC.pack(zlib.crc32(data))
        return base64.urlsafe_b64encode(data).decode().rstrip("=")


def key_of(run_id: str) -> bytes:
    """Return the last 8 bytes of a run id: they are random, and enough to distinguish runs."""
    return _packed(run_id)[-_KEY_BYTES:]


def cursor_of(
    floor_ms: int,
    time_ms: int,
    parts: Mapping[str, int],
    ended: Mapping[str, int],
    earlier: frozenset[bytes] = frozenset(),
) -> Cursor:
    """Return the cursor of a merge that fits into :data:`MAX_CURSOR` characters.

    Args:
        floor_ms: time of the oldest lines that the merge may send.
        time_ms: the cursor lists runs that ended at or after this time (ms), as far as there is room for them.
        parts: next line of each run that was sent in part, by run id; at most :data:`MAX_RUNS`.
        ended: end time of each run that was sent completely, by run id.
        earlier: keys of other runs that were sent completely, from the cursor that was resumed.
    """
    room = (_MAX_BYTES - 64 - sum(16 + _size(line) for line in parts.values())) // _KEY_BYTES
    room = max(0, room - len(earlier))
    recent = sorted(((at_ms, run_id) for run_id, at_ms in ended.items() if at_ms >= time_ms), reverse=True)
    if len(recent) > room:
        time_ms = recent[room][0] + 1
        recent = [record for record in recent[:room] if record[0] >= time_ms]
    return Cursor(floor_ms, time_ms, parts, earlier.union(key_of(run_id) for _, run_id in recent))


def decode(text: str) -> Cursor:
    """Parse a cursor.

    Raises:
        BadCursor: the text is not a valid cursor.
    """
    if len(text) > MAX_CURSOR:
        raise BadCursor(f"has more than {MAX_CURSOR} characters")
    try:
        data = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error) as err:
        raise BadCursor("is not a cursor of a stream of logs") from err
    if len(data) <= _CRC.size or data[0] != _VERSION or _CRC.unpack(data[-4:])[0] != zlib.crc32(data[:-4]):
        raise BadCursor("is not a cursor of a stream of logs")
    reader = _CursorReader(data[1:-4])
    floor_ms, time_ms = reader.number(), reader.number()
    lines = {_unpacked(reader.take(16)): reader.number() for _ in range(reader.number())}
    complete = frozenset(reader.take(_KEY_BYTES) for _ in range(reader.number()))
    return Cursor(floor_ms, time_ms, lines, complete)


class _CursorReader:
    """Reads the fields of a cursor one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        part = self._data[self._at : self._at + size]
        if len(part) < size:
            raise BadCursor("ends too early")
        self._at += size
        return part

    def number(self) -> int:
        """Return the next varint: 7 bits a byte, the least significant first."""
        value = shift = 0
        while shift < 63:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise BadCursor("has a number that is too large")


def _put_number(data: bytearray, number: int) -> None:
    number = min(number, _MAX_NUMBER)
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)


def _size(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)


def _packed(run_id: str) -> bytes:
    """Return the 16 bytes of a ULID."""
    return (int(run_id.translate(_DIGITS), 32) & (1 << 128) - 1).to_bytes(16)


def _unpacked(data: bytes) -> str:
    value = int.from_bytes(data)
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))
