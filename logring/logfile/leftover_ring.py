"""Recovery after a writer died: the content of its ring moves to the log file."""

import os

from logring.errors import Corrupt, ForeignFile
from logring.logfile.log_file import LogFileWriter
from logring.logfile.open_log import open_log_file
from logring.ring.ring import Ring
from logring.ring.writer import RingWriter


def save_leftover_ring(ring_path: str, log_path: str) -> int | None:
    """Write the ring's unwritten blocks and unfinished lines to the file, seal it and unlink the ring.

    Works on a private copy of the ring, so it takes no shared memory and can be repeated if it is interrupted. To be
    called only when the writer is dead.

    Args:
        ring_path: of the ring that was left.
        log_path: of its log file, which may or may not be there.

    Returns:
        The number of lines of the log; None when there is no ring (any more).

    Raises:
        OSError: something could not be read or written; the ring is still there.
        LogError: it is no ring of ours, or damaged; it is still there.
    """
    try:
        ring = Ring.private_copy(ring_path)
    except FileNotFoundError:
        return None
    if ring is None:  # the writer died before it published anything
        os.unlink(ring_path)
        return 0
    writer = RingWriter.resume(ring)
    try:
        if _is_sealed(log_path, ring):  # the writer died between sealing the file and unlinking the ring
            os.unlink(ring_path)
            return writer.lines
        # A log without a file (our own) gets a file with the content of the ring.
        writer.file_blocks = ring.static.file_blocks or ring.slots + 1
        writer.seal(writer.last_ms)
        log = LogFileWriter(log_path, writer, writer.file_blocks)
        try:
            log.finish()
        finally:
            log.close()
        return writer.lines
    finally:
        writer.close()


def _is_sealed(log_path: str, ring: Ring) -> bool:
    try:
        file = open_log_file(log_path)
        if file is None:
            return False
        try:
            return file.static.run_id == ring.static.run_id and file.publication().state.sealed
        finally:
            file.close()
    except (ForeignFile, Corrupt):  # begun, or anything but the whole log
        return False
