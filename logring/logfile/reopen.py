"""Continuing the log of a writer that died, with the same ring, file and line numbers.

At most one batch is lost: the output that the dead writer had read but not published. Its unfinished lines are mirrored
in the ring.
"""

import os
from dataclasses import dataclass

from logring.errors import ForeignFile
from logring.layout import KIND_FILE, PAGE, PUBLICATION_AT, PUBLICATION_SIZE, Publication, Static
from logring.ring.ring import Ring, boot_id
from logring.ring.writer import RingWriter

_PAIR = slice(PUBLICATION_AT[0], PUBLICATION_AT[0] + 2 * PUBLICATION_SIZE)


@dataclass(frozen=True)
class LogContent:
    """The content of a log file."""

    head: int
    """Number of the block written last; the file also has the blocks before it."""
    lines: int
    first_available: int
    sealed: bool

    @property
    def progress(self) -> tuple[int, tuple[int, int], tuple[int, int]]:
        """Progress for `logring.logfile.log_file.LogFileWriter`, which writes the last block once more."""
        return -1, (self.head, 0), (-1, 0)

    @classmethod
    def read(cls, path: str, run_id: str) -> "LogContent | None":
        """Read a run's log file; return None if the file is missing or has no valid state yet.

        Raises:
            OSError: the file exists and cannot be read.
            LogError: it is not a log file of this run.
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            page = os.pread(fd, PAGE, 0)
        finally:
            os.close(fd)
        if len(page) < PAGE:
            return None
        static = Static.parse(page, path, KIND_FILE)
        if static.run_id != run_id.encode():
            raise ForeignFile(f"{path} belongs to another run")
        publication = Publication.latest(page[_PAIR])
        if publication is None:
            return None
        state = publication.state
        return cls(state.head_block, state.lines, state.first_available, state.sealed)


def reopen(ring_path: str, run_id: str, written: LogContent | None) -> RingWriter | None:
    """Return a writer that continues the ring of a dead writer; None if there is no ring.

    Call this only after that writer has died. Masks and the reducer of redrawn lines must be set again.

    Args:
        ring_path: path of the ring.
        run_id: the run that the ring must belong to.
        written: the content of its log file; None if there is none.

    Raises:
        OSError: the ring cannot be mapped.
        LogError: the file is not a ring, or the ring is damaged, of another run or from before the last boot.
    """
    ring = Ring.reopen(ring_path)
    if ring is None:
        return None
    if ring.static.run_id != run_id.encode() or ring.static.boot_id != boot_id():
        ring.close()
        raise ForeignFile(f"{ring_path} belongs to another run or another boot")
    writer = RingWriter.resume(ring)
    ring.taken = min(ring.slots, writer.blocks.head_block + 1)
    if written is not None:
        writer.blocks.written_blocks = min(max(writer.blocks.written_blocks, written.head), writer.blocks.closed_blocks)
        writer.blocks.first_available = max(writer.blocks.first_available, written.first_available)
    return writer
