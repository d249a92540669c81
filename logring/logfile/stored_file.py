"""A log file as readers see it. It is read with pread and never mapped: truncation under a mapping causes SIGBUS."""

import os

from logring.block import Block
from logring.errors import Corrupt, NewerFormat
from logring.layout import (
    BLOCK_CLOSED,
    ENTRY_SIZE,
    FILE_BLOCKS_AT,
    HEADER_SIZE,
    PUBLICATION_AT,
    PUBLICATION_SIZE,
    BlockHeader,
    Publication,
    State,
    Static,
)


class StoredFile:
    """An open log file."""

    def __init__(self, path: str, fd: int, static: Static) -> None:
        self.path = path
        self.static = static
        self._fd = fd
        self._final: Publication | None = None
        self._last: Block | None = None

    def publication(self) -> Publication:
        """Return the state of the file: the last publication, or that of the intact part if the file is not sealed.

        Raises:
            OSError: it cannot be read.
            Corrupt: there is no valid state.
        """
        if self._final is not None:
            return self._final
        publication = self._state()
        if publication is not None and publication.state.sealed:
            self._final = publication
            return publication
        return self._as_far_as_whole(publication)

    def is_sealed(self) -> bool:
        """Return whether the file is sealed. Only the state is read.

        Raises:
            OSError: it cannot be read.
            Corrupt: there is no valid state.
        """
        publication = self._state()
        return publication is not None and publication.state.sealed

    def _state(self) -> Publication | None:
        """Return the state that was written last; None if there is none yet."""
        pair = os.pread(self._fd, 2 * PUBLICATION_SIZE, PUBLICATION_AT[0])
        publication = Publication.latest(pair.ljust(2 * PUBLICATION_SIZE, b"\0"))
        if publication is None and pair.strip(b"\0"):
            raise Corrupt(f"{self.path}: the state is damaged")
        return publication

    def _as_far_as_whole(self, written: Publication | None) -> Publication:
        """Return the state that the blocks justify: if the host crashed, pages reached the disk in any order."""
        number = -1
        first = self.static.first_line
        publication = written or Publication(0, State((0, first, first, *[0] * 7)), BlockHeader(0, 0, first, *[0] * 13))
        if written is not None:
            number = publication.state.head_block
        while self.header(number + 1) is not None:
            number += 1
        slots, there = self.static.file_blocks, self._slots_there()
        oldest = max(-1, number - slots)
        while number > oldest:
            number -= max(0, number % slots - there + 1)  # skip the truncated part in one step
            if number <= oldest:
                break
            block = self._whole_part(number)
            if block is not None:
                publication.header = block.header
                publication.state.head_block = number
                publication.state.lines = block.header.end_line
                publication.state.first_available = min(publication.state.first_available, publication.state.lines)
                return publication
            number -= 1
        publication.state.lines = publication.state.first_available
        publication.header.lines, publication.header.text_end, publication.header.entries = 0, HEADER_SIZE, 0
        return publication

    def _whole_part(self, number: int) -> Block | None:
        """Return a block, cut before the first entry that contradicts the text; None if nothing is left."""
        block = self._load(number)
        if block is None or block.header.number != number:
            return None
        wrong = None if block.is_intact() else block.contradiction()
        if wrong is None:
            return block
        return block.truncated(wrong[0]) if wrong[0] else None

    def header(self, number: int) -> BlockHeader | None:
        """Return the header of a block; None if its slot holds another block or a damaged header."""
        header = BlockHeader.parse(os.pread(self._fd, HEADER_SIZE, self._slot_at(number)))
        return header if header is not None and header.number == number else None

    def block(self, number: int, *, salvage: bool) -> Block | None:
        """Return a block; None if a later block has replaced it in its slot.

        Args:
            number: block number.
            salvage: return the intact part of a damaged block; only for an unsealed file that has no writer any more.

        Raises:
            OSError: it cannot be read.
            Corrupt: it is damaged.
            NewerFormat: it has a codec that this release does not know.
        """
        last = self._last
        if last is not None and last.header.number == number:
            return last
        block = self._load(number)
        if block is None or block.header.number < number:
            raise Corrupt(f"{self.path}: block {number} is damaged or missing")
        if block.header.number > number:
            return None
        if block.header.codec:
            raise NewerFormat(f"{self.path}: block {number} has codec {block.header.codec}")
        if not block.is_intact():
            part = self._whole_part(number) if salvage and self._final is None else None
            if part is None:
                raise Corrupt(f"{self.path}: block {number} is damaged")
            return part
        if block.header.flags & BLOCK_CLOSED:
            self._last = block
        return block

    def _load(self, number: int) -> Block | None:
        """Return the content of a block's slot, which may be a later block; None if its header is damaged."""
        data = os.pread(self._fd, self.static.block_size, self._slot_at(number))
        header = BlockHeader.parse(data)
        if header is None or len(data) < header.extent:
            return None
        table = data[header.extent - header.entries * ENTRY_SIZE : header.extent]
        return Block(header, data[HEADER_SIZE : header.text_end], table, f"{self.path}: block {header.number}")

    def table(self, header: BlockHeader) -> bytes:
        """Return the entry table of a block. The checksum is not verified, because it also covers the text.

        Raises:
            OSError: it cannot be read.
            Corrupt: the file ends before it.
        """
        size = header.entries * ENTRY_SIZE
        data = os.pread(self._fd, size, self._slot_at(header.number) + header.extent - size)
        if len(data) < size:
            raise Corrupt(f"{self.path}: block {header.number} is cut short")
        return data

    def next_there(self, number: int) -> int:
        """Return the first block from `number` on whose slot is at least partly in the file, which may be truncated."""
        slots = self.static.file_blocks
        slot = number % slots
        return number if slot < self._slots_there() else number - slot + slots

    def _slots_there(self) -> int:
        """Return the number of slots that are at least partly in the file."""
        size = os.fstat(self._fd).st_size - FILE_BLOCKS_AT
        return max(0, min(self.static.file_blocks, -(-size // self.static.block_size)))

    def _slot_at(self, number: int) -> int:
        return FILE_BLOCKS_AT + number % self.static.file_blocks * self.static.block_size

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
