"""The ring as a mapped file in shared memory: made and grown by its writer, mapped read-only by readers.

A page of tmpfs that is mapped but not allocated is allocated at the first touch; without free memory that touch kills
with SIGBUS. So posix_fallocate(3) allocates every page before it is touched, which turns a failure into an error code.
Readers touch nothing beyond the publication. The file has its full size from the start and is never truncated; pages
that are not allocated cost nothing.
"""

import errno
import functools
import mmap
import os
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

_ATTEMPTS = 1000
_PLENTY = 1 << 30
_COPY_BYTES = 1 << 20
_PAIR = slice(PUBLICATION_AT[0], PUBLICATION_AT[0] + 2 * PUBLICATION_SIZE)
_CHANGING = slice(PUBLICATION_AT[0], REGION_AT[1] + REGION_SIZE)
"""All of the first page that is written more than once; nothing else of a ring counts before this tells of it."""


def fallocate(step: str, fd: int, offset: int, length: int) -> None:
    """Allocate pages of shared memory. All allocations go through here, so a test can make one `step` fail.

    Steps: page (state page and the first block's first and last page), first (more of the first block), table (of its
    entries), slot (another block), pending, region, copy (of a ring that is made again).
    """
    del step
    os.posix_fallocate(fd, offset, length)


def is_roomy(fd: int) -> bool:
    """Whether much of the shared memory is free, half of it or 1 GiB: the rest is for the first blocks of others."""
    if fd < 0:
        return True
    found = os.fstatvfs(fd)
    return 2 * found.f_bavail >= found.f_blocks or found.f_bavail * found.f_frsize >= _PLENTY


@functools.cache
def boot_id() -> bytes:
    """Return the kernel's id of this boot, 16 bytes; zeros where /proc is missing."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return bytes.fromhex(file.read().decode().strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)


def _new_file(path: str) -> int:
    """Make a file, in place of any file left by a crash."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags, 0o600)
    except FileExistsError:
        os.unlink(path)
        return os.open(path, flags, 0o600)


def _data_from(fd: int, at: int) -> int | None:
    """Return where the next pages are that were taken; None when there are none."""
    try:
        return os.lseek(fd, at, os.SEEK_DATA)
    except OSError as err:
        if err.errno != errno.ENXIO:
            raise
        return None


class Ring:
    """A ring as its writer has it.

    Attributes:
        mm: the mapping.
        slots: number of block slots; less than planned once shared memory was short.
        taken: slots whose pages are there (the first one: perhaps not all of them).
        fd: of the file; -1 for a private copy.
    """

    def __init__(self, path: str, static: Static, mm: mmap.mmap, fd: int) -> None:
        self.path = path
        self.static = static
        self.mm = mm
        self.slots = static.ring_blocks
        self.block_size = static.block_size
        self.taken = 1
        # The first block is taken bit by bit: text pages from its start, table pages from its end.
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
    def create(cls, path: str, run_id: str, shape: RingShape, *, first_line: int, now_ms: int) -> "Ring":
        """Make the file, with its static part but not yet its magic: see `announce`. Replaces a file left by a crash.

        Raises:
            OSError: no place, no such directory, no permission.
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
        fd = _new_file(path)
        try:
            share_file(fd, path)
            os.ftruncate(fd, size)
            fallocate("page", fd, 0, PAGE)
            fallocate("page", fd, RING_BLOCKS_AT, PAGE)
            fallocate("page", fd, RING_BLOCKS_AT + shape.block_size - PAGE, PAGE)
            mm = mmap.mmap(fd, size)
        except BaseException:  # close it on every error, as no other code does
            os.close(fd)
            os.unlink(path)
            raise
        mm[len(MAGIC) : STATIC_SIZE] = static.pack()[len(MAGIC) :]
        return cls(path, static, mm, fd)

    @classmethod
    def adopt(cls, path: str, fd: int) -> "Ring":
        """Map a ring whose descriptor this process had before it was executed anew; its attributes are to be restored.

        Raises:
            OSError: it cannot be mapped.
            LogError: it is no ring of ours.
        """
        static = Static.parse(os.pread(fd, PAGE, 0), path, KIND_RING)
        return cls(path, static, mmap.mmap(fd, RING_BLOCKS_AT + static.ring_blocks * static.block_size), fd)

    def copied_file(self, path: str) -> int:
        """Make the file at `path` again after its removal, with the same content; return its descriptor.

        Call this only while there is no writer. Pages that were never allocated cost nothing in the new file either.

        Raises:
            OSError: no place, no such directory, no permission.
        """
        fd = _new_file(path)
        try:
            share_file(fd, path)
            size = len(self.mm)
            os.ftruncate(fd, size)
            at = 0
            while (begin := _data_from(self.fd, at)) is not None:
                at = os.lseek(self.fd, begin, os.SEEK_HOLE)
                fallocate("copy", fd, begin, at - begin)
                for place in range(begin, at, _COPY_BYTES):
                    os.pwrite(fd, os.pread(self.fd, min(_COPY_BYTES, at - place), place), place)
        except BaseException:  # close it on every error, as no other code does
            os.close(fd)
            os.unlink(path)
            raise
        return fd

    @classmethod
    def reopen(cls, path: str) -> "Ring | None":
        """Map the ring of a writer that died, to go on with it; None when there is none, or nothing was published.

        Which pages are there is not known. They are taken once more: that costs none that are.

        Raises:
            OSError: it is there and cannot be mapped.
            LogError: it is no ring of ours, or damaged.
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
        except ValueError as err:  # of mmap: the file is shorter than it says
            os.close(fd)
            raise Corrupt(f"{path} is truncated") from err
        except BaseException:  # close it on every error, as no other code does
            os.close(fd)
            raise
        ring._go_on(publication)  # noqa: SLF001 - one of our own class
        return ring

    def _go_on(self, publication: Publication) -> None:
        """Take over the allocations and counters of the previous writer, as far as they matter."""
        header, self.slots = publication.header, publication.state.blocks
        if self.slot_at(header.number) == RING_BLOCKS_AT:
            while self.text_have < header.text_end and self.grow_text():
                pass
        self._region_seq = publication.state.region_epoch
        for stream, copies in enumerate(PENDING_AT):
            for found in (parse_pending(self.mm[at : at + PENDING_SIZE]) for at in copies):
                if found is not None and newer(found[0], self._pending_seq[stream]):
                    self._pending_seq[stream] = found[0]

    @classmethod
    def private_copy(cls, path: str) -> "Ring | None":
        """Return a copy of a ring in private memory, to save a dead writer's lines; None when nothing was published.

        Raises:
            OSError: it cannot be read; also when it is not there.
            LogError: it is no ring of ours.
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
            # read, not map: reading a hole takes no page
            file.readinto(mm)
        ring = cls(path, static, mm, -1)
        ring.taken = ring.slots
        ring.text_have, ring.table_have = static.block_size, 0
        return ring

    def announce(self) -> None:
        """Make the ring visible to readers: without its magic they treat it as absent."""
        self.mm[: len(MAGIC)] = MAGIC

    def slot_at(self, number: int) -> int:
        """Return where block `number` stands in the mapping."""
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
        """Take the pages of the slot of block `number`; when they are not there, wrap at the slots before it."""
        if number < self.taken or self.taken == self.slots:
            return True
        if not is_roomy(self.fd) or not self._take("slot", self.slot_at(number), self.block_size):
            self.wrap()
            return False
        self.taken = number + 1
        return True

    def wrap(self) -> None:
        """Have no more slots than there are; before any of them is used again."""
        self.slots = self.taken

    def grow_text(self) -> bool:
        """Take more text pages of the first block: twice as many as there are, or one more."""
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
        """Take one more page of the first block's entry table."""
        start = self.table_have - PAGE
        if start < self.text_have:
            return self.grow_text()
        if not self._take("table", RING_BLOCKS_AT + start, PAGE):
            return False
        self.table_have = start
        return True

    def write_pending(self, stream: int, base: int, ms: int, text: bytes, flags: int) -> None:
        """Mirror an unfinished line, when there is memory for that; see `logring.layout` for the arguments."""
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
            The region's epoch, to be published with the state; None when readers still see the previous region.
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
        """Unmap. The file stays."""
        self.mm.close()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def read_publication(mm: mmap.mmap, path: str = "the ring") -> Publication:
    """Return the last publication of the writer.

    The writer alternates between two copies. Both are torn only if two publications were made while 256 bytes were
    copied, so a second attempt succeeds. A writer that dies during a publication leaves the other copy intact.

    Raises:
        Corrupt: no copy is valid after several attempts.
    """
    for _ in range(_ATTEMPTS):
        publication = Publication.latest(mm[_PAIR])
        if publication is not None:
            return publication
    raise Corrupt(f"{path}: the state is damaged")


def read_pending(mm: mmap.mmap, stream: int, base: int) -> tuple[int, int, bytes] | None:
    """Return the mirrored unfinished line of a stream that has `base` bytes in blocks: (time ms, flags, text), or None.

    The newer copy whose text is whole counts. A writer that died while it added to the text left the bytes before,
    for which the older copy still speaks.
    """
    found = None
    for at in PENDING_AT[stream]:
        header = parse_pending(mm[at : at + PENDING_SIZE])
        if header is None or header[1] != base or (found is not None and not newer(header[0], found[0])):
            continue
        seq, _, ms, length, crc, flags = header
        start = PENDING_TEXT_AT[stream]
        text = mm[start : start + length] if length else b""
        if crc32(text) == crc:
            found = (seq, ms, flags, text)
    return found and found[1:]


class RingView:
    """A ring as a reader has it: mapped read-only."""

    def __init__(self, path: str, static: Static, mm: mmap.mmap, identity: tuple[int, int]) -> None:
        self.path = path
        self.static = static
        self.mm = mm
        self._identity = identity
        self._pair = b""
        self._publication: Publication | None = None

    @classmethod
    def open(cls, path: str) -> "RingView | None":
        """Map the ring; None when there is none (yet).

        Raises:
            OSError: it is there and cannot be opened.
            LogError: it is no ring of ours.
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            page = os.pread(fd, STATIC_SIZE, 0)
            if page[: len(MAGIC)].strip(b"\0") == b"":
                return None  # being made
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
        """Return the last publication of the writer.

        Raises:
            Corrupt: nothing valid stands there.
        """
        pair = self.mm[_PAIR]
        publication = self._publication
        if publication is None or pair != self._pair:  # a reader polls far more often than the ring changes
            publication = Publication.latest(pair) or read_publication(self.mm, self.path)
            publication.check(self.static, self.path)
            self._pair, self._publication = pair, publication
        return publication

    def mark(self) -> bytes:
        """Equal to that of before when nothing new was published or mirrored since."""
        return self.mm[_CHANGING]

    def is_current(self) -> bool:
        """Return whether the ring still stands under its path (it was not unlinked, nor replaced by a newer one)."""
        try:
            status = os.stat(self.path)
        except OSError as err:
            if err.errno in (errno.ENOENT, errno.ENOTDIR):
                return False
            raise
        return (status.st_dev, status.st_ino) == self._identity

    def header(self, number: int, publication: Publication) -> BlockHeader | None:
        """Header of a block that is in the ring by `publication`; None when its slot holds something else by now."""
        if number == publication.header.number:
            return publication.header
        at = RING_BLOCKS_AT + number % publication.state.blocks * self.static.block_size
        header = BlockHeader.parse(self.mm[at : at + HEADER_SIZE])
        if header is None or header.number != number or header.extent != self.static.block_size:
            return None
        return header

    def block_bytes(self, header: BlockHeader, slots: int) -> tuple[bytes, bytes]:
        """Text and entry table of a block, copied; the caller then checks that the slot was not used again."""
        at = RING_BLOCKS_AT + header.number % slots * self.static.block_size
        table = at + header.extent - header.entries * ENTRY_SIZE
        return self.mm[at + HEADER_SIZE : at + header.text_end], self.mm[table : at + header.extent]

    def newest(self, publication: Publication, start: int, limit: int, max_bytes: int) -> list[Line] | None:
        """Return lines from number `start` on, if they are exactly the last entry of `publication`; else None."""
        header = publication.header
        at = RING_BLOCKS_AT + header.number % publication.state.blocks * self.static.block_size
        begin, before = HEADER_SIZE, 0
        if header.entries:
            begin, before, *_ = ENTRY.unpack_from(self.mm, at + header.extent - header.entries * ENTRY_SIZE)
        count = header.lines - before
        if (
            start != header.first_line + before
            or start < publication.state.first_available
            or not 0 < count <= limit
            or not HEADER_SIZE <= begin <= header.text_end <= begin + max_bytes
            or header.last_flags
            or header.last_stream >= len(STREAM_NAMES)
        ):
            return None
        parts = self.mm[at + begin : at + header.text_end].split(b"\n")
        if len(parts) != count + 1 or parts.pop():
            return None
        now = self.publication()
        if now.header.number >= header.number + now.state.blocks:  # the slot was used again meanwhile
            return None
        ts, stream = header.last_ms, header.last_stream
        return [Line(n, ts, stream, text, False, 0) for n, text in enumerate(parts, start)]

    def close(self) -> None:
        """Unmap."""
        self.mm.close()
