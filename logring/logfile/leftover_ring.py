"""Recovery after a writer died: the content of its ring moves to the log file."""

import os

from logring.errors import Corrupt, ForeignFile
from logring.logfile.log_file import LogFileWriter
from logring.logfile.open_log import open_log_file
from logring.ring.ring import Ring
from logring.ring.writer import RingWriter


def save_leftover_ring(ring_path: str, log_path: str) -> int | None:
    """Write the ring's unwritten blocks and unfinished lines to the log file, seal the file and unlink the ring.

    The function works on a private copy of the ring, so it needs no shared memory and can be repeated after an
    interruption. Call it only after the writer has died.

    Args:
        ring_path: path of the leftover ring.
        log_path: path of its log file, which may not exist.

    Returns:
        The number of lines in the log; None if there is no ring.

    Raises:
        OSError: something could not be read or written; the ring still exists.
        LogError: the file is not a ring, or the ring is damaged; it still exists.
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
            return writer.blocks.lines
        # A log without a file, such as the daemon's own, gets a file with the content of the ring.
        writer.blocks.file_blocks = ring.static.file_blocks or ring.slots + 1
        writer.seal(writer.last_ms)
        log = LogFileWriter(log_path, writer, writer.blocks.file_blocks)
        try:
            log.finish()
        finally:
            log.close()
        return writer.blocks.lines
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
    except (ForeignFile, Corrupt):  # incomplete or damaged, so it is not the whole log
        return False
