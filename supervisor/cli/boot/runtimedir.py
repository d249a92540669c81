"""The runtime directory: rings and internal sockets, on tmpfs, for nobody else.

Rings are mapped for writing, so they must lie in memory: on a disk, a full file system would kill the writer (SIGBUS)
and a frozen one would stop it. Python's statvfs does not tell the type of a file system; /proc/self/mountinfo
(proc_pid_mountinfo(5)) does.
"""

import fcntl
import glob
import os
import re
import stat
from collections.abc import Mapping
from typing import NamedTuple

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure
from supervisor.messages import LOCK

MOUNTS = "/proc/self/mountinfo"
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the owner and mode of what lies there are checked
_MAX_DIRECTORY_BYTES = 90
"""So that the sockets' names fit behind it into sun_path (108 bytes, unix(7))."""
_OCTAL = re.compile(r"\\([0-7]{3})")


class _Unfit(Exception):
    """A directory that will not do, and why."""


def prepare(daemon_id: str, environ: Mapping[str, str], mounts: str = MOUNTS, *, shared: bool = False) -> str:
    """Make the runtime directory of a daemon: the first place that is fit, or where it has been before.

    Args:
        daemon_id: identity of the data directory.
        environ: for XDG_RUNTIME_DIR.
        mounts: the table of mounts.
        shared: another user has to come there.

    Raises:
        Failure: there is no fit place; the message says why for each.
    """
    types = file_system_types(mounts)
    euid = os.geteuid()
    bases = places({} if shared else environ, euid)  # that of a session is for one user
    # Rings that a crash left behind are found only where they are: a place once chosen is kept.
    bases.sort(key=lambda base: not os.path.isdir(os.path.join(base, daemon_id)))
    if _is_others(_usual(euid), euid) and not any(base.startswith(_usual(euid)) for base in bases):
        # Another user has made the directory first. Nobody can do so with a name that is not known before.
        bases.append(f"{_usual(euid)}-{os.urandom(4).hex()}")
    reasons = []
    for base in bases:
        path = os.path.join(base, daemon_id)
        try:
            _fit(base, path, types)
        except _Unfit as err:
            reasons.append(f"\n  {base}: {err}")
        except OSError as err:
            reasons.append(f"\n  {base}: {err.strerror or err}")
        else:
            return path
    message = f"there is no place in shared memory (tmpfs) for the runtime directory:{''.join(reasons)}"
    raise Failure(message, exit_codes.DATA_DIR)


class Place(NamedTuple):
    """A runtime directory that is ours."""

    path: str
    lock: int
    """Descriptor, inheritable, that locks the directory for as long as it is open (flock(2)): of a file in it, since
    whoever may list the directory could lock that."""


class Taken(Exception):
    """Another daemon has this identity."""


def take(daemon_id: str, environ: Mapping[str, str], *, shared: bool) -> Place:
    """:func:`prepare` the runtime directory of a daemon, and lock it.

    Raises:
        Taken: another daemon has it, whose data directory has the same identity: one is a copy of the other.
        Failure: as :func:`prepare`.
    """
    while True:
        path = prepare(daemon_id, environ, shared=shared)
        name = os.path.join(path, LOCK)
        try:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # another daemon has just ended
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise Taken from None
        if _is_still(name, fd):
            os.set_inheritable(fd, True)
            return Place(path, fd)
        os.close(fd)


def _is_still(path: str, fd: int) -> bool:
    """Whether a file is still there under its name: who ends removes its own."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def places(environ: Mapping[str, str], euid: int) -> list[str]:
    """Directories below which runtime directories may be, the best first."""
    found = ["/run/ringward"] if euid == 0 else []
    session = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(session):  # the XDG specification: a relative one is to be ignored
        found.append(os.path.join(session, "ringward"))
    usual = _usual(euid)
    others = sorted(glob.glob(f"{glob.escape(usual)}-*"))
    return [*found, *(path for path in (usual, *others) if not _is_others(path, euid))]


def _usual(euid: int) -> str:
    """The directory of a user in shared memory, where everybody may make one."""
    return f"{SHARED_MEMORY}/ringward-{euid}"


def _is_others(path: str, euid: int) -> bool:
    """Whether it is there, and another user's."""
    try:
        return os.lstat(path).st_uid != euid
    except FileNotFoundError:
        return False


def file_system_types(mounts: str = MOUNTS) -> dict[str, str]:
    """Type of the file system at each mount point; of several on one, the one on top."""
    types = {}
    with open(mounts, encoding="utf-8", errors="surrogateescape") as table:
        for line in table:
            before, _, after = line.partition(" - ")
            types[_OCTAL.sub(lambda found: chr(int(found[1], 8)), before.split(" ")[4])] = after.split(" ")[0]
    return types


def type_of(path: str, types: Mapping[str, str]) -> str:
    """Type of the file system that `path` is on; empty when the table does not tell."""
    path = os.path.realpath(path)
    while path not in types:
        if path == "/":
            return ""
        path = os.path.dirname(path)
    return types[path]


def _fit(base: str, path: str, types: Mapping[str, str]) -> None:
    """Make `base` and `path`, owned by us and writable by nobody else.

    Raises:
        _Unfit: it is not on tmpfs, or somebody else could write there.
        OSError: it cannot be made.
    """
    if len(os.fsencode(path)) > _MAX_DIRECTORY_BYTES:
        raise _Unfit("the path is too long for sockets")
    parent = os.path.dirname(base)
    status = os.stat(parent)
    if status.st_uid not in (0, os.geteuid()):
        raise _Unfit(f"{parent} belongs to user {status.st_uid}")
    kind = type_of(base if os.path.isdir(base) else parent, types)
    if kind != "tmpfs":
        raise _Unfit(f"it is on {kind or 'an unknown file system'}, not on tmpfs")
    for directory in (base, path):
        _own(directory)


def _own(directory: str) -> None:
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        status = os.lstat(directory)
        if not stat.S_ISDIR(status.st_mode):
            raise _Unfit(f"{directory} is no directory") from None
        if status.st_uid != os.geteuid():
            raise _Unfit(f"{directory} belongs to user {status.st_uid}") from None
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise _Unfit(f"{directory} is writable by others") from None
