"""Writing the whole log of a run at once."""

import contextlib
import os

from logring.layout import BLOCK_SIZE, STDOUT, RingShape
from logring.logfile.log_file import LogFileWriter
from logring.ring.writer import RingWriter


def write_sealed_log(path: str, ring_path: str, run_id: str, output: bytes, now_ms: int) -> int:
    """Write a log file with `output` as one stream, read at `now_ms` (ms since the epoch); return its lines.

    `ring_path` is the path of a ring that exists meanwhile.

    Raises:
        OSError: the file cannot be written.
    """
    blocks = 2 + 2 * len(output) // BLOCK_SIZE
    ring = RingWriter.new(ring_path, run_id, RingShape(blocks))
    file = LogFileWriter(path, ring, blocks)
    try:
        for start in range(0, len(output), BLOCK_SIZE):
            ring.append(STDOUT, output[start : start + BLOCK_SIZE], now_ms)
            file.write_closed()
        ring.seal(now_ms)
        file.finish()
        return ring.blocks.lines
    finally:
        file.close()
        ring.close()
        with contextlib.suppress(FileNotFoundError):  # without output, there is no ring
            os.unlink(ring_path)
