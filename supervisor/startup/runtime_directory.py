"""The runtime directory, for rings and internal sockets. It is in shared memory, and accessible only to its user."""

import contextlib
import fcntl
import glob
import os
import shutil
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from supervisor.host.shared_memory import MOUNTS, UnusableDirectory, file_system_types, prepare_directory
from supervisor.ipc.messages import LOCK
from supervisor.startup.refusal import NotStarted, RefusalCause

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the owner and mode of what lies there are checked


def prepare(daemon_id: str, environ: Mapping[str, str], mounts: str = MOUNTS, *, shared: bool = False) -> str:
    """Create the runtime directory of a daemon in the first suitable place; prefer a place where it already exists.

    Args:
        daemon_id: identity of the data directory.
        environ: the environment, for XDG_RUNTIME_DIR.
        mounts: path of the table of mounts.
        shared: whether another user needs access.

    Raises:
        NotStarted: no place is suitable; the message gives the reason for each.
    """
    types = file_system_types(mounts)
    reasons = []
    for base in bases(daemon_id, environ, shared=shared):
        path = os.path.join(base, daemon_id)
        try:
            prepare_directory(base, path, types)
        except UnusableDirectory as err:
            reasons.append(f"\n  {base}: {err}")
        except OSError as err:
            reasons.append(f"\n  {base}: {err.strerror or err}")
        else:
            return path
    message = f"no place in shared memory (tmpfs) for the runtime directory:{''.join(reasons)}"
    raise NotStarted(message, RefusalCause.DATA_DIRECTORY)


def bases(daemon_id: str, environ: Mapping[str, str], *, shared: bool) -> list[str]:
    """Return the directories in which :func:`prepare` may create the runtime directory, the best first."""
    euid = os.geteuid()
    directories = candidates({} if shared else environ, euid)  # XDG_RUNTIME_DIR is accessible to one user only
    # Prefer the place of an earlier daemon: rings that it left in a crash must be found.
    directories.sort(key=lambda base: not os.path.isdir(os.path.join(base, daemon_id)))
    if _is_others(_usual(euid), euid) and not any(base.startswith(_usual(euid)) for base in directories):
        # Another user has created the directory, which any user can do in /dev/shm. A random name cannot be predicted.
        directories.append(f"{_usual(euid)}-{os.urandom(4).hex()}")
    return directories


class LockedRuntimeDirectory(NamedTuple):
    """A runtime directory that this process has locked."""

    path: str
    lock: int
    """An inheritable descriptor that holds the lock (flock(2)) as long as it is open.

    The lock is on a file inside: any user who may read the directory itself could lock that.
    """
    new: bool
    """Whether it has no files of an earlier daemon."""


class IdentityInUse(Exception):
    """Another running daemon has the same identity."""


def acquire(daemon_id: str, environ: Mapping[str, str], *, shared: bool) -> LockedRuntimeDirectory:
    """Create the runtime directory of a daemon with :func:`prepare`, and lock it.

    Raises:
        IdentityInUse: a daemon with the same identity runs; one data directory is a copy of the other.
        NotStarted: no place is suitable.
    """
    while True:
        path = prepare(daemon_id, environ, shared=shared)
        name = os.path.join(path, LOCK)
        try:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # a daemon that just exited has removed the directory
            continue
        except OSError as err:  # ENOSPC
            with contextlib.suppress(OSError):  # ENOTEMPTY: it has files of an earlier daemon
                os.rmdir(path)
            raise NotStarted(f"{name} cannot be created: {err.strerror}", RefusalCause.DATA_DIRECTORY) from err
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise IdentityInUse from None
        if _is_still(name, fd):
            os.set_inheritable(fd, True)
            return LockedRuntimeDirectory(path, fd, os.listdir(path) == [LOCK])
        os.close(fd)


@contextlib.contextmanager
def removed_unless_started(runtime: LockedRuntimeDirectory) -> Iterator[None]:
    """Remove a new runtime directory if the start fails; nothing else would, because its name is stored later."""
    try:
        yield
    except BaseException:
        if runtime.new:
            shutil.rmtree(runtime.path, ignore_errors=True)
        os.close(runtime.lock)
        raise


def _is_still(path: str, fd: int) -> bool:
    """Return whether `path` is still the file that is open: a daemon that exits removes it, perhaps just before."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def candidates(environ: Mapping[str, str], euid: int) -> list[str]:
    """Return the directories in which a user may have runtime directories, the best first."""
    directories = ["/run/ringward"] if euid == 0 else []
    session = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(session):  # the XDG specification says to ignore a relative one
        directories.append(os.path.join(session, "ringward"))
    usual = _usual(euid)
    others = sorted(glob.glob(f"{glob.escape(usual)}-*"))
    return [*directories, *(path for path in (usual, *others) if not _is_others(path, euid))]


def _usual(euid: int) -> str:
    """Return the usual directory of a user in shared memory; anybody can create one there."""
    return f"{SHARED_MEMORY}/ringward-{euid}"


def _is_others(path: str, euid: int) -> bool:
    """Return whether `path` exists and belongs to another user."""
    try:
        return os.lstat(path).st_uid != euid
    except FileNotFoundError:
        return False
