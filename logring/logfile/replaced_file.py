"""Restoring files that are removed or moved away while they are written."""

import os

from logring.logfile.file_owner import make_directories, share_file

_MOST_AT_ONCE = 1 << 30


def has_name(fd: int, path: str) -> bool:
    """Return whether `path` still names the open file."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def made_again(fd: int, path: str) -> int:
    """Copy a file that lost its name to `path`. Close `fd` and return the descriptor of the copy.

    Raises:
        OSError: the copy cannot be made now; `fd` stays open.
    """
    make_directories(os.path.dirname(path))
    new = f"{path}.again"
    copy = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        share_file(copy, new)
        size, done = os.fstat(fd).st_size, 0
        os.ftruncate(copy, size)
        while done < size and (count := os.sendfile(copy, fd, done, min(size - done, _MOST_AT_ONCE))):
            done += count
        os.replace(new, path)
    except BaseException:  # no other code would close and remove the incomplete copy
        os.close(copy)
        os.unlink(new)
        raise
    os.close(fd)
    return copy
