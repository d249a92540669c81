"""A packed log file as readers see it; see `logring.layout`."""

import os
import struct
from typing import NamedTuple
from zlib import crc32

from logring.block import Block
from logring.errors import Corrupt
from logring.layout import (
    CODEC_LOST,
    CODEC_PLAIN,
    CODEC_ZSTD,
    ENTRY_SIZE,
    HEADER_SIZE,
    INDEX_RECORD_AT,
    PACKED_BLOCKS_AT,
    PREFIX,
    BlockHeader,
    Publication,
    Static,
    pack_header,
)
from logring.logfile import zstd
from logring.logfile.stored_file import StoredFile

_RECORD = struct.Struct("<QQQI28x")
_OFFSETS = struct.Struct("<QQ")
_MARK = struct.Struct("<I")
_CHUNK = 1 << 20
_NONE = 1 << 64


class Index(NamedTuple):
    """The index record: position and size of the index."""

    at: int
    first: int
    """Number of the first block."""
    blocks: int
    crc: int

    @property
    def size(self) -> int:
        """Size of the index in bytes."""
        return (self.blocks + 1) * 8

    def pack(self) -> bytes:
        """Return the record encoded in 64 bytes, with its crc."""
        return pack_header(0, _RECORD.pack(*self))

    @classmethod
    def parse(cls, data: bytes) -> "Index | None":
        """Decode 64 bytes; return None if they are not an intact record."""
        data = data[:HEADER_SIZE]
        if len(data) < HEADER_SIZE:
            return None
        seq, crc = PREFIX.unpack_from(data)
        return cls(*_RECORD.unpack_from(data, PREFIX.size)) if crc32(data[PREFIX.size :], seq) == crc else None


class PackedFile(StoredFile):
    """An open log file whose blocks are compressed."""

    def __init__(self, path: str, fd: int, static: Static) -> None:
        super().__init__(path, fd, static)
        self._size = os.fstat(fd).st_size
        self._index = Index.parse(os.pread(fd, HEADER_SIZE, INDEX_RECORD_AT))
        self._index_is_whole = False
        """Whether the whole index was read once and matched its crc."""
        self._offsets: dict[int, int] | None = None
        """Offsets of blocks by number, in ascending order, found by a scan; None unless the index is damaged."""

    def publication(self) -> Publication:
        """Return the state of the log.

        Raises:
            OSError: it cannot be read.
            Corrupt: there is no valid state, or it is not that of a sealed log.
        """
        if self._final is None:
            publication = self._state()
            if publication is None or not publication.state.sealed:
                raise Corrupt(f"{self.path}: the state is damaged")
            self._final = publication
        return self._final

    def header(self, number: int) -> BlockHeader | None:
        """Return the header of a block; None if it is damaged or missing."""
        located = self._find(number)
        return located[1] if located is not None else None

    def _load(self, number: int) -> Block | None:
        located = self._find(number)
        if located is None:
            return None
        at, header = located
        data: bytes | None = None
        length = header.text_end - HEADER_SIZE + header.entries * ENTRY_SIZE
        if header.codec in (CODEC_PLAIN, CODEC_ZSTD):
            if header.stored <= length:
                data = os.pread(self._fd, header.stored, at + HEADER_SIZE)
            if data and header.codec == CODEC_ZSTD:
                data = zstd.unpack(data, length)
            if data is None or len(data) != length:
                return None
            header.codec = header.stored = 0  # as in the unpacked file
        elif header.codec == CODEC_LOST:
            return None
        text_length = header.text_end - HEADER_SIZE
        data = data or b""
        return Block(header, data[:text_length], data[text_length:], f"{self.path}: block {number}")

    def table(self, header: BlockHeader) -> bytes:
        """Return the entry table of a block. It is compressed together with the text, so the block is loaded."""
        block = self._load(header.number)
        if block is None:
            raise Corrupt(f"{self.path}: block {header.number} is damaged or missing")
        return block.table

    def next_there(self, number: int) -> int:
        """Return the first block from `number` on that may exist, or the first of several that are missing."""
        if self._offsets is None and self._check_index() and self._index is not None:
            first, end = self._index.first, self._index.first + self._index.blocks
            return max(number, first) if number < end else _NONE
        offsets = self._scanned()
        if number in offsets or number - 1 in offsets:
            return number
        return next((later for later in offsets if later > number), _NONE)

    # Finding a block

    def _find(self, number: int) -> tuple[int, BlockHeader] | None:
        """Return the offset and header of a block; None if it is damaged or missing."""
        if self._offsets is None:
            located = self._indexed(number)
            if located is not None or self._check_index():
                return located
        at = self._scanned().get(number)
        header = self._header_at(at) if at is not None else None
        return (at, header) if at is not None and header is not None else None

    def _indexed(self, number: int) -> tuple[int, BlockHeader] | None:
        index = self._index
        if index is None or not index.first <= number < index.first + index.blocks or index.at >= self._size:
            return None
        offsets = os.pread(self._fd, _OFFSETS.size, index.at + (number - index.first) * 8)
        if len(offsets) < _OFFSETS.size:
            return None
        start, end = _OFFSETS.unpack(offsets)
        if not PACKED_BLOCKS_AT <= start < end <= index.at:
            return None
        header = self._header_at(start)
        return (start, header) if header is not None and header.number == number else None

    def _check_index(self) -> bool:
        """Return whether the index is intact. If so, blocks that it does not yield are damaged or missing."""
        index = self._index
        if not self._index_is_whole and index is not None and index.at + index.size <= self._size:
            crc = 0
            for at in range(index.at, index.at + index.size, _CHUNK):
                crc = crc32(os.pread(self._fd, min(_CHUNK, index.at + index.size - at), at), crc)
            self._index_is_whole = crc == index.crc
        return self._index_is_whole

    def _header_at(self, at: int) -> BlockHeader | None:
        header = BlockHeader.parse(os.pread(self._fd, HEADER_SIZE, at))
        return header if header is not None and header.extent <= self.static.block_size else None

    def _scanned(self) -> dict[int, int]:
        """Return the offsets of all blocks with an intact header, by number."""
        if self._offsets is None:
            self._offsets = self._scan()
        return self._offsets

    def _scan(self) -> dict[int, int]:
        """Find all blocks by following the headers; after a damaged header, search for the log's mark."""
        offsets: dict[int, int] = {}
        mark = self.static.mark
        at = PACKED_BLOCKS_AT
        last = -1
        while at < self._size:
            header = self._header_at(at)
            if header is not None and header.seq == mark and header.number > last:
                last = header.number
                offsets[last] = at
                at += HEADER_SIZE + header.stored
            else:
                at = self._next(_MARK.pack(mark), at + 1)
        return offsets

    def _next(self, mark: bytes, at: int) -> int:
        """Return the next position from `at` on where a header may begin; the end of the file if there is none."""
        while at < self._size:
            data = os.pread(self._fd, _CHUNK, at)
            offset = data.find(mark)
            if offset >= 0:
                return at + offset
            at += max(1, len(data) - len(mark) + 1)
        return self._size
