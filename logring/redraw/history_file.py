"""The writing end of a log's sidecar: it moves frames from the pump's queue to the disk.

The format is in `logring.redraw.history_format`. The writer belongs to the file thread. Frames matter less than lines:
frames that cannot be written are dropped, and no line waits for them.
"""

import os

from logring.logfile.file_owner import make_directories, share_file
from logring.logfile.replaced_file import has_name, made_again
from logring.redraw.history_format import (
    BLOCK_HEADER_SIZE,
    BLOCK_SIZE,
    BLOCKS_AT,
    HEADER_SIZE,
    Frames,
    blocks_beside,
    pack_block,
    pack_header,
    pack_record,
    parse_block,
)
from logring.redraw.redraw_writer import FrameQueue


class FramesWriter:
    """Writes the sidecar of one log.

    Args:
        path: path of the sidecar; the first write creates it and its directories.
        run_id: at most 32 bytes.
        queue: source of the frames.
        log_bytes: capacity of the log file, which determines that of the sidecar.
    """

    def __init__(self, path: str, run_id: str, queue: FrameQueue, log_bytes: int) -> None:
        self.path = path
        self._run_id = run_id.encode()
        self._queue = queue
        self._blocks = blocks_beside(log_bytes)
        self._fd = -1
        self._block = -1
        self._end = BLOCK_SIZE  # end of the block's records; initially full, so the first record opens a block

    def write(self) -> None:
        """Write the waiting frames.

        Raises:
            OSError: some frames could not be written; they are dropped.
        """
        items = self._queue.take()
        if not items:
            return
        if self._fd < 0:
            self._open()
        elif not has_name(self._fd, self.path):
            self._fd = made_again(self._fd, self.path)
        while items:
            items = self._write_to_block(items)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write_to_block(self, items: list[tuple[int, Frames]]) -> list[tuple[int, Frames]]:
        """Write as many frames as the block has room for; return the rest."""
        block, end, parts = self._block, self._end, []
        count = 0
        for line, frames in items:
            record = pack_record(block, line, frames)
            if end + len(record) > BLOCK_SIZE:
                if count:
                    break
                block, end = block + 1, BLOCK_HEADER_SIZE
                parts = [pack_block(block, line)]
                record = pack_record(block, line, frames)
            parts.append(record)
            end += len(record)
            count += 1
        data = b"".join(parts)
        _write(self._fd, data, BLOCKS_AT + block % self._blocks * BLOCK_SIZE + end - len(data))
        self._block, self._end = block, end
        return items[count:]

    def _open(self) -> None:
        """Open or create the file; in an existing file, continue with the next block."""
        make_directories(os.path.dirname(self.path))
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            header = pack_header(self._run_id, self._blocks)
            if os.pread(fd, HEADER_SIZE, 0) == header:
                heads = (os.pread(fd, BLOCK_HEADER_SIZE, BLOCKS_AT + n * BLOCK_SIZE) for n in range(self._blocks))
                self._block = max((parsed[0] for parsed in map(parse_block, heads) if parsed), default=-1)
            else:
                share_file(fd, self.path)
                os.ftruncate(fd, 0)
                _write(fd, header, 0)
        except BaseException:  # no other code would close the descriptor
            os.close(fd)
            raise
        self._fd = fd


def pwrite(fd: int, data: bytes, at: int) -> int:
    """Write to the file. All writes go through here, so a test can simulate a full disk."""
    return os.pwrite(fd, data, at)


def _write(fd: int, data: bytes, at: int) -> None:
    done = 0
    while done < len(data):
        done += pwrite(fd, data[done:], at + done)
