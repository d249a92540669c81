r"""The format of a log file's sidecar, which holds the frames of its redrawn lines. Version 1.

The sidecar is created beside the log file (`logring.log_paths.frames_path`) when a line of the log is first redrawn.
Its size is limited to a fraction of the log's: block b occupies slot b mod N, so new frames overwrite the oldest. The
frames of any line may be missing: it settled within the last second, frames came too fast, or the disk was full.

All integers are little-endian::

    file    0        4 KiB
            | header | block slot 0 | ... | block slot N-1 |

    header  magic 8s | version u16 | 0 u16 | block size u32 | blocks u32 | run id 32s | zero to 60 | crc u32
    block   number u64 | first line u64 | 0 u32 | crc u32 (of the 20 bytes before) | records
    record  crc u32 (of the rest, started with the block's number) | bytes of the frames u32 | line u64 | frames
    frame   number of rows u32, then each row: length u32 | bytes

Line numbers ascend. An incomplete record ends its block; the bytes after it remain from an older block.
"""

import os
import struct
from zlib import crc32

from logring.errors import Corrupt, ForeignFile, NewerFormat

MAGIC = b"RINGWFRM"
VERSION = 1
HEADER_SIZE = 64
BLOCKS_AT = 4096
BLOCK_SIZE = 32768
BLOCK_HEADER_SIZE = 24
RECORD_HEAD_SIZE = 16

_HEADER = struct.Struct("<8sHHII32s")
_CRC = struct.Struct("<I")
_BLOCK = struct.Struct("<QQI")
_RECORD = struct.Struct("<IQ")
_COUNT = struct.Struct("<I")

_MAX_BLOCKS = 512
_MAX_BLOCK_SIZE = 1 << 20
_SHARE = 8

Frames = tuple[tuple[bytes, ...], ...]
"""Frames of one line, oldest first, each as its rows."""


def blocks_beside(log_bytes: int) -> int:
    """Return the number of blocks in the sidecar: an eighth of the log's capacity, from 64 KiB to 16 MiB."""
    return max(2, min(_MAX_BLOCKS, log_bytes // _SHARE // BLOCK_SIZE))


def pack_header(run_id: bytes, blocks: int) -> bytes:
    """Return the 64-byte header of a sidecar."""
    head = _HEADER.pack(MAGIC, VERSION, 0, BLOCK_SIZE, blocks, run_id).ljust(HEADER_SIZE - _CRC.size, b"\0")
    return head + _CRC.pack(crc32(head))


def parse_header(data: bytes, path: str) -> tuple[bytes, int, int]:
    """Decode 64 bytes to (run id, block size, blocks).

    Raises:
        ForeignFile: no magic.
        NewerFormat: the version is newer than this release.
        Corrupt: damaged.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise ForeignFile(f"{path} is not a file of frames")
    _, version, _, block_size, blocks, run_id = _HEADER.unpack_from(data)
    if version > VERSION:
        raise NewerFormat(f"{path} has format {version}, this release knows {VERSION}")
    end = HEADER_SIZE - _CRC.size
    sound = _CRC.unpack_from(data, end)[0] == crc32(data[:end])
    if not sound or not BLOCK_HEADER_SIZE <= block_size <= _MAX_BLOCK_SIZE or not 0 < blocks <= _MAX_BLOCKS:
        raise Corrupt(f"{path}: the header is damaged")
    return run_id.rstrip(b"\0"), block_size, blocks


def pack_block(number: int, first_line: int) -> bytes:
    """Return the header of a block."""
    head = _BLOCK.pack(number, first_line, 0)
    return head + _CRC.pack(crc32(head))


def parse_block(data: bytes) -> tuple[int, int] | None:
    """Decode the start of a block to (number, first line); return None if the header is not intact."""
    if len(data) < BLOCK_HEADER_SIZE or _CRC.unpack_from(data, _BLOCK.size)[0] != crc32(data[: _BLOCK.size]):
        return None
    number, first_line, _ = _BLOCK.unpack_from(data)
    return number, first_line


def pack_record(block: int, line: int, frames: Frames) -> bytes:
    """Return the record with the frames of `line`, for block number `block`."""
    parts = []
    for rows in frames:
        parts.append(_COUNT.pack(len(rows)))
        for row in rows:
            parts += [_COUNT.pack(len(row)), row]
    body = b"".join(parts)
    body = _RECORD.pack(len(body), line) + body
    return _CRC.pack(crc32(body, block & 0xFFFFFFFF)) + body


def _record_in(block: bytes, line: int) -> list[list[bytes]]:
    """Return the frames of a line from a block's bytes; empty if the block lacks them."""
    parsed = parse_block(block)
    if parsed is None:
        return []
    seed = parsed[0] & 0xFFFFFFFF
    at = BLOCK_HEADER_SIZE
    while at + RECORD_HEAD_SIZE <= len(block):
        crc = _CRC.unpack_from(block, at)[0]
        size, number = _RECORD.unpack_from(block, at + _CRC.size)
        end = at + RECORD_HEAD_SIZE + size
        if end > len(block) or crc32(block[at + _CRC.size : end], seed) != crc:
            break
        if number == line:
            try:
                return _unpack(block[at + RECORD_HEAD_SIZE : end])
            except struct.error:  # the crc proves that a record is intact, not that its numbers are valid
                return []
        at = end
    return []


def _unpack(data: bytes) -> list[list[bytes]]:
    frames: list[list[bytes]] = []
    at = 0
    while at < len(data):
        (count,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        rows: list[bytes] = []
        for _ in range(count):
            (length,) = _COUNT.unpack_from(data, at)
            at += _COUNT.size
            rows.append(data[at : at + length])
            at += length
        frames.append(rows)
    return frames if at == len(data) else []


def read_frames(path: str, line: int) -> list[list[bytes]]:
    """Return the frames of a line, oldest first, each as its rows; empty if there are none (any more).

    Damaged blocks and records count as missing.

    Raises:
        OSError: the file exists and cannot be read.
        LogError: it is not a sidecar, or its header is damaged.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return []
    try:
        header = os.pread(fd, HEADER_SIZE, 0)
        if len(header) < HEADER_SIZE:
            return []  # it is being created, or the disk was full
        _, block_size, blocks = parse_header(header, path)
        newest = -1
        at = -1
        for slot in range(blocks):
            parsed = parse_block(os.pread(fd, BLOCK_HEADER_SIZE, BLOCKS_AT + slot * block_size))
            if parsed is not None and newest < parsed[1] <= line:
                newest, at = parsed[1], BLOCKS_AT + slot * block_size
        return _record_in(os.pread(fd, block_size, at), line) if at >= 0 else []
    finally:
        os.close(fd)
