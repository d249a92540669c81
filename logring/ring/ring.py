"""The ring, a mapped file in shared memory. Its writer creates and grows it; readers map it read-only.

A mapped page of tmpfs is allocated when it is first touched. Without free memory that touch kills the process with
SIGBUS. So posix_fallocate(3) allocates every page before it is touched, which turns a failure into an error code.
Readers touch only pages that the publication refers to. The file has its full size from the start and is never
truncated; pages that are not allocated cost nothing.
"""

import errno
import functools
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from zlib import crc32

from logring.block import Line
from logring.errors import Corrupt
from logring.layout import (
    ENTRY,
    ENTRY_SIZE,
    HEADER_SIZE,
    KIND_RING,
    MAGIC,
    PAGE,
    PENDING_AT,
    PENDING_SIZE,
    PENDING_TEXT_AT,
    PUBLICATION_AT,
    PUBLICATION_SIZE,
    REGION_AT,
    REGION_SIZE,
    REGION_TEXT_AT,
    RING_BLOCKS_AT,
    STATIC_SIZE,
    STREAM_NAMES,
    BlockHeader,
    Publication,
    RingShape,
    Static,
    newer,
    pack_pending,
    parse_pending,
)
from logring.logfile.file_owner import share_file
from logring.ring.live_region import Rows, pack_region
from logring.state_json import tagged

_ATTEMPTS = 1000
_PLENTY = 1 << 30
_COPY_BYTES = 1 << 20
_PAIR = slice(PUBLICATION_AT[0], PUBLICATION_AT[0] + 2 * PUBLICATION_SIZE)
_CHANGING = slice(PUBLICATION_AT[0], REGION_AT[1] + REGION_SIZE)
"""The part of the first page that is written repeatedly. Every change that readers can see changes it."""


def fallocate(step: str, fd: int, offset: int, length: int) -> None:
    """Allocate pages of shared memory. All allocations go through here, so a test can make one `step` fail.

    Steps: page (the state page, and the first block's first and last page), first (more text of the first block), table
    (its entry table), slot (another block), pending, region, copy (of a ring that is recreated).
    """
    del step
    os.posix_fallocate(fd, offset, length)


def is_roomy(fd: int) -> bool:
    """Return whether half the shared memory, or 1 GiB, is free. Less is left to the first blocks of other rings."""
    if fd < 0:
        return True
    filesystem = os.fstatvfs(fd)
    return 2 * filesystem.f_bavail >= filesystem.f_blocks or filesystem.f_bavail * filesystem.f_frsize >= _PLENTY


@functools.cache
def boot_id() -> bytes:
    """Return the kernel's id of this boot, 16 bytes; zeros without /proc."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return bytes.fromhex(file.read().decode().strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)


@contextmanager
def _new_file(path: str) -> Iterator[int]:
    """Create a file, which gets the name `path` after the block, complete and with its readers.

    It replaces a file that a crash left behind. If the block fails, nothing remains.
    """
    new = f"{path}.new"
    fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        share_file(fd, path)
        yield fd
        os.rename(new, path)
    except BaseException:  # no other code would close and remove the file
        os.close(fd)
        os.unlink(new)
        raise


@contextmanager
def _nameless_file() -> Iterator[int]:
    fd = os.memfd_create("ring", os.MFD_CLOEXEC)
    try:
        yield fd
    except BaseException:  # no other code would close it
        os.close(fd)
        raise


def _data_from(fd: int, at: int) -> int | None:
    """Return the offset of the next allocated pages from `at` on; None if there are none."""
    try:
        return os.lseek(fd, at, os.SEEK_DATA)
    except OSError as err:
        if err.errno != errno.ENXIO:
            raise
        return None


@tagged(
    "",
    "_pending_have=pending_have _pending_seq=pending_seq _region_have=region_have _region_seq=region_seq block_size"
    " slots table_have taken text_have",
)
@dataclass(frozen=True)
class RingState:
    """What a ring's writer has allocated and counted, in a handover."""

    slots: int
    block_size: int
    taken: int
    text_have: int
    table_have: int
    pending_have: list[int]
    pending_seq: list[int]
    region_have: list[int]
    region_seq: int


class Ring:
    """A ring as its writer sees it.

    Attributes:
        mm: the mapping.
        slots: number of block slots; fewer than planned after shared memory was short.
        taken: number of slots whose pages are allocated; the first slot may lack some.
        fd: descriptor of the file; -1 for a private copy.
    """

    def __init__(self, path: str, static: Static, mm: mmap.mmap, fd: int) -> None:
        self.path = path
        self.static = static
        self.mm = mm
        self.slots = static.ring_blocks
        self.block_size = static.block_size
        self.taken = 1
        # The first block is allocated page by page: text pages from its start, table pages from its end.
        self.text_have = PAGE
        self.table_have = static.block_size - PAGE
        if static.block_size <= 2 * PAGE:
            self.text_have, self.table_have = static.block_size, 0
        self._pending_have = [0, 0]
        self._pending_seq = [0, 0]
        self._region_have = list(REGION_TEXT_AT)
        self._region_seq = 0
        self.fd = fd

    @classmethod
    def create(
        cls, path: str, run_id: str, shape: RingShape, *, first_line: int, now_ms: int, private: bool = False
    ) -> "Ring":
        """Create the file with its static part, but without the magic, which `announce` writes.

        A file that a crash left behind is replaced. A `private` ring has no file: only this process sees it, and the
        programs to which it hands the descriptor.

        Raises:
            OSError: no space, no such directory, no permission.
        """
        static = Static(
            kind=KIND_RING,
            block_size=shape.block_size,
            ring_blocks=shape.ring_blocks,
            file_blocks=shape.file_blocks,
            writer_pid=os.getpid(),
            first_line=first_line,
            created_ms=now_ms,
            run_id=run_id.encode(),
            boot_id=boot_id(),
        )
        size = RING_BLOCKS_AT + shape.ring_blocks * shape.block_size
        with _nameless_file() if private else _new_file(path) as fd:
            os.ftruncate(fd, size)
            fallocate("page", fd, 0, PAGE)
            fallocate("page", fd, RING_BLOCKS_AT, PAGE)
            fallocate("page", fd, RING_BLOCKS_AT + shape.block_size - PAGE, PAGE)
            mm = mmap.mmap(fd, size)
        mm[len(MAGIC) : STATIC_SIZE] = static.pack()[len(MAGIC) :]
        return cls(path, static, mm, fd)

    def state(self) -> RingState:
        """Return the state for another program that gets the descriptor."""
        have = self.slots, self.block_size, self.taken, self.text_have, self.table_have
        return RingState(*have, self._pending_have, self._pending_seq, self._region_have, self._region_seq)

    @classmethod
    def adopt(cls, path: str, fd: int, state: RingState | None = None) -> "Ring":
        """Map a ring whose descriptor this process kept across execve, with the state of its writer.

        Raises:
            OSError: the ring cannot be mapped.
            LogError: the file is not a ring.
        """
        static = Static.parse(os.pread(fd, PAGE, 0), path, KIND_RING)
        self = cls(path, static, mmap.mmap(fd, RING_BLOCKS_AT + static.ring_blocks * static.block_size), fd)
        if state is not None:
            self.slots, self.taken = state.slots, state.taken
            self.text_have, self.table_have = state.text_have, state.table_have
            self._pending_have, self._pending_seq = state.pending_have, state.pending_seq
            self._region_have, self._region_seq = state.region_have, state.region_seq
        return self

    def copied_file(self, path: str) -> int:
        """Recreate the removed file at `path` with the same content; return the descriptor of the new file.

        Call this only while nothing writes to the ring. Pages that were never allocated stay unallocated in the copy.

        Raises:
            OSError: no space, no such directory, no permission.
        """
        with _new_file(path) as fd:
            size = len(self.mm)
            os.ftruncate(fd, size)
            at = 0
            while (data_start := _data_from(self.fd, at)) is not None:
                at = os.lseek(self.fd, data_start, os.SEEK_HOLE)
                fallocate("copy", fd, data_start, at - data_start)
                for offset in range(data_start, at, _COPY_BYTES):
                    os.pwrite(fd, os.pread(self.fd, min(_COPY_BYTES, at - offset), offset), offset)
        return fd

    @classmethod
    def reopen(cls, path: str) -> "Ring | None":
        """Map the ring of a writer that died, to continue it; return None if there is none, or nothing was published.

        The new writer does not know which pages are allocated, so it allocates them again. That costs nothing for
        existing pages.

        Raises:
            OSError: the file exists and cannot be mapped.
            LogError: the file is not a ring, or the ring is damaged.
        """
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            if os.pread(fd, len(MAGIC), 0).strip(b"\0") == b"":
                os.unlink(path)
                os.close(fd)
                return None
            ring = cls.adopt(path, fd)
            publication = read_publication(ring.mm, path)
            publication.check(ring.static, path)
        except ValueError as err:  # from mmap: the file is shorter than its static part says
            os.close(fd)
            raise Corrupt(f"{path} is truncated") from err
        except BaseException:  # no other code would close the descriptor
            os.close(fd)
            raise
        ring._go_on(publication)  # noqa: SLF001 - an instance of this class
        return ring

    def _go_on(self, publication: Publication) -> None:
        """Restore the allocations and sequence numbers of the previous writer that the new one needs."""
        header, self.slots = publication.header, publication.state.blocks
        if self.slot_at(header.number) == RING_BLOCKS_AT:
            while self.text_have < header.text_end and self.grow_text():
                pass
        self._region_seq = publication.state.region_epoch
        for stream, copies in enumerate(PENDING_AT):
            for pending in (parse_pending(self.mm[at : at + PENDING_SIZE]) for at in copies):
                if pending is not None and newer(pending[0], self._pending_seq[stream]):
                    self._pending_seq[stream] = pending[0]

    @classmethod
    def private_copy(cls, path: str) -> "Ring | None":
        """Return a copy of a ring in private memory, to save a dead writer's lines; None if nothing was published.

        Raises:
            OSError: the file cannot be read, or does not exist.
            LogError: the file is not a ring, or is truncated.
        """
        with open(path, "rb") as file:
            page = file.read(PAGE)
            if page[: len(MAGIC)].strip(b"\0") == b"":
                return None
            static = Static.parse(page, path, KIND_RING)
            size = RING_BLOCKS_AT + static.ring_blocks * static.block_size
            if os.fstat(file.fileno()).st_size < size:
                raise Corrupt(f"{path} is truncated")
            mm = mmap.mmap(-1, size)
            file.seek(0)
            # Read instead of mapping: reading a hole allocates no page.
            file.readinto(mm)
        ring = cls(path, static, mm, -1)
        ring.taken = ring.slots
        ring.text_have, ring.table_have = static.block_size, 0
        return ring

    def announce(self) -> None:
        """Make the ring visible to readers: without its magic they treat it as absent."""
        self.mm[: len(MAGIC)] = MAGIC

    def slot_at(self, number: int) -> int:
        """Return the offset of block `number` in the mapping."""
        return RING_BLOCKS_AT + number % self.slots * self.block_size

    def _take(self, step: str, offset: int, length: int) -> bool:
        if self.fd < 0:
            return True
        try:
            fallocate(step, self.fd, offset, length)
        except OSError:  # ENOSPC, EDQUOT, ENOMEM: shared memory is short, so the ring keeps its present size
            return False
        return True

    def take_slot(self, number: int) -> bool:
        """Allocate the slot of block `number`. On failure, limit the ring to the slots before it and return False."""
        if number < self.taken or self.taken == self.slots:
            return True
        if not is_roomy(self.fd) or not self._take("slot", self.slot_at(number), self.block_size):
            self.wrap()
            return False
        self.taken = number + 1
        return True

    def wrap(self) -> None:
        """Limit the ring to the slots allocated so far. Call this before any slot is reused."""
        self.slots = self.taken

    def grow_text(self) -> bool:
        """Allocate more text pages of the first block: double their number, or add one if memory is short."""
        have = self.text_have
        if have >= self.block_size:
            return False
        for more in (have, PAGE):
            end = have + more
            if end >= self.table_have:
                end = self.block_size
            if self._take("first", RING_BLOCKS_AT + have, end - have):
                self.text_have = end
                if end == self.block_size:
                    self.table_have = 0
                return True
        return False

    def grow_table(self) -> bool:
        """Allocate one more page for the first block's entry table."""
        start = self.table_have - PAGE
        if start < self.text_have:
            return self.grow_text()
        if not self._take("table", RING_BLOCKS_AT + start, PAGE):
            return False
        self.table_have = start
        return True

    def write_pending(self, stream: int, base: int, ms: int, text: bytes, flags: int) -> None:
        """Mirror an unfinished line, if there is memory for it; see `logring.layout` for the arguments."""
        have = self._pending_have[stream]
        if len(text) > have:
            want = -(-len(text) // PAGE) * PAGE
            if not self._take("pending", PENDING_TEXT_AT[stream] + have, want - have):
                return
            self._pending_have[stream] = want
        at = PENDING_TEXT_AT[stream]
        self.mm[at : at + len(text)] = text
        seq = self._pending_seq[stream] = (self._pending_seq[stream] + 1) & 0xFFFFFFFF
        at = PENDING_AT[stream][seq & 1]
        self.mm[at : at + PENDING_SIZE] = pack_pending(seq, base, ms, text, flags)

    def write_region(self, out: Rows, err: Rows) -> int | None:
        """Publish the rows that the streams draw now, if there is memory for them.

        Returns:
            The region's epoch, to be published with the state; None if readers still see the previous region.
        """
        seq = (self._region_seq + 1) & 0xFFFFFFFF
        header, text = pack_region(seq, out, err)
        copy = seq & 1
        at = REGION_TEXT_AT[copy]
        want = -(-(at + len(text)) // PAGE) * PAGE
        have = self._region_have[copy]
        if text and want > have:
            if not self._take("region", have, want - have):
                return None
            self._region_have[copy] = want
        self.mm[at : at + len(text)] = text
        self.mm[REGION_AT[copy] : REGION_AT[copy] + REGION_SIZE] = header
        self._region_seq = seq
        return seq

    def close(self) -> None:
        """Unmap the ring; its file stays."""
        self.mm.close()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def read_publication(mm: mmap.mmap, path: str = "the ring") -> Publication:
    """Return the writer's last publication.

    The writer alternates between two copies. Both are torn only if two publications were made while 256 bytes were
    copied, so a second attempt succeeds. A writer that dies during a publication leaves the other copy intact.

    Raises:
        Corrupt: neither copy is valid after many attempts.
    """
    for _ in range(_ATTEMPTS):
        publication = Publication.latest(mm[_PAIR])
        if publication is not None:
            return publication
    raise Corrupt(f"{path}: the state is damaged")


def read_pending(mm: mmap.mmap, stream: int, base: int) -> tuple[int, int, bytes] | None:
    """Return the mirrored unfinished line of a stream that has `base` bytes in blocks: (time ms, flags, text), or None.

    The newer copy with an intact text counts. A writer that died while it extended the text left the earlier bytes
    intact, and the older copy describes them.
    """
    pending = None
    for at in PENDING_AT[stream]:
        header = parse_pending(mm[at : at + PENDING_SIZE])
        if header is None or header[1] != base or (pending is not None and not newer(header[0], pending[0])):
            continue
        seq, _, ms, length, crc, flags = header
        start = PENDING_TEXT_AT[stream]
        text = mm[start : start + length] if length else b""
        if crc32(text) == crc:
            pending = (seq, ms, flags, text)
    return pending and pending[1:]


class RingView:
    """A ring as readers see it: mapped read-only."""

    def __init__(self, path: str, static: Static, mm: mmap.mmap, identity: tuple[int, int]) -> None:
        self.path = path
        self.static = static
        self.mm = mm
        self._identity = identity
        self._pair = b""
        self._publication: Publication | None = None

    @classmethod
    def open(cls, path: str) -> "RingView | None":
        """Map the ring; return None if it does not exist yet.

        Raises:
            OSError: the file exists and cannot be opened.
            LogError: the file is not a ring.
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            page = os.pread(fd, STATIC_SIZE, 0)
            if page[: len(MAGIC)].strip(b"\0") == b"":
                return None  # it is being created
            static = Static.parse(page, path, KIND_RING)
            status = os.fstat(fd)
            size = RING_BLOCKS_AT + static.ring_blocks * static.block_size
            if status.st_size < size:
                raise Corrupt(f"{path} is truncated")
            mm = mmap.mmap(fd, size, access=mmap.ACCESS_READ)
        finally:
            os.close(fd)
        return cls(path, static, mm, (status.st_dev, status.st_ino))

    def publication(self) -> Publication:
        """Return the writer's last publication.

        Raises:
            Corrupt: there is no valid publication.
        """
        pair = self.mm[_PAIR]
        publication = self._publication
        if publication is None or pair != self._pair:  # a reader polls far more often than the ring changes
            publication = Publication.latest(pair) or read_publication(self.mm, self.path)
            publication.check(self.static, self.path)
            self._pair, self._publication = pair, publication
        return publication

    def mark(self) -> bytes:
        """Return bytes that stay equal until something new is published or mirrored."""
        return self.mm[_CHANGING]

    def is_current(self) -> bool:
        """Return whether the path still names this ring: it was neither unlinked nor replaced."""
        try:
            status = os.stat(self.path)
        except OSError as err:
            if err.errno in (errno.ENOENT, errno.ENOTDIR):
                return False
            raise
        return (status.st_dev, status.st_ino) == self._identity

    def header(self, number: int, publication: Publication) -> BlockHeader | None:
        """Return the header of a block that was in the ring at `publication`; None if its slot now holds another."""
        if number == publication.header.number:
            return publication.header
        at = RING_BLOCKS_AT + number % publication.state.blocks * self.static.block_size
        header = BlockHeader.parse(self.mm[at : at + HEADER_SIZE])
        if header is None or header.number != number or header.extent != self.static.block_size:
            return None
        return header

    def block_bytes(self, header: BlockHeader, slots: int) -> tuple[bytes, bytes]:
        """Copy the text and entry table of a block. The caller must then check that the slot was not reused."""
        at = RING_BLOCKS_AT + header.number % slots * self.static.block_size
        table = at + header.extent - header.entries * ENTRY_SIZE
        return self.mm[at + HEADER_SIZE : at + header.text_end], self.mm[table : at + header.extent]

    def newest(self, publication: Publication, start: int, limit: int, max_bytes: int) -> list[Line] | None:
        """Return lines from number `start` on, if they are exactly the last entry of `publication`; else None."""
        header = publication.header
        at = RING_BLOCKS_AT + header.number % publication.state.blocks * self.static.block_size
        text_start, before = HEADER_SIZE, 0
        if header.entries:
            text_start, before, *_ = ENTRY.unpack_from(self.mm, at + header.extent - header.entries * ENTRY_SIZE)
        count = header.lines - before
        if (
            start != header.first_line + before
            or start < publication.state.first_available
            or not 0 < count <= limit
            or not HEADER_SIZE <= text_start <= header.text_end <= text_start + max_bytes
            or header.last_flags
            or header.last_stream >= len(STREAM_NAMES)
        ):
            return None
        parts = self.mm[at + text_start : at + header.text_end].split(b"\n")
        if len(parts) != count + 1 or parts.pop():
            return None
        now = self.publication()
        if now.header.number >= header.number + now.state.blocks:  # the slot was reused meanwhile
            return None
        ts, stream = header.last_ms, header.last_stream
        return [Line(n, ts, stream, text, False, 0) for n, text in enumerate(parts, start)]

    def close(self) -> None:
        """Unmap the ring."""
        self.mm.close()
