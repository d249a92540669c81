r"""The format of rings and log files, version 1.

All integers are little-endian and aligned. A ring and a log file share the first 4 KiB and the blocks::

    ring   0        4 KiB       20 KiB      36 KiB   64 KiB
           | page   | pending   | pending   | region | block slot 0 | ... | block slot N-1 |
           | 4 KiB  | stdout    | stderr    | 28 KiB | block size   |     |                |
                      16 KiB      16 KiB
    file   0        4 KiB
           | page   | block slot 0 | ... | block slot M-1 |
    packed 0        1 KiB
           | page   | block | block | ... | block | index |       a sealed file, rewritten: see below

Block b stands in ring slot b mod N and in file slot b mod M. The page::

       0  static part, 256 B   written once; crc32 of its first 252 bytes in the last 4
     256  publication A, 128 B \  written alternately (sequence number mod 2): a writer that dies while it writes
     384  publication B, 128 B /  one leaves the other intact; the valid copy with the higher number counts
     512  pending stdout A, B, 2 x 64 B  \  alternately, like publications; zero in a file
     640  pending stderr A, B, 2 x 64 B  /
     768  region A, B, 2 x 64 B             alternately; zero in a file
     896  zero, reserved (to 4096)

    static        magic 8s | version u16 | kind u16 (1 ring, 2 file, 3 packed) | block size u32 | ring blocks u32 |
                  file blocks u32 (0: no file) | writer pid u32 | 0 u32 | first line u64 | created ms i64 |
                  run id 32s | boot id 16s | zero to 252 | crc u32
    publication   state 64 B | header of the head block 64 B (its own crc is 0 here)
    state         seq u32 | crc u32 (of the other 120 bytes, started with seq) | head block u64 | lines u64 |
                  first available line u64 | dropped lines u64 | stdout bytes u64 | stderr bytes u64 |
                  ring blocks in use u16 | flags u8 | policy u8 | region epoch u32
    pending       seq u32 | crc u32 (of the other 56 bytes, started with seq) | base u64 | time ms i64 |
                  length u32 | crc of the text u32 | entry flags u32 | zero to 64
    region        seq u32 | crc u32 (of the other 56 bytes, started with seq) | crc of the text u32 |
                  bytes of stdout u16 | rows u16 | bytes of stderr u16 | rows u16 | time ms of stdout i64 |
                  of stderr i64 | zero to 64
    block         header 64 B | text -> ... free ... <- closed entries, 16 B each, from the block's end downwards
    block header  seq u32 | crc u32 (of the other 56 bytes, started with seq) | number u64 | first line u64 |
                  lines u32 | end of text u32 | closed entries u16 | frames of the last entry u16 | extent u32 |
                  base time ms i64 |
                  last entry: time delta u32, stream u8, flags u8 | codec u8 | block flags u8 |
                  checksum u32 | stored length u32
    entry         end of text u32 | lines so far u32 | time delta ms u32 | stream u8 | flags u8 | frames u16

*lines* of the state is the number of the next line, counted from the log's first line. Offsets within a block count
from its start; blocks are smaller than 1 MiB. *extent* is the number of bytes that a block occupies in its slot. It is
the block size; for the last block of a sealed file, it is the smallest multiple of 4 KiB that holds the block. The
*checksum* is valid with BLOCK_CHECKED. It covers the text, then the stored entries. *Codec* and *stored length* are 0
in rings and files.

An entry covers lines of one read of one stream. CONTINUED means that its first line continues the stream's previous
line. NO_NEWLINE means that its last line has no newline in the text. FRAMES means that its only line was drawn
repeatedly, and *frames* counts the pictures kept in the sidecar (`logring.redraw.history_format`). The last entry of a
block is in the header, where it can grow; its end and line count equal the block's. Dropped lines consume numbers: the
first line of the next block is then greater than first line plus lines of this block.

*base* of a pending text is the number of bytes that its stream had in blocks when it was mirrored. Once that number in
the state differs, the text has entered a block and the mirror is obsolete. With FRAMES, the text is the picture that
the stream draws: rows, with newlines between them.

A region is the text that the streams draw at this moment: the rows of stdout and then the rows of stderr, with newlines
between the rows of each. Copy A has its text in the first half of the slot, copy B in the second, so no write touches
the text of the newer copy. The region epoch of the state is its seq. A stream without rows draws nothing.

A packed file has the content of the sealed file in less space. Its blocks, from the oldest kept block to the head, are
adjacent, without free space. Each block can be read without the others::

    block         header 64 B | stored length bytes: text and entries, which have no gap between them
    index record  at 512: seq u32 (0) | crc u32 (as of a header) | offset of the index u64 | first block u64 |
                  blocks u64 | crc of the index u32 | zero to 64
    index         offset of each block u64, and where the last one ends u64

Headers are as in the sealed file, except for *codec*, *stored length* and seq, which is the crc of the static part.
Codec 0 is plain; 1 is one zstd frame; 255 is a block that was already damaged at packing, with only its header stored.
A block with a damaged header has no bytes: it ends where it begins. Both publications are equal, and the page ends at
1 KiB. If the index is damaged, a reader searches for headers from the first block on. After a damaged header it seeks
the next occurrence of this seq, which no other log has.

A crc proves that a record is intact, not that its numbers are valid. Readers treat values that no writer produces as
damage: blocks over 16 MiB, more than 65,535 ring slots, counts of 2^63 or more, times outside the years 1 to 9999, a
text or a table that exceeds its block, a state that contradicts its head block.

Readers take no lock, so the writer may overwrite a block while it is copied. A reader first reads a publication, which
its crc proves intact. The writer leaves the published bytes alone until it reuses their slot. Before it does, it
publishes a higher head block. So after copying from slot b mod N, the reader reads the publication again: if the head
block is still less than b + N, the copy is block b. (Memory order: x86 makes stores visible in order. On other
machines, microseconds of interpreter separate text and publication, and each load depends on the previous one's value.)
"""

import dataclasses
import struct
from operator import attrgetter
from typing import NamedTuple
from zlib import crc32

from logring.errors import Corrupt, ForeignFile, NewerFormat

MAGIC = b"RINGWARD"
VERSION = 1
KIND_RING = 1
KIND_FILE = 2
KIND_PACKED = 3

PAGE = 4096
STATIC_SIZE = 256
PUBLICATION_AT = (256, 384)
PUBLICATION_SIZE = 128
PENDING_AT = ((512, 576), (640, 704))
PENDING_SIZE = 64
PENDING_TEXT_AT = (4096, 4096 + 16384)
PENDING_TEXT_SIZE = 16384
REGION_AT = (768, 832)
REGION_SIZE = 64
REGION_TEXT_AT = (36864, 36864 + 14336)
REGION_TEXT_SIZE = 14336
RING_BLOCKS_AT = 65536
FILE_BLOCKS_AT = 4096
INDEX_RECORD_AT = 512
PACKED_BLOCKS_AT = 1024
HEADER_SIZE = 64
ENTRY_SIZE = 16

BLOCK_SIZE = 65536
MAX_BLOCK_SIZE = 1 << 24
RING_BLOCKS = 8
MAX_RING_BLOCKS = 65535
MAX_LINE = 16384
"""Longest line in bytes, without its newline; longer ones are split."""

STDOUT = 0
STDERR = 1
SYSTEM = 2
STREAM_NAMES = ("stdout", "stderr", "system")

CONTINUED = 1
NO_NEWLINE = 2
FRAMES = 4

STATE_SEALED = 1

BLOCK_CLOSED = 1
BLOCK_CHECKED = 2

CODEC_PLAIN = 0
CODEC_ZSTD = 1
CODEC_LOST = 255

POLICY_KILL = 2
POLICIES = {"drop_old": 0, "drop_new": 1, "kill": POLICY_KILL}

_STATIC = struct.Struct("<8sHHIIIIIQq32s16s")
_STATIC_CRC = struct.Struct("<I")
PREFIX = struct.Struct("<II")
_STATE_FIELDS, _HEADER_FIELDS = "QQQQQQHBBI", "QQIIHHIqIBBBBII"
STATE_BODY = struct.Struct(f"<{_STATE_FIELDS}")
HEADER_BODY = struct.Struct(f"<{_HEADER_FIELDS}")
_PUBLICATION = struct.Struct(f"<II{_STATE_FIELDS}II{_HEADER_FIELDS}")
_NUMBERS = struct.Struct(f"<I{PUBLICATION_SIZE - 4}xI")
"""Sequence numbers of two adjacent publications."""
ENTRY = struct.Struct("<IIIBBH")
PENDING_BODY = struct.Struct("<QqIII28x")
REGION_BODY = struct.Struct("<IHHHHqq28x")

Entry = tuple[int, int, int, int, int, int]

_MAX_COUNT = 2**63 - 1
"""Larger counts of lines, blocks or bytes are damage. The limit leaves headroom for additions."""
_EARLIEST_MS, _LATEST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, the range of `datetime`."""


def max_line(block_size: int) -> int:
    """Return the maximum line length in bytes for this block size: a block must hold several lines."""
    return min(MAX_LINE, block_size // 4)


def newer(seq: int, than: int) -> bool:
    """Return whether sequence number `seq` comes after `than`; they wrap at 2^32."""
    return 0 < (seq - than) & 0xFFFFFFFF < 0x80000000


class RingShape(NamedTuple):
    """Number and size of a log's blocks. Without blocks in the file, the ring reuses its oldest block."""

    file_blocks: int
    ring_blocks: int = RING_BLOCKS
    block_size: int = BLOCK_SIZE


class Static(NamedTuple):
    """The part of the page that is written once, when a ring or a file is created."""

    kind: int
    block_size: int
    ring_blocks: int
    file_blocks: int
    writer_pid: int
    first_line: int
    created_ms: int
    run_id: bytes
    boot_id: bytes

    def pack(self) -> bytes:
        """Return the static part encoded in 256 bytes, with its crc."""
        head = _STATIC.pack(
            MAGIC,
            VERSION,
            self.kind,
            self.block_size,
            self.ring_blocks,
            self.file_blocks,
            self.writer_pid,
            0,
            self.first_line,
            self.created_ms,
            self.run_id,
            self.boot_id,
        ).ljust(STATIC_SIZE - 4, b"\0")
        return head + _STATIC_CRC.pack(crc32(head))

    @property
    def mark(self) -> int:
        """The crc of the static part; it identifies the log."""
        return int(_STATIC_CRC.unpack_from(self.pack(), STATIC_SIZE - 4)[0])

    @classmethod
    def parse(cls, data: bytes, path: str, *kinds: int) -> "Static":
        """Decode at least 256 bytes. `kinds` lists the accepted kinds; without it, every kind is accepted.

        Raises:
            ForeignFile: no magic, or not one of the wanted kinds.
            NewerFormat: the version is newer than this release.
            Corrupt: damaged.
        """
        if data[: len(MAGIC)] != MAGIC:
            raise ForeignFile(f"{path} is neither a ring nor a log file")
        if len(data) < STATIC_SIZE:
            raise Corrupt(f"{path} ends within its first page")
        _, version, kind, block_size, ring_blocks, file_blocks, pid, _, first, created, run, boot = _STATIC.unpack_from(
            data
        )
        if version > VERSION:
            raise NewerFormat(f"{path} has format {version}, this release knows {VERSION}")
        if _STATIC_CRC.unpack_from(data, STATIC_SIZE - 4)[0] != crc32(data[: STATIC_SIZE - 4]):
            raise Corrupt(f"{path}: the first page is damaged")
        slots = ring_blocks if kind == KIND_RING else file_blocks
        if (kinds and kind not in kinds) or not slots or not block_size or block_size % PAGE:
            raise ForeignFile(f"{path} is not a {'ring' if KIND_RING in kinds else 'log file'}")
        if (
            block_size > MAX_BLOCK_SIZE
            or ring_blocks > MAX_RING_BLOCKS
            or first > _MAX_COUNT
            or not run.isascii()
            or not _EARLIEST_MS <= created <= _LATEST_MS
        ):
            raise Corrupt(f"{path}: the first page is invalid")
        return cls(
            kind=kind,
            block_size=block_size,
            ring_blocks=ring_blocks,
            file_blocks=file_blocks,
            writer_pid=pid,
            first_line=first,
            created_ms=created,
            run_id=run.rstrip(b"\0"),
            boot_id=boot,
        )


@dataclasses.dataclass(slots=True, eq=False)
class BlockHeader:
    """Header of a block: which lines it holds, where its text ends, its last entry."""

    seq: int
    # The fields of HEADER_BODY, in its order.
    number: int
    first_line: int
    lines: int
    text_end: int
    entries: int
    last_frames: int
    extent: int
    base_ms: int
    last_delta: int
    last_stream: int
    last_flags: int
    codec: int
    flags: int
    checksum: int
    stored: int

    @property
    def end_line(self) -> int:
        """Number of the line after the block's last line."""
        return self.first_line + self.lines

    @property
    def last_ms(self) -> int:
        """Time at which the block's last line was read, in ms since the epoch; 0 in an empty block."""
        return self.base_ms + self.last_delta

    def body(self) -> bytes:
        """Return the 56 bytes after sequence number and crc."""
        return HEADER_BODY.pack(*_body_of(self))

    def pack(self) -> bytes:
        """Return the header encoded in 64 bytes, with its crc."""
        return pack_header(self.seq, self.body())

    @classmethod
    def parse(cls, data: bytes, offset: int = 0) -> "BlockHeader | None":
        """Decode the 64 bytes at `offset`; return None if they are not an intact header."""
        if len(data) < offset + HEADER_SIZE:
            return None
        seq, crc = PREFIX.unpack_from(data, offset)
        if crc32(data[offset + 8 : offset + HEADER_SIZE], seq) != crc:
            return None
        header = cls(seq, *HEADER_BODY.unpack_from(data, offset + 8))
        return header if header.is_sensible() else None

    def is_sensible(self) -> bool:
        """Return whether the numbers are plausible; the crc only proves that they are intact."""
        return (
            HEADER_SIZE <= self.text_end <= self.extent - self.entries * ENTRY_SIZE
            and self.number <= _MAX_COUNT
            and self.first_line + self.lines <= _MAX_COUNT
            and _EARLIEST_MS <= self.base_ms <= _LATEST_MS - 2**32
        )


_body_of = attrgetter(*(field.name for field in dataclasses.fields(BlockHeader) if field.name != "seq"))


def pack_header(seq: int, body: bytes) -> bytes:
    """Return a header: sequence number and crc, followed by its 56 bytes `body`."""
    return PREFIX.pack(seq, crc32(body, seq)) + body


class State:
    """The state record: the log's progress and totals."""

    __slots__ = (
        "blocks",
        "bytes",
        "dropped",
        "first_available",
        "flags",
        "head_block",
        "lines",
        "policy",
        "region_epoch",
    )

    def __init__(self, fields: tuple[int, ...]) -> None:
        (
            self.head_block,
            self.lines,
            self.first_available,
            self.dropped,
            out,
            err,
            self.blocks,
            self.flags,
            self.policy,
            self.region_epoch,
        ) = fields
        self.bytes = (out, err)

    @property
    def sealed(self) -> bool:
        """Whether the log is complete: nothing will be added."""
        return bool(self.flags & STATE_SEALED)

    def agrees(self, head: BlockHeader) -> bool:
        """Return whether this state is consistent with the head block `head`."""
        return (
            self.head_block == head.number
            and head.end_line <= self.lines <= _MAX_COUNT
            and self.first_available <= self.lines
            and max(self.bytes) <= _MAX_COUNT
        )

    def body(self) -> bytes:
        """Return the 56 bytes after sequence number and crc."""
        return STATE_BODY.pack(
            self.head_block,
            self.lines,
            self.first_available,
            self.dropped,
            *self.bytes,
            self.blocks,
            self.flags,
            self.policy,
            self.region_epoch,
        )


class Publication:
    """A state and the header of its head block, published together."""

    __slots__ = ("header", "seq", "state")

    def __init__(self, seq: int, state: State, header: BlockHeader) -> None:
        self.seq = seq
        self.state = state
        self.header = header

    def pack(self) -> bytes:
        """Return the publication encoded in 128 bytes, with its crc."""
        body = self.state.body() + PREFIX.pack(self.seq, 0) + self.header.body()
        return PREFIX.pack(self.seq, crc32(body, self.seq)) + body

    @classmethod
    def parse(cls, page: bytes, offset: int) -> "Publication | None":
        """Decode the 128 bytes at `offset`; return None if they are not an intact publication."""
        fields = _PUBLICATION.unpack_from(page, offset)
        seq = fields[0]
        if crc32(page[offset + 8 : offset + PUBLICATION_SIZE], seq) != fields[1]:
            return None
        state, header = State(fields[2:12]), BlockHeader(seq, *fields[14:])
        return cls(seq, state, header) if header.is_sensible() and state.agrees(header) else None

    def check(self, static: Static, path: str) -> None:
        """Check that the publication is valid for a ring with this static part.

        Raises:
            Corrupt: it is not.
        """
        if not 0 < self.state.blocks <= static.ring_blocks or self.header.extent != static.block_size:
            raise Corrupt(f"{path}: the state is invalid")

    @classmethod
    def latest(cls, pair: bytes) -> "Publication | None":
        """Return the newer valid one of the two copies in the 256 bytes `pair`; None if neither is valid."""
        number, other = _NUMBERS.unpack_from(pair)
        first, second = (PUBLICATION_SIZE, 0) if newer(other, number) else (0, PUBLICATION_SIZE)
        return cls.parse(pair, first) or cls.parse(pair, second)


def pack_pending(seq: int, base: int, ms: int, text: bytes, flags: int) -> bytes:
    """Return the 64-byte header of a pending text."""
    body = PENDING_BODY.pack(base, ms, len(text), crc32(text), flags)
    return PREFIX.pack(seq, crc32(body, seq)) + body


def parse_pending(data: bytes) -> tuple[int, int, int, int, int, int] | None:
    """Decode 64 bytes to (seq, base, ms, length, crc of the text, flags); return None if the header is not intact."""
    seq, crc = PREFIX.unpack_from(data)
    if crc32(data[8:], seq) != crc:
        return None
    base, ms, length, text_crc, flags = PENDING_BODY.unpack_from(data, 8)
    if length > PENDING_TEXT_SIZE or not _EARLIEST_MS <= ms <= _LATEST_MS:
        return None
    return seq, base, ms, length, text_crc, flags
