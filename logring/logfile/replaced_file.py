"""Files that are removed or moved away while they are written: they get their names and their content back."""

import os

from logring.logfile.file_owner import make_directories, share_file

_MOST_AT_ONCE = 1 << 30


def has_name(fd: int, path: str) -> bool:
    """Return whether the open file still has the name."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def made_again(fd: int, path: str) -> int:
    """Give the name to a whole copy of a file that has lost it; returns the descriptor of that, and closes `fd`.

    Raises:
        OSError: it cannot be made now; then `fd` is as it was.
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
    except BaseException:  # on every error: no other code closes the file or removes its incomplete copy
        os.close(copy)
        os.unlink(new)
        raise
    os.close(fd)
    return copy
