"""Whom a file is for, by the directory that it stands in.

A directory of mode 0710 is also for readers, who are of its group: they may read its logs and rings, and cannot list or
change it. One that they may list has 1750, which nobody has by accident. In any other one a file is its owner's alone,
whatever that directory permits. So whoever makes a file or a directory need not know who reads: it is enough that the
topmost one was made for them.
"""

import os
import stat
from contextlib import suppress

FOR_READERS = 0o710
LISTED_FOR_READERS = 0o1750
_FILE = 0o640


def readers_of(directory: str) -> int | None:
    """The group whose members may read what is in a directory; None: it is its owner's alone.

    Raises:
        OSError: there is no such directory.
    """
    status = os.stat(directory)
    return status.st_gid if stat.S_IMODE(status.st_mode) in (FOR_READERS, LISTED_FOR_READERS) else None


def share_file(fd: int, path: str) -> None:
    """Let those read a new file for whom its directory is.

    Raises:
        OSError: its directory is gone.
    """
    gid = readers_of(os.path.dirname(path))
    if gid is not None:
        with suppress(PermissionError):  # not a group of ours: the file stays our own
            os.fchown(fd, -1, gid)
            os.fchmod(fd, _FILE)


def make_directory(path: str) -> None:
    """Make a directory for those for whom the one above it is.

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
    """Make a directory and those above it that are missing, for those for whom the first that is there is.

    Raises:
        OSError: it cannot be made; or what stands there is a link, and what it leads to is not there.
    """
    if not path:
        return
    try:
        make_directory(path)
    except FileExistsError:
        if os.path.islink(path):  # whoever looks for what is not there would have it made again and again
            os.stat(path)
    except FileNotFoundError:
        make_directories(os.path.dirname(path))
        make_directories(path)
