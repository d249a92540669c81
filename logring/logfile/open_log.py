"""Opening log files, packed or not."""

import os

from logring.layout import KIND_FILE, KIND_PACKED, PAGE, Static
from logring.logfile.packed_file import PackedFile
from logring.logfile.stored_file import StoredFile


def open_log_file(path: str) -> StoredFile | None:
    """Open the file; return None if it does not exist yet.

    Raises:
        OSError: the file exists and cannot be opened or read.
        LogError: it is not a log file.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        page = os.pread(fd, PAGE, 0)
        if not page.strip(b"\0"):
            os.close(fd)
            return None  # it is being created, or the host crashed before its first page reached the disk
        static = Static.parse(page, path, KIND_FILE, KIND_PACKED)
    except BaseException:  # no other code would close the descriptor
        os.close(fd)
        raise
    return PackedFile(path, fd, static) if static.kind == KIND_PACKED else StoredFile(path, fd, static)
