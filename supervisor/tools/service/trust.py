"""Whether users besides root could change files that root is to run."""

import grp
import os
import pwd
import stat


def distrusted(path: str) -> str | None:
    """Return why root should not run the file; None: only root can change it.

    Looked at are the file, where it leads, and each directory above.
    """
    for one in (path, os.path.realpath(path)):
        while one != "/":
            try:
                status = os.stat(one)
            except OSError as err:
                return f"{one}: {err.strerror}"
            if status.st_uid != 0:
                return f"{one} belongs to {_name(status.st_uid)}"
            sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
            if status.st_mode & stat.S_IWOTH and not sticky:
                return f"{one} is writable by everyone"
            if status.st_mode & stat.S_IWGRP and status.st_gid != 0 and not sticky:
                return f"{one} is writable by group {_group(status.st_gid)}"
            one = os.path.dirname(one)
    return None


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
