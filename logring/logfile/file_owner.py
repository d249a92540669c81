"""Whom a file is for, by the directory that it stands in.

A directory of mode 0710 also serves readers in its group: they may read its logs and rings, and cannot list or change
it. A directory that they may list has mode 1750, which no directory has by accident. In any other directory a file is
private to its owner, whatever the directory permits. So the code that makes a file or a directory need not know the
readers: only the topmost directory must be made for them.
"""

import os
import stat
from contextlib import suppress

FOR_READERS = 0o710
LISTED_FOR_READERS = 0o1750
_FILE = 0o640


def readers_of(directory: str) -> int | None:
    """Return the group whose members may read the files of a directory; None: only the owner may.

    Raises:
        OSError: there is no such directory.
    """
    status = os.stat(directory)
    return status.st_gid if stat.S_IMODE(status.st_mode) in (FOR_READERS, LISTED_FOR_READERS) else None


def share_file(fd: int, path: str) -> None:
    """Let the readers of its directory read a new file.

    Raises:
        OSError: its directory is gone.
    """
    gid = readers_of(os.path.dirname(path))
    if gid is not None:
        with suppress(PermissionError):  # not a group of ours: the file stays our own
            os.fchown(fd, -1, gid)
            os.fchmod(fd, _FILE)


def make_directory(path: str) -> None:
    """Make a directory with the same readers as its parent.

    Raises:
        FileExistsError: it is there.
        OSError: it cannot be made.
    """
    os.mkdir(path, 0o700)
    gid = readers_of(os.path.dirname(path) or ".")
    if gid is not None:
        with suppress(PermissionError):  # as above
            os.chown(path, -1, gid)
            os.chmod(path, FOR_READERS)


def make_directories(path: str) -> None:
    """Make a directory and its missing parents, with the same readers as the first existing parent.

    Raises:
        OSError: the directory cannot be made, or the path is a link whose target does not exist.
    """
    if not path:
        return
    try:
        make_directory(path)
    except FileExistsError:
        if os.path.islink(path):  # otherwise each caller that misses the directory would make it again
            os.stat(path)
    except FileNotFoundError:
        make_directories(os.path.dirname(path))
        make_directories(path)
