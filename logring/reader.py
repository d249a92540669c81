"""Reading a log, in any process, while it is written and afterwards.

While its writer lives, the last blocks of a log are in its ring and the older blocks in its file. After that the whole
log is in its file. The ring is created before the file, and unlinked after the file is sealed. So a reader that looks
for ring, file, ring and file, in this order, finds the log if it exists. A reader that has an unlinked ring mapped
still has its last blocks, so it sees no gap.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from logring.block import Batch, Block, Line, text_size
from logring.errors import Corrupt, LogError
from logring.layout import STDERR, STDOUT, BlockHeader, Publication
from logring.log_paths import frames_path
from logring.logfile.open_log import open_log_file
from logring.logfile.stored_file import StoredFile
from logring.redraw.history_format import read_frames
from logring.ring.live_region import read_region
from logring.ring.ring import RingView, read_pending

_ATTEMPTS = 100

__all__ = ["Batch", "Extent", "Head", "Line", "LiveRegion", "LogReader", "Page", "UnfinishedLine"]


class Head(NamedTuple):
    """A log's progress and totals."""

    lines: int
    """Number of the next line."""
    first_available: int
    """The first line that is still kept."""
    dropped: int
    """Number of lines that were dropped on arrival."""
    sealed: bool
    """Whether the log is complete: nothing will be added."""
    region_epoch: int
    """Changes whenever the live region does."""


Lines = TypeVar("Lines", Line, Batch)


class Page(NamedTuple, Generic[Lines]):
    """Consecutive lines, or batches of them."""

    lines: list[Lines]
    next: int
    """The line to continue with."""
    skipped: int
    """Number of requested lines before the first returned one (or before `next`) that are gone."""
    damage: str = ""
    """Why the skipped lines are unreadable, if they are damaged."""


class UnfinishedLine(NamedTuple):
    """An unfinished line."""

    stream: int
    text: bytes
    """The text of the line. For a stream that draws, its rows, with newlines between them."""
    ts: int
    """When its last bytes arrived, ms since the epoch."""


class LiveRegion(NamedTuple):
    """The rows that one stream currently draws."""

    stream: int
    epoch: int
    """Changes whenever any region of the log does; equals `Head.region_epoch` once both are mirrored."""
    rows: tuple[bytes, ...]
    """The current rows, at least one; the topmost are left out if there is no room for them."""
    ts: int
    """When the last bytes arrived, ms since the epoch."""


class Extent(NamedTuple):
    """One block of a log."""

    line: int
    """Its first line."""
    size: int
    """Number of bytes that it has of the requested streams."""


class LogReader:
    """Reads one log. A missing log counts as empty, and may appear at any time.

    Only `head` checks whether another process ended or replaced the mapped ring, such as a daemon that starts again
    after a crash. A caller that keeps a reader calls `head` before it continues to read.

    Every method raises LogError if the log is damaged, foreign or of a newer format. It raises OSError if a file exists
    but cannot be opened or read.

    Args:
        ring_path: path of the ring, which exists while its writer lives; None to read only a file.
        file_path: path of the log file; None for a log without a file.
    """

    def __init__(self, ring_path: str | None, file_path: str | None) -> None:
        self._ring_path = ring_path
        self._file_path = file_path
        self._ring: RingView | None = None
        self._file: StoredFile | None = None
        self._seq = -1
        self._hint = (-1, -1)  # a line and its block

    @property
    def has_ring(self) -> bool:
        """Whether the last refresh found a ring."""
        return self._ring is not None

    def head(self) -> Head:
        """Return the current progress of the log. Cheap."""
        publication = self._refresh(check=True)
        if publication is None:
            return Head(0, 0, 0, sealed=False, region_epoch=0)
        state = publication.state
        return Head(state.lines, state.first_available, state.dropped, state.sealed, state.region_epoch)

    def resolve(self, anchor: int) -> int:
        """Return the number of a line counted from the start (0 or more) or the end (negative), within kept lines."""
        head = self.head()
        line = anchor if anchor >= 0 else head.lines + anchor
        return max(head.first_available, min(line, head.lines))

    def read(self, start: int, limit: int, max_bytes: int = 1 << 20) -> Page[Line]:
        """Return at most `limit` lines from number `start` on, and `max_bytes` of text unless the first is longer.

        A page ends before a gap; the next one then begins with `skipped` lines.

        Raises:
            Corrupt: `start` cannot be read; the attribute `next` is the line to continue with, always after `start`.
        """
        return self._page(Block.lines, start, limit, max_bytes)

    def read_batches(self, start: int, limit: int, max_bytes: int = 1 << 20) -> Page[Batch]:
        """Return the same lines in batches, which is several times faster if many lines were read together.

        The last batch may exceed `max_bytes`.

        Raises:
            Corrupt: as in :meth:`read`.
        """
        return self._page(Block.batches, start, limit, max_bytes)

    def _page(
        self, lines_of: Callable[[Block, int, int, int], list[Lines]], start: int, limit: int, max_bytes: int
    ) -> Page[Lines]:
        publication = self._refresh()
        lines: list[Lines] = []
        position = start
        if publication is not None and limit > 0:
            end = publication.state.lines
            position = max(start, min(publication.state.first_available, end))
            number = self._find(position, publication) if position < end else -1
            while 0 <= number <= publication.header.number and limit > 0 and max_bytes > 0:
                try:
                    block = self._block(number, publication)
                    page_start = max(position, block.header.first_line) if block else 0
                    block_lines = (
                        lines_of(block, page_start, limit, max_bytes)
                        if block and page_start < block.header.end_line
                        else []
                    )
                except Corrupt as err:
                    if lines:
                        break
                    following = self._behind(number, position, publication)
                    raise Corrupt(str(err), first=position, next_line=following) from err
                if block_lines and lines and (block_lines[0].n != position or len(block_lines[0].text) > max_bytes):
                    break
                if block_lines:
                    lines += block_lines
                    limit -= block_lines[-1].next - block_lines[0].n
                    position = block_lines[-1].next
                    max_bytes -= sum(len(line.text) for line in block_lines)
                    self._hint = position, number
                if block and position < block.header.end_line and block_lines:
                    break
                number += 1
            if not lines and position < end:
                position = end  # no requested line is left
        first = lines[0].n if lines else position
        return Page(lines, position, max(0, first - start))

    def newest(self, start: int, limit: int, max_bytes: int) -> list[Line] | None:
        """Return the lines that :meth:`read` returns if they are exactly the newest entry; None if `read` is needed.

        A follower that is woken for each new line needs only the last entry, neither the block nor its table.
        """
        publication = self._refresh()
        if publication is None or self._ring is None:
            return None
        return self._ring.newest(publication, start, limit, max_bytes)

    def mark(self) -> bytes:
        """Return bytes that change when the ring has something new; empty without a ring. Very cheap."""
        return self._ring.mark() if self._ring is not None else b""

    def last_output(self) -> int | None:
        """Return the time of the last output, in ms since the epoch; None if there is none."""
        lines = self.head().lines
        times = [line.ts for line in self.pending()]
        if lines:
            times += [line.ts for line in self.read(lines - 1, 1).lines]
        return max(times, default=None)

    def pending(self) -> list[UnfinishedLine]:
        """Return the unfinished lines, as last mirrored."""
        publication = self._refresh()
        if self._ring is None:
            return []
        for _ in range(_ATTEMPTS):
            if publication is None or publication.state.sealed:
                return []
            unfinished = []
            for stream in (STDOUT, STDERR):
                pending = read_pending(self._ring.mm, stream, publication.state.bytes[stream])
                if pending is not None and pending[2]:
                    unfinished.append(UnfinishedLine(stream, pending[2], pending[0]))
            seq, publication = publication.seq, self._ring.publication()
            if publication.seq == seq:
                break
        return unfinished

    def region(self) -> list[LiveRegion]:
        """Return the rows that the streams draw, as last mirrored; empty if no stream draws or the log is sealed.

        It is also empty if there is not enough shared memory; `pending` then has the rows, if it has room.
        """
        publication = self._refresh()
        if publication is None or self._ring is None or publication.state.sealed:
            return []
        for _ in range(_ATTEMPTS):
            entries, torn = read_region(self._ring.mm)
            if not torn:
                break
        return [LiveRegion(*entry) for entry in entries]

    def history(self, n: int) -> list[list[bytes]] | None:
        """Return the frames of line `n`, oldest first, each as its rows; None if the line does not exist (any more).

        The list is empty for a line that was not redrawn. It can be empty for a redrawn line: frames are written up to
        a second after their line, their number is limited, and they are dropped if there is no space.
        """
        lines = self.read(n, 1).lines if n >= 0 else []
        if not lines or lines[0].n != n:
            return None
        if not lines[0].frames or self._file_path is None:
            return []
        return read_frames(frames_path(self._file_path), n)

    def raw(self, streams: Sequence[int] = (STDOUT, STDERR)) -> Iterator[bytes]:
        """Yield the stored bytes of these streams in order of arrival, up to the current end.

        Raises:
            LogError: at the damage, after everything before it was yielded.
        """
        for block in self.blocks():
            if isinstance(block, LogError):
                raise block
            yield from block.raw(streams)

    def blocks(self, start: int = 0) -> Iterator[Block | LogError]:
        """Yield the available blocks, up to the current end; for an unreadable block, yield the error instead.

        Args:
            start: a line number; blocks before that line's block are left out.
        """
        publication = self._refresh()
        if publication is None or start >= publication.state.lines > 0:
            return
        number = (self._find(start, publication) if start else self._oldest(publication)) - 1
        while number < publication.header.number:
            number = self._following(number, publication)
            try:
                block = self._block(number, publication)
            except Corrupt as err:
                header = self._header(number, publication)
                if err.next is None and header is not None:
                    err.next = header.end_line
                yield err
                continue
            except LogError as err:
                yield err
                continue
            if block is not None and block.header.end_line > publication.state.first_available:
                if number < publication.header.number:  # the head block grows
                    self._hint = block.header.end_line, number + 1
                yield block

    def extents(self, streams: Sequence[int] = (STDOUT, STDERR), start: int = 0) -> Iterator[Extent | LogError]:
        """Yield the sizes of a log's complete blocks; for an unreadable header, yield the error instead.

        Only headers and the tables of blocks with several entries are read, so a block may still prove damaged later.

        Args:
            streams: the streams whose bytes count.
            start: a line number; blocks before that line's block are left out.
        """
        publication = self._refresh()
        if publication is None or start >= publication.state.lines > 0:
            return
        number = (self._find(start, publication) if start else self._oldest(publication)) - 1
        while number < publication.header.number:
            before, number = number, self._following(number, publication)
            header = self._header(number, publication)
            if header is None or number > before + 1:
                yield Corrupt(f"block {before + 1} is damaged or missing")
            if header is None or header.end_line <= publication.state.first_available:
                continue
            try:
                yield Extent(header.first_line, text_size(header, self._table(header, publication), streams))
            except LogError as err:
                yield err

    def _table(self, header: BlockHeader, publication: Publication) -> bytes:
        """Return the entry table of a block.

        Raises:
            Corrupt: it is gone.
        """
        if not header.entries:
            return b""
        file = self._open_file() if self._ring is None else None
        if file is not None:
            return file.table(header)
        block = self._block(header.number, publication)
        if block is None:
            raise Corrupt(f"block {header.number} is gone")
        return block.table

    def line_at(self, ms: int) -> int:
        """Return the first line read at or after `ms` (since the epoch); the number of the next line if there is none.

        The bisection assumes that times ascend, which they do unless the clock was set back. In that case several
        lines may qualify: each was read at or after `ms`, and the line before it earlier. The result is one of them.
        Lines that are gone are skipped; a damaged block is represented by its first line.
        """
        publication = self._refresh()
        if publication is None:
            return 0
        low, high = self._oldest(publication), publication.header.number
        while low < high:
            middle = (low + high) // 2
            header = self._readable(middle, high, publication)
            if header is None or header.last_ms >= ms:
                high = middle
            else:
                low = max(middle, header.number) + 1
        line = publication.state.lines
        header = self._readable(low, publication.header.number, publication)
        if header is not None and header.lines and header.last_ms >= ms:
            line = header.first_line
            with suppress(LogError):
                block = self._block(header.number, publication)
                line = block.line_at(ms) if block is not None else line
        return max(publication.state.first_available, min(line, publication.state.lines))

    def close(self) -> None:
        """Close the ring and the file. A later read opens them again."""
        if self._ring is not None:
            self._ring.close()
            self._ring = None
        if self._file is not None:
            self._file.close()
            self._file = None
        self._hint = (-1, -1)

    # Finding the log

    def _refresh(self, *, check: bool = False) -> Publication | None:
        """Return the current state; None if there is no log yet. With `check`, verify that the ring is not replaced."""
        ring = self._ring
        if ring is not None:
            now = ring.publication()
            if not check or now.seq != self._seq or now.state.sealed or ring.is_current():
                self._seq = now.seq
                return now
            # Another process ended or replaced the log, so the known state may be out of date.
            self.close()
        publication: Publication | None = None
        for _ in range(2):
            self._ring = RingView.open(self._ring_path) if self._ring_path is not None else None
            if self._ring is not None:
                publication = self._ring.publication()
                self._seq = publication.seq
                return publication
            file = self._open_file()
            if file is not None:
                publication = file.publication()
                if publication.state.sealed:
                    break
        return publication

    def _open_file(self) -> StoredFile | None:
        if self._file is None and self._file_path is not None:
            self._file = open_log_file(self._file_path)
        return self._file

    def _usable_file(self) -> StoredFile | None:
        """Return the log file; None if it does not exist or is damaged."""
        try:
            return self._open_file()
        except LogError:
            return None

    # Finding and loading blocks

    def _oldest(self, publication: Publication) -> int:
        """Return a block number below which nothing can be available."""
        block_count = 0
        try:
            file = self._open_file()
            block_count = file.static.file_blocks if file is not None else 0
        except LogError:
            if self._ring is None:
                raise
            block_count = self._ring.static.file_blocks
        if self._ring is not None:
            block_count += publication.state.blocks
        return max(0, publication.header.number - block_count + 1)

    def _following(self, number: int, publication: Publication) -> int:
        """Return the next block number, skipping blocks that cannot exist because the file is truncated."""
        number += 1
        newest = publication.header.number
        in_ring = newest if self._ring is None else newest - publication.state.blocks + 1
        if number < in_ring:
            file = self._usable_file()
            return min(in_ring, file.next_there(number)) if file is not None else in_ring
        return number

    def _header(self, number: int, publication: Publication) -> BlockHeader | None:
        """Return the header of a block; None if it is gone or damaged."""
        if number == publication.header.number:
            return publication.header
        ring = self._ring
        if ring is not None and number > publication.header.number - publication.state.blocks:
            header = ring.header(number, publication)
            if header is not None:  # its number is right, and closed headers do not change
                return header
        file = self._usable_file()
        header = file.header(number) if file is not None else None
        return header if header is not None and header.end_line <= publication.header.first_line else None

    def _block(self, number: int, publication: Publication) -> Block | None:
        """Return a block; None if it is gone.

        Raises:
            Corrupt: it is damaged.
        """
        ring = self._ring
        if ring is not None and number > publication.header.number - publication.state.blocks:
            header = ring.header(number, publication)
            text, table = ring.block_bytes(header, publication.state.blocks) if header else (b"", b"")
            now = ring.publication()
            if now.header.number < number + now.state.blocks:  # the slot was not reused meanwhile
                if header is None:
                    raise Corrupt(f"{ring.path}: block {number} is damaged")
                return Block(header, text, table, f"{ring.path}: block {number}")
        try:
            file = self._open_file()
        except LogError as err:  # the ring is readable all the same
            raise Corrupt(str(err)) from err
        if file is None:
            return None
        try:
            block = file.block(number, salvage=ring is None)
        except Corrupt:
            if ring is not None and number + ring.static.file_blocks <= ring.publication().header.number:
                return None  # being overwritten
            raise
        head = publication.header
        if block is not None and number < head.number and block.header.end_line > head.first_line:
            raise Corrupt(f"{block.where} says nonsense")
        return block

    def _find(self, line: int, publication: Publication) -> int:
        """Return the number of the block with `line`, or of the next available block if the line is gone."""
        head = publication.header
        if line >= head.first_line:
            return head.number
        if line == self._hint[0]:
            return self._hint[1]
        # Bisection. `_readable` skips blocks that are gone or damaged by moving up; None means there is none up to
        # `high`, so the search continues below `middle`.
        low, high = self._oldest(publication), head.number - 1
        while low < high:
            middle = (low + high + 1) // 2
            header = self._readable(middle, high, publication)
            if header is None or header.first_line > line:
                high = middle - 1
            else:
                low = max(middle, header.number)
        return low

    def _readable(self, number: int, high: int, publication: Publication) -> BlockHeader | None:
        """Return the first readable header of the blocks `number` to `high`; None if there is none."""
        while number <= high:
            header = self._header(number, publication)
            if header is not None:
                return header
            number = self._following(number, publication)
        return None

    def _behind(self, number: int, line: int, publication: Publication) -> int:
        """Return the first line after `line` in the first intact block after block `number`."""
        while number < publication.header.number:
            number = self._following(number, publication)
            try:
                block = self._block(number, publication)
            except LogError:
                continue
            if block is not None and block.header.end_line > line + 1:
                return min(max(block.header.first_line, line + 1), publication.state.lines)
        return publication.state.lines
