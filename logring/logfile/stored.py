"""A log file as a reader has it. Read with pread, never mapped: a disk file can end under a mapping."""

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
        """Return the state of the file: the last publication, or the intact part if the file was never sealed.

        Raises:
            OSError: it cannot be read.
            Corrupt: there is no valid state.
        """
        if self._final is not None:
            return self._final
        found = self._state()
        if found is not None and found.state.sealed:
            self._final = found
            return found
        return self._as_far_as_whole(found)

    def is_sealed(self) -> bool:
        """Return whether the state says that nothing will be added; it alone is read.

        Raises:
            OSError: it cannot be read.
            Corrupt: there is no valid state.
        """
        found = self._state()
        return found is not None and found.state.sealed

    def _state(self) -> Publication | None:
        """Return the state that was written last; None when there is none yet."""
        pair = os.pread(self._fd, 2 * PUBLICATION_SIZE, PUBLICATION_AT[0])
        found = Publication.latest(pair.ljust(2 * PUBLICATION_SIZE, b"\0"))
        if found is None and pair.strip(b"\0"):
            raise Corrupt(f"{self.path}: the state is damaged")
        return found

    def _as_far_as_whole(self, written: Publication | None) -> Publication:
        """Return the state that the blocks are in: the machine died, and pages reach the disk in any order."""
        number = -1
        first = self.static.first_line
        found = written or Publication(0, State((0, first, first, *[0] * 7)), BlockHeader(0, (0, first, *[0] * 13)))
        if written is not None:
            number = found.state.head_block
        while self.header(number + 1) is not None:
            number += 1
        slots, there = self.static.file_blocks, self._slots_there()
        oldest = max(-1, number - slots)
        while number > oldest:
            number -= max(0, number % slots - there + 1)  # the part that was cut off, in one step
            if number <= oldest:
                break
            block = self._whole_part(number)
            if block is not None:
                found.header = block.header
                found.state.head_block = number
                found.state.lines = block.header.end_line
                found.state.first_available = min(found.state.first_available, found.state.lines)
                return found
            number -= 1
        found.state.lines = found.state.first_available
        found.header.lines, found.header.text_end, found.header.entries = 0, HEADER_SIZE, 0
        return found

    def _whole_part(self, number: int) -> Block | None:
        """Return a block, cut before the first entry that its text contradicts; None when nothing is left."""
        block = self._load(number)
        if block is None or block.header.number != number:
            return None
        wrong = None if block.is_intact() else block.contradiction()
        if wrong is None:
            return block
        return block.cut(wrong[0]) if wrong[0] else None

    def header(self, number: int) -> BlockHeader | None:
        """Header of a block; None when its slot does not hold that block (whole)."""
        header = BlockHeader.parse(os.pread(self._fd, HEADER_SIZE, self._slot_at(number)))
        return header if header is not None and header.number == number else None

    def block(self, number: int, *, salvage: bool) -> Block | None:
        """Return a block; None when its slot holds a later one, which took its place.

        Args:
            number: of the block.
            salvage: read the intact part of a damaged block, if the file is unsealed and has no writer any more.

        Raises:
            OSError: it cannot be read.
            Corrupt: it is damaged.
            NewerFormat: it is stored in a way that this release does not know.
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
        """Return the content of a block's slot; None when that is not an intact block."""
        data = os.pread(self._fd, self.static.block_size, self._slot_at(number))
        header = BlockHeader.parse(data)
        if header is None or len(data) < header.extent:
            return None
        table = data[header.extent - header.entries * ENTRY_SIZE : header.extent]
        return Block(header, data[HEADER_SIZE : header.text_end], table, f"{self.path}: block {header.number}")

    def table(self, header: BlockHeader) -> bytes:
        """Return the entry table of a block, whose checksum covers the text as well, so that it is not looked at.

        Raises:
            OSError: it cannot be read.
            Corrupt: it is not there.
        """
        size = header.entries * ENTRY_SIZE
        found = os.pread(self._fd, size, self._slot_at(header.number) + header.extent - size)
        if len(found) < size:
            raise Corrupt(f"{self.path}: block {header.number} is cut short")
        return found

    def next_there(self, number: int) -> int:
        """Return the first block from `number` on whose slot the file has, at least in part: it may be cut short."""
        slots = self.static.file_blocks
        slot = number % slots
        return number if slot < self._slots_there() else number - slot + slots

    def _slots_there(self) -> int:
        """Return how many slots the file has, at least in part."""
        size = os.fstat(self._fd).st_size - FILE_BLOCKS_AT
        return max(0, min(self.static.file_blocks, -(-size // self.static.block_size)))

    def _slot_at(self, number: int) -> int:
        return FILE_BLOCKS_AT + number % self.static.file_blocks * self.static.block_size

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
