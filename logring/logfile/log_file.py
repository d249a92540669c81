"""The writing end of a log file: it copies closed blocks from the ring to the disk. Only pwrite touches the disk.

Every call can block as long as the disk does, so it runs in the file thread. After an error, such as a full disk, the
same call can be repeated.
"""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from zlib import crc32

from logring.errors import Corrupt
from logring.layout import (
    BLOCK_CHECKED,
    ENTRY_SIZE,
    FILE_BLOCKS_AT,
    HEADER_SIZE,
    KIND_FILE,
    PAGE,
    PUBLICATION_AT,
    STATIC_SIZE,
    BlockHeader,
    Publication,
    Static,
)
from logring.logfile.file_owner import make_directories, share_file
from logring.logfile.replaced_file import has_name, made_again
from logring.ring.ring import read_publication
from logring.ring.writer import RingWriter

_ZEROS = bytes(65536)


class LogFileWriter:
    """Writes the log file of a ring that this process writes.

    Args:
        path: path of the file; the first write creates it and its directories.
        ring: the ring's writer, which another thread uses.
        file_blocks: number of block slots in the file; further blocks replace the oldest ones (drop_old).

    Attributes:
        may_grow: if False, blocks that would enlarge the file fail with ENOSPC, except in `finish`.
        lost: number of lines that `cut` has left out.
        made_again: whether the file was removed or moved away, and was recreated with its whole content.
    """

    def __init__(self, path: str, writer: RingWriter, file_blocks: int) -> None:
        self.path = path
        self._writer = writer
        self._blocks = file_blocks
        self._fd = -1
        self._seq = 0
        self._seen_seq = -1
        self._last_written = (-1, 0)  # number and extent
        self._part = (-1, 0)  # number and end of the text of the unfinished block that was written last
        self.may_grow = True
        self.made_again = False
        self.lost = 0

    @property
    def progress(self) -> tuple[int, tuple[int, int], tuple[int, int]]:
        """Position of the last write, for the writer that continues the file."""
        return self._seen_seq, self._last_written, self._part

    @progress.setter
    def progress(self, done: tuple[int, tuple[int, int], tuple[int, int]]) -> None:
        self._seen_seq, self._last_written, self._part = done

    def write_closed(self) -> int:
        """Write all closed blocks that the file does not have yet.

        Returns:
            The number of blocks written; their ring slots can be reused.

        Raises:
            OSError: at the first block that could not be written.
        """
        blocks = self._writer.blocks
        count = 0
        headers: list[BlockHeader] = []
        try:
            while blocks.written_blocks < blocks.closed_blocks:
                batch = self._next_batch()
                last = blocks.sealed and batch[-1].number == blocks.closed_blocks - 1
                self._write_blocks(batch, self._packed_extent(batch[-1]) if last else blocks.block_size)
                headers = batch
                blocks.written_blocks += len(batch)
                count += len(batch)
        finally:
            if headers:
                self._write_state(headers[-1], sealed=False)
        return count

    def _next_batch(self) -> list[BlockHeader]:
        """Return the headers of the next blocks to write: blocks adjacent in ring and file, at most half the ring.

        The limit makes slots available again while the pump still has free ones.
        """
        blocks = self._writer.blocks
        number, slots = blocks.written_blocks, blocks.ring.slots
        end = min(
            blocks.closed_blocks,
            number + max(1, slots // 2),
            number + slots - number % slots,
            number + self._blocks - number % self._blocks,
        )
        return [self._closed_header(each) for each in range(number, end)]

    def write_unfinished(self) -> None:
        """Write the published part of the head block, if it changed since the last call.

        Raises:
            OSError: it could not be written.
        """
        blocks = self._writer.blocks
        if not blocks.created:
            return
        self.write_closed()
        publication = read_publication(blocks.ring.mm, blocks.path)
        header = publication.header
        if publication.seq == self._seen_seq or not header.lines or header.number < blocks.closed_blocks:
            return
        self._write_part(header)
        self._write_state(header, sealed=False)
        self._seen_seq = publication.seq

    def finish(self) -> None:
        """Write everything, seal the file and unlink the ring. Call this after the ring's `seal`.

        From now on the ring's writer belongs to the calling thread. After an error, call this again.

        Raises:
            OSError: something could not be written.
            ValueError: the ring's `seal` was not called.
        """
        blocks = self._writer.blocks
        self.may_grow = True
        while not self._writer.complete_waiting() or not blocks.sealed:
            if not blocks.created:
                raise OSError(blocks.place_errno, blocks.place_error)
            if not self.write_closed():
                raise ValueError("the ring must not be sealed")
        if not blocks.created:
            return
        self.write_closed()
        header = self._closed_header(blocks.closed_blocks - 1)
        extent = self._packed_extent(header)
        if self._last_written != (header.number, extent):
            self._write_blocks([header], extent)
        self._keep_name()
        header.extent = extent
        if header.number < self._blocks:  # otherwise another block is the last one in the file
            os.ftruncate(self._fd, self._slot_at(header.number) + extent)
        self._write_state(header, sealed=True)
        self._writer.complete_waiting()  # publish a changed first_available to readers that still have the ring mapped
        with suppress(FileNotFoundError):
            os.unlink(blocks.path)
        self.close()

    def cut(self, reason: str) -> None:
        """Seal the file without the blocks that do not fit, and unlink the ring. Call this after EFBIG from `finish`.

        A file that cannot hold any block is removed.

        Raises:
            OSError: the file could not be read or sealed; call this again.
        """
        blocks = self._writer.blocks
        blocks.shortage = reason  # drops what waits for a free slot
        self._writer.complete_waiting()
        try:
            while blocks.written_blocks < blocks.closed_blocks:
                self._write_blocks([self._closed_header(blocks.written_blocks)], blocks.block_size)
                blocks.written_blocks += 1
        except OSError as err:
            if err.errno != errno.EFBIG:
                raise
        unwritten = [self._closed_header(number) for number in range(blocks.written_blocks, blocks.closed_blocks)]
        self.lost = sum(header.lines for header in unwritten) if blocks.created else blocks.dropped
        if blocks.written_blocks:
            last = blocks.written_blocks - 1
            self._open(last)
            header = BlockHeader.parse(os.pread(self._fd, HEADER_SIZE, self._slot_at(last)))
            if header is None:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            os.ftruncate(self._fd, self._slot_at(last) + header.extent)
            self._write_state(header, sealed=True)
        for path in (blocks.path,) if blocks.written_blocks else (self.path, blocks.path):
            with suppress(FileNotFoundError):
                os.unlink(path)
        self.close()

    def close(self) -> None:
        """Close the file without sealing it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _closed_header(self, number: int) -> BlockHeader:
        """Return the header of a closed block that is still in the ring.

        Raises:
            Corrupt: it is damaged; only a previous writer can have damaged it.
        """
        ring = self._writer.blocks.ring
        at = ring.slot_at(number)
        header = BlockHeader.parse(ring.mm[at : at + HEADER_SIZE])
        if header is None or header.number != number or header.extent != ring.block_size:
            raise Corrupt(f"{ring.path}: block {number} is damaged")
        return header

    def _write_blocks(self, headers: list[BlockHeader], last_extent: int) -> None:
        """Write adjacent blocks with checksums; the last block is packed into `last_extent` bytes.

        The checksums, flags and extents in `headers` are updated.
        """
        self._open(headers[-1].number)
        ring = self._writer.blocks.ring
        size = ring.block_size
        parts: list[bytes | memoryview] = []
        views = []
        with memoryview(ring.mm) as whole:
            try:
                for header in headers:
                    self._make_way(header)
                    at = ring.slot_at(header.number)
                    table = header.entries * ENTRY_SIZE
                    # The pages between text and table may not be allocated yet, so they are not touched.
                    text = whole[at + HEADER_SIZE : at + header.text_end]
                    entries = whole[at + size - table : at + size]
                    views += [text, entries]
                    header.checksum = crc32(entries, crc32(text))
                    header.flags |= BLOCK_CHECKED
                    header.extent = size if header is not headers[-1] else last_extent
                    gap = header.extent - header.text_end - table
                    parts += [header.pack(), text, _ZEROS[:gap] if gap <= len(_ZEROS) else bytes(gap), entries]
                _write_all(self._fd, parts, self._slot_at(headers[0].number))
            finally:
                for view in views:
                    view.release()
        self._last_written = headers[-1].number, last_extent

    def _write_part(self, header: BlockHeader) -> None:
        """Write the new part of the head block: the text, the table, then the header that refers to them."""
        self._open(header.number)
        ring = self._writer.blocks.ring
        at, to = ring.slot_at(header.number), self._slot_at(header.number)
        number, done = self._part
        if number != header.number:
            self._make_way(header)
            done = HEADER_SIZE
            if os.fstat(self._fd).st_size < to + ring.block_size:
                os.ftruncate(self._fd, to + ring.block_size)
        text = ring.mm[at + HEADER_SIZE : at + header.text_end]
        entries = ring.mm[at + ring.block_size - header.entries * ENTRY_SIZE : at + ring.block_size]
        header.checksum = crc32(entries, crc32(text))
        header.flags |= BLOCK_CHECKED
        _write_all(self._fd, [text[done - HEADER_SIZE :]], to + done)
        if entries:
            _write_all(self._fd, [entries], to + ring.block_size - len(entries))
        _write_all(self._fd, [header.pack()], to)
        self._part = header.number, header.text_end
        self._last_written = header.number, 0

    def _make_way(self, header: BlockHeader) -> None:
        """Advance `first_available` before the slot of an old block is overwritten: the block's lines are gone."""
        keep = header.number - self._blocks + 1
        if keep <= 0:
            return
        blocks = self._writer.blocks
        if keep == header.number:
            first = header.first_line
        elif keep >= blocks.written_blocks:
            first = self._closed_header(keep).first_line
        else:
            kept_block = BlockHeader.parse(os.pread(self._fd, HEADER_SIZE, self._slot_at(keep)))
            if kept_block is None or kept_block.number != keep:
                return  # damaged on the disk; readers detect that themselves
            first = kept_block.first_line
        blocks.first_available = max(blocks.first_available, first)

    def _packed_extent(self, header: BlockHeader) -> int:
        """Return the smallest multiple of a page that holds the block, in bytes."""
        return -(-(header.text_end + header.entries * ENTRY_SIZE) // PAGE) * PAGE

    def _slot_at(self, number: int) -> int:
        return FILE_BLOCKS_AT + number % self._blocks * self._writer.blocks.block_size

    def _open(self, number: int) -> None:
        """Open or create the file, with its static part, before block `number` is written.

        Raises:
            OSError: the file cannot be opened; ENOSPC also if it would grow while `may_grow` is False.
        """
        if not self.may_grow and self._last_written[0] < number < self._blocks:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        if self._fd >= 0:
            self._keep_name()
            return
        ring = self._writer.blocks.ring
        make_directories(os.path.dirname(self.path))
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        source = ring.static
        static = Static(
            kind=KIND_FILE,
            block_size=source.block_size,
            ring_blocks=source.ring_blocks,
            file_blocks=self._blocks,
            writer_pid=source.writer_pid,
            first_line=source.first_line,
            created_ms=source.created_ms,
            run_id=source.run_id,
            boot_id=source.boot_id,
        ).pack()
        try:
            if os.pread(fd, STATIC_SIZE, 0) != static:
                share_file(fd, self.path)
                os.ftruncate(fd, 0)
                _write_all(fd, [static.ljust(PAGE, b"\0")], 0)
            else:
                publication = Publication.latest(os.pread(fd, PAGE, 0).ljust(PAGE, b"\0")[PUBLICATION_AT[0] :])
                self._seq = publication.seq if publication else 0
        except BaseException:  # no other code would close the descriptor
            os.close(fd)
            raise
        self._fd = fd

    def _keep_name(self) -> None:
        """Recreate the file if it was removed or moved away.

        Raises:
            OSError: it cannot be created.
        """
        if self._fd >= 0 and not has_name(self._fd, self.path):
            self._fd = made_again(self._fd, self.path)
            self.made_again = True

    def _write_state(self, header: BlockHeader, *, sealed: bool) -> None:
        """Write the state with this block, which is already in the file, as the head block."""
        blocks = self._writer.blocks
        state = read_publication(blocks.ring.mm, blocks.path).state
        state.head_block = header.number
        state.lines = blocks.lines if sealed else header.end_line
        # After a gap, no block that follows the overwritten one may have been written yet.
        state.first_available = min(blocks.first_available, state.lines)
        state.flags = state.flags if sealed else 0
        state.dropped += self.lost
        self._seq = (self._seq + 1) & 0xFFFFFFFF
        _write_all(self._fd, [Publication(self._seq, state, header).pack()], PUBLICATION_AT[self._seq & 1])


def pwritev(fd: int, parts: Sequence[bytes | memoryview], at: int) -> int:
    """Write to the file. All writes go through here, so a test can simulate a full disk."""
    return os.pwritev(fd, parts, at)


def _write_all(fd: int, parts: Sequence[bytes | memoryview], at: int) -> None:
    """Write everything, in several calls if needed: a disk that is nearly full first shortens a write."""
    total = sum(len(part) for part in parts)
    done = pwritev(fd, parts, at)
    while done < total:
        done += pwritev(fd, [b"".join(parts)[done:]], at + done)
