"""Open a log file, packed or not."""

import os

from logring.layout import KIND_FILE, KIND_PACKED, PAGE, Static
from logring.logfile.packed import PackedFile
from logring.logfile.stored import StoredFile


def open_log_file(path: str) -> StoredFile | None:
    """Open the file; None when there is none (yet).

    Raises:
        OSError: it is there and cannot be opened or read.
        LogError: it is no log file of ours.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        page = os.pread(fd, PAGE, 0)
        if not page.strip(b"\0"):
            os.close(fd)
            return None  # being made, or nothing of it had reached the disk when the machine died
        static = Static.parse(page, path, KIND_FILE, KIND_PACKED)
    except BaseException:  # close it on every error, as no other code does
        os.close(fd)
        raise
    return PackedFile(path, fd, static) if static.kind == KIND_PACKED else StoredFile(path, fd, static)
