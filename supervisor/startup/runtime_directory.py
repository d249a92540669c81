"""The runtime directory: rings and internal sockets in shared memory, accessible to this user alone."""

import fcntl
import glob
import os
from collections.abc import Mapping
from typing import NamedTuple

from supervisor.host.shared_memory import MOUNTS, Unfit, file_system_types, fit
from supervisor.ipc.messages import LOCK
from supervisor.startup.refusal import Cause, NotStarted

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the owner and mode of what lies there are checked


def prepare(daemon_id: str, environ: Mapping[str, str], mounts: str = MOUNTS, *, shared: bool = False) -> str:
    """Make the runtime directory of a daemon: the first place that is fit, or where it has been before.

    Args:
        daemon_id: identity of the data directory.
        environ: for XDG_RUNTIME_DIR.
        mounts: the table of mounts.
        shared: another user has to come there.

    Raises:
        NotStarted: there is no fit place; the message says why for each.
    """
    types = file_system_types(mounts)
    reasons = []
    for base in bases(daemon_id, environ, shared=shared):
        path = os.path.join(base, daemon_id)
        try:
            fit(base, path, types)
        except Unfit as err:
            reasons.append(f"\n  {base}: {err}")
        except OSError as err:
            reasons.append(f"\n  {base}: {err.strerror or err}")
        else:
            return path
    message = f"no place in shared memory (tmpfs) for the runtime directory:{''.join(reasons)}"
    raise NotStarted(message, Cause.DATA_DIRECTORY)


def bases(daemon_id: str, environ: Mapping[str, str], *, shared: bool) -> list[str]:
    """Directories below which the runtime directory of a daemon may be made, the best first; as :func:`prepare`."""
    euid = os.geteuid()
    found = places({} if shared else environ, euid)  # that of a session is for one user
    # Rings that a crash left behind are found only where they are: a place once chosen is kept.
    found.sort(key=lambda base: not os.path.isdir(os.path.join(base, daemon_id)))
    if _is_others(_usual(euid), euid) and not any(base.startswith(_usual(euid)) for base in found):
        # Another user has made the directory first. A name that is not known before prevents that.
        found.append(f"{_usual(euid)}-{os.urandom(4).hex()}")
    return found


class Place(NamedTuple):
    """A runtime directory that is ours."""

    path: str
    lock: int
    """Descriptor, inheritable, that locks the directory for as long as it is open (flock(2)).

    It locks a file inside, since any user who may list the directory could lock the directory.
    """


class Taken(Exception):
    """Another daemon has this identity."""


def take(daemon_id: str, environ: Mapping[str, str], *, shared: bool) -> Place:
    """:func:`prepare` the runtime directory of a daemon, and lock it.

    Raises:
        Taken: another daemon has it, whose data directory has the same identity: one is a copy of the other.
        NotStarted: as :func:`prepare`.
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
    """Return whether a file is still there under its name: who ends removes its own."""
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
    """Return the directory of a user in shared memory, where everybody may make one."""
    return f"{SHARED_MEMORY}/ringward-{euid}"


def _is_others(path: str, euid: int) -> bool:
    """Return whether it is there, and another user's."""
    try:
        return os.lstat(path).st_uid != euid
    except FileNotFoundError:
        return False
