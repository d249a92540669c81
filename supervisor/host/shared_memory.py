"""Shared memory for rings: which file systems are tmpfs, and directories there that are for one user alone.

Rings are mapped for writing, so they must lie in memory: on a disk, a full file system would kill the writer (SIGBUS)
and a frozen one would stop it. Python's statvfs does not tell the type of a file system; /proc/self/mountinfo
(proc_pid_mountinfo(5)) does. Standard library only: the root process loads this.
"""

import os
import re
import stat
from collections.abc import Mapping

MOUNTS = "/proc/self/mountinfo"
_MAX_DIRECTORY_BYTES = 90
"""So that the sockets' names fit behind it into sun_path (108 bytes, unix(7))."""
_OCTAL = re.compile(r"\\([0-7]{3})")


class Unfit(Exception):
    """A directory that will not do, and why."""


def file_system_types(mounts: str = MOUNTS) -> dict[str, str]:
    """Return the type of the file system at each mount point; the topmost, if there are several."""
    types = {}
    with open(mounts, encoding="utf-8", errors="surrogateescape") as table:
        for line in table:
            before, _, after = line.partition(" - ")
            types[_OCTAL.sub(lambda found: chr(int(found[1], 8)), before.split(" ")[4])] = after.split(" ")[0]
    return types


def type_of(path: str, types: Mapping[str, str]) -> str:
    """Return the type of the file system of `path`; empty when the table has none."""
    path = os.path.realpath(path)
    while path not in types:
        if path == "/":
            return ""
        path = os.path.dirname(path)
    return types[path]


def fit(base: str, path: str, types: Mapping[str, str]) -> None:
    """Make `base` and `path`, owned by this user and writable only by it.

    Raises:
        Unfit: it is not on tmpfs, or another user could write there.
        OSError: it cannot be created.
    """
    if len(os.fsencode(path)) > _MAX_DIRECTORY_BYTES:
        raise Unfit("the path is too long for Unix sockets")
    parent = os.path.dirname(base)
    status = os.stat(parent)
    if status.st_uid not in (0, os.geteuid()):
        raise Unfit(f"{parent} belongs to user {status.st_uid}")
    kind = type_of(base if os.path.isdir(base) else parent, types)
    if kind != "tmpfs":
        raise Unfit(f"it is on {kind or 'an unknown file system'}, not on tmpfs")
    for directory in (base, path):
        _own(directory)


def _own(directory: str) -> None:
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        status = os.lstat(directory)
        if not stat.S_ISDIR(status.st_mode):
            raise Unfit(f"{directory} is not a directory") from None
        if status.st_uid != os.geteuid():
            raise Unfit(f"{directory} belongs to user {status.st_uid}") from None
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Unfit(f"{directory} is writable by other users") from None
