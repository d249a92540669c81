"""Compression of sealed log files into the packed form of `logring.layout`."""

import os
from array import array
from collections.abc import Iterator
from contextlib import suppress
from sys import byteorder
from typing import BinaryIO
from zlib import crc32

from logring.block import Block
from logring.errors import Corrupt
from logring.layout import (
    BLOCK_CHECKED,
    CODEC_LOST,
    CODEC_PLAIN,
    CODEC_ZSTD,
    INDEX_RECORD_AT,
    KIND_FILE,
    KIND_PACKED,
    PACKED_BLOCKS_AT,
    PAGE,
    PUBLICATION_AT,
    BlockHeader,
    Publication,
)
from logring.logfile import zstd
from logring.logfile.file_owner import share_file
from logring.logfile.open_log import open_log_file
from logring.logfile.packed_file import Index
from logring.logfile.stored_file import StoredFile

LEVEL = 3
"""Higher levels save another 10 % and take four times as long."""
SUFFIX = ".new"
"""Suffix of the temporary file that replaces the log file."""

Packed = tuple[BlockHeader, bytes]


def compress(path: str, level: int = LEVEL) -> bool:
    """Replace a sealed log file by its packed form, under the same path, if that saves at least one page of disk.

    The new file keeps the modification time of the old one. A reader that has the old file open continues to read it.
    Damaged parts stay damaged and every other line stays readable. Only one process at a time may compress a file. If
    the process dies, it leaves the old file or the new one, and perhaps a second file with the suffix ``.new``.

    Returns:
        Whether the file was rewritten; also False if it is gone, was replaced, or is already packed.

    Raises:
        OSError: the file cannot be read, or the new one cannot be written; the old one is unchanged.
        LogError: the file is not a sealed log file, or its first page is damaged.
    """
    try:
        before = os.stat(path)
        source = open_log_file(path)
    except FileNotFoundError:
        return False
    if source is None:
        return False
    temporary = path + SUFFIX
    try:
        if source.static.kind != KIND_FILE:
            return False
        if not source.is_sealed():
            raise Corrupt(f"{path} is not sealed")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb", buffering=1 << 20) as file:
            size = _write(source, file, level)
            if _pages(size) >= _pages(before.st_size):
                return False
            file.flush()
            share_file(file.fileno(), temporary)
            os.utime(file.fileno(), ns=(before.st_atime_ns, before.st_mtime_ns))
            os.fsync(file.fileno())
        return _replace(path, before, temporary)
    finally:
        source.close()
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _pages(size: int) -> int:
    return -(-size // PAGE)


def _replace(path: str, before: os.stat_result, temporary: str) -> bool:
    """Replace the old file, unless it was removed or replaced meanwhile: a removed log must not reappear."""
    try:
        now = os.stat(path)
    except FileNotFoundError:
        return False
    if (now.st_dev, now.st_ino, now.st_mtime_ns) != (before.st_dev, before.st_ino, before.st_mtime_ns):
        return False
    os.rename(temporary, path)
    return True


def _write(source: StoredFile, file: BinaryIO, level: int) -> int:
    """Write the packed file; return its size in bytes."""
    publication = source.publication()
    static, head = source.static._replace(kind=KIND_PACKED), publication.header.number
    first = max(0, head - static.file_blocks + 1)
    offsets = array("Q")
    file.write(bytes(PACKED_BLOCKS_AT))
    at = PACKED_BLOCKS_AT
    for packed in _packed(source, first, head, level):
        offsets.append(at)
        if packed is not None:
            header, data = packed
            header.seq = static.mark
            file.write(header.pack())
            file.write(data)
            at = file.tell()
    offsets.append(at)
    if byteorder == "big":
        offsets.byteswap()
    index = offsets.tobytes()
    file.write(index)
    size = file.tell()
    file.seek(0)
    file.write(static.pack())
    for seq in (publication.seq, publication.seq - 1):
        file.seek(PUBLICATION_AT[seq & 1])
        file.write(Publication(seq & 0xFFFFFFFF, publication.state, publication.header).pack())
    file.seek(INDEX_RECORD_AT)
    file.write(Index(at, first, len(offsets) - 1, crc32(index)).pack())
    return size


def _packed(source: StoredFile, first: int, head: int, level: int) -> Iterator[Packed | None]:
    """Yield the header and stored bytes of each block; None for a block with a damaged header."""
    for number in range(first, head + 1):
        try:
            block = source.block(number, salvage=False)
        except Corrupt:
            header = source.header(number)
            if header is None:
                yield None
            else:
                header.codec, header.stored = CODEC_LOST, 0
                yield header, b""
            continue
        yield None if block is None else _pack(block, level)


def _pack(block: Block, level: int) -> Packed:
    header = block.header
    data = block.text + block.table
    packed = zstd.pack(data, level)
    header.flags |= BLOCK_CHECKED
    header.checksum = crc32(data)
    header.codec = CODEC_ZSTD
    if len(packed) >= len(data):
        header.codec, packed = CODEC_PLAIN, data
    header.stored = len(packed)
    return header, packed
