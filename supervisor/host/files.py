"""Private files, stored JSON, and whether untrusted users can change a file that the daemon executes.

Standard library only: the root process loads this.
"""

import errno
import json
import os
import stat
from collections.abc import Collection
from typing import Any, NamedTuple

DAMAGED = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading stored JSON raises if it is damaged or of another version. RecursionError: it is nested too deeply."""

_MAX_LINKS = 40
"""The number of symbolic links that the kernel follows (path_resolution(7))."""


class ExposedFile(NamedTuple):
    """A file or directory that another user can change."""

    path: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        """Return the path, the reason and the command that fixes it."""
        return f"{self.path} {self.reason}; run: {self.remedy}"


def exposed(path: str, owners: Collection[int]) -> ExposedFile | None:
    """Return the first component of a path that users other than the owners can change; None if there is none.

    The components are the root directory, each directory of the path, and each symbolic link with the path of its
    target. A directory with the sticky bit may be writable by others, because they cannot replace the owners' files in
    it. But they can create a missing file, so if the path does not exist, the sticky bit does not count.

    Args:
        path: An absolute path. Its last components need not exist.
        owners: The ids of the trusted users.

    Raises:
        OSError: a component cannot be examined.
        ValueError: the path is not absolute.
    """
    if not os.path.isabs(path):
        raise ValueError(f'"{path}" is not an absolute path')
    at, links = "/", 0
    exposed_path = exposure("/", os.lstat("/"), owners)
    parts = path.split("/")[::-1]
    while exposed_path is None and parts:
        part = parts.pop()
        if part in ("", "."):
            continue
        if part == "..":
            at = os.path.dirname(at)
            continue
        here = os.path.join(at, part)
        try:
            status = os.lstat(here)
        except FileNotFoundError:
            return exposure(at, os.lstat(at), owners, sticky=False)
        exposed_path = exposure(here, status, owners)
        if not stat.S_ISLNK(status.st_mode):
            at = here
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(here)
        at = "/" if target.startswith("/") else at
        parts += target.split("/")[::-1]
    return exposed_path


def exposure(path: str, status: os.stat_result, owners: Collection[int], *, sticky: bool = True) -> ExposedFile | None:
    """Return why others can change this one file, apart from its parent directories; None if they cannot.

    Args:
        path: The path of the file, for the result.
        status: The result of lstat(2), which describes a symbolic link itself.
        owners: The ids of the trusted users.
        sticky: Whether the sticky bit of a directory protects its files.
    """
    mode = stat.S_IMODE(status.st_mode)
    link = stat.S_ISLNK(status.st_mode)
    if status.st_uid not in owners:
        return ExposedFile(path, f"belongs to user {status.st_uid}", f"chown {'-h ' if link else ''}root {path}")
    if link or (sticky and stat.S_ISDIR(status.st_mode) and mode & stat.S_ISVTX):
        return None  # the mode of a symbolic link has no meaning (symlink(7))
    if mode & stat.S_IWOTH:
        return ExposedFile(path, f"is writable by everyone (mode {mode:04o})", f"chmod go-w {path}")
    if mode & stat.S_IWGRP:  # with an access control list, these bits are its mask, so they cover its users (acl(5))
        return ExposedFile(path, f"is writable by group {status.st_gid} (mode {mode:04o})", f"chmod g-w {path}")
    return None


def private(path: str, flags: int) -> int:
    """Create a file that only its owner can read; this is an opener for :func:`open`."""
    return os.open(path, flags, 0o600)


def replace_file(path: str, content: str | bytes, *, durable: bool = False, mode: int = 0o600) -> None:
    """Write a file atomically: readers see the old content or the new one.

    If it is `durable`, so does the host after a crash.

    Args:
        path: The path of the file. The new content is first written to ``path.new``.
        content: The content. Text is encoded as UTF-8; file names can contain bytes that are not (surrogateescape).
        durable: Whether to call fsync(2) for the file and its directory.
        mode: The mode of the file, regardless of the umask.

    Raises:
        OSError: the file cannot be written.
    """
    new = f"{path}.new"
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, mode)
        write_all(fd, data)
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(new, path)
    if durable:
        directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data` to a regular file.

    Raises:
        OSError: the disk is full or failing. A part may be written.
    """
    while data:
        data = data[os.write(fd, data) :]


def make_parents(path: str) -> None:
    """Create the missing parents of `path`, writable only for their owner.

    A user who can write to a parent could rename its entries, and so replace the directory. :func:`os.makedirs` is not
    used: it leaves the modes of parents to the umask.

    Raises:
        OSError: a parent cannot be created.
    """
    parent = os.path.dirname(path)
    if parent in ("", path) or os.path.isdir(parent):
        return
    make_parents(parent)
    try:
        os.mkdir(parent, 0o755)
    except FileExistsError:  # another process has just created it, or it is not a directory
        if not os.path.isdir(parent):
            raise


def read_json(path: str) -> Any:
    """Return the content of a JSON file that a process of the daemon wrote.

    Raises:
        OSError: the file cannot be read.
        ValueError, RecursionError: it is not JSON; they are among :data:`DAMAGED`.
    """
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return json.load(file)


def nearest_existing(path: str) -> str:
    """Return the path if it exists, or else its nearest existing parent directory."""
    while not os.path.exists(path):
        path = os.path.dirname(path) or "."  # of a relative path
    return path
