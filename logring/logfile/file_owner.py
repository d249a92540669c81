"""Access to new files and directories, derived from the directory that contains them.

Members of the group of a directory with mode 0710 may read its logs and rings, but cannot list or change it. A
directory that they may also list has mode 1750, which no directory has by accident. In any other directory a file is
private to its owner, whatever the directory's mode permits. So the code that creates files and directories need not
know the readers; only the topmost directory must be set up for them.
"""

import os
import stat
from contextlib import suppress

FOR_READERS = 0o710
LISTED_FOR_READERS = 0o1750
_FILE = 0o640


def readers_of(directory: str) -> int | None:
    """Return the group id of the users who may read a directory's files; None if only the owner may.

    Raises:
        OSError: there is no such directory.
    """
    status = os.stat(directory)
    return status.st_gid if stat.S_IMODE(status.st_mode) in (FOR_READERS, LISTED_FOR_READERS) else None


def share_file(fd: int, path: str) -> None:
    """Give the readers of a new file's directory read access to the file.

    Raises:
        OSError: the directory is gone.
    """
    gid = readers_of(os.path.dirname(path))
    if gid is not None:
        with suppress(PermissionError):  # this process is not in the group: the file stays private
            os.fchown(fd, -1, gid)
            os.fchmod(fd, _FILE)


def make_directory(path: str) -> None:
    """Make a directory with the same readers as its parent.

    Raises:
        FileExistsError: the path exists.
        OSError: the directory cannot be created.
    """
    os.mkdir(path, 0o700)
    gid = readers_of(os.path.dirname(path) or ".")
    if gid is not None:
        with suppress(PermissionError):  # as above
            os.chown(path, -1, gid)
            os.chmod(path, FOR_READERS)


def make_directories(path: str) -> None:
    """Create a directory and its missing parents, with the same readers as the nearest existing parent.

    Raises:
        OSError: the directory cannot be created, or the path is a symbolic link whose target does not exist.
    """
    if not path:
        return
    try:
        make_directory(path)
    except FileExistsError:
        if os.path.islink(path):  # a dangling link raises here; otherwise the recursion below would never end
            os.stat(path)
    except FileNotFoundError:
        make_directories(os.path.dirname(path))
        make_directories(path)
