"""Finds and checks private directories on tmpfs, in which the daemon keeps its rings.

Rings are mapped for writing, so they must be in memory. On a disk, a full file system would kill the writer (SIGBUS),
and a frozen one would block it. Python's statvfs does not provide the type of a file system, but /proc/self/mountinfo
does (proc_pid_mountinfo(5)). Standard library only: the root process loads this.
"""

import os
import re
import stat
from collections.abc import Mapping

MOUNTS = "/proc/self/mountinfo"
_MAX_DIRECTORY_BYTES = 90
"""Limit of a directory's path, so that the paths of its sockets fit into sun_path (108 bytes, unix(7))."""
_OCTAL = re.compile(r"\\([0-7]{3})")


class UnusableDirectory(Exception):
    """A directory is unsuitable for rings; the message says why."""


def file_system_types(mounts: str = MOUNTS) -> dict[str, str]:
    """Return the type of the file system at each mount point; if several are stacked, that of the topmost."""
    types = {}
    with open(mounts, encoding="utf-8", errors="surrogateescape") as table:
        for line in table:
            before, _, after = line.partition(" - ")
            types[_OCTAL.sub(lambda match: chr(int(match[1], 8)), before.split(" ")[4])] = after.split(" ")[0]
    return types


def type_of(path: str, types: Mapping[str, str]) -> str:
    """Return the type of the file system that contains `path`; empty if it is unknown."""
    path = os.path.realpath(path)
    while path not in types:
        if path == "/":
            return ""
        path = os.path.dirname(path)
    return types[path]


def prepare_directory(base: str, path: str, types: Mapping[str, str]) -> None:
    """Create the directories `base` and `path`, unless they exist, for this user alone.

    Raises:
        UnusableDirectory: they are not on tmpfs, or another user could write to them.
        OSError: a directory cannot be created.
    """
    if len(os.fsencode(path)) > _MAX_DIRECTORY_BYTES:
        raise UnusableDirectory("the path is too long for Unix sockets")
    parent = os.path.dirname(base)
    status = os.stat(parent)
    if status.st_uid not in (0, os.geteuid()):
        raise UnusableDirectory(f"{parent} belongs to user {status.st_uid}")
    kind = type_of(base if os.path.isdir(base) else parent, types)
    if kind != "tmpfs":
        raise UnusableDirectory(f"it is on {kind or 'an unknown file system'}, not on tmpfs")
    for directory in (base, path):
        _make_private(directory)


def _make_private(directory: str) -> None:
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        status = os.lstat(directory)
        if not stat.S_ISDIR(status.st_mode):
            raise UnusableDirectory(f"{directory} is not a directory") from None
        if status.st_uid != os.geteuid():
            raise UnusableDirectory(f"{directory} belongs to user {status.st_uid}") from None
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UnusableDirectory(f"{directory} is writable by other users") from None
