"""Read access for API workers that run as another user, granted at each start; otherwise files are the daemon's alone.

The files that workers may read get their group. They own only the directory for audit entries.
"""

import os
import stat

from logring.logfile.file_owner import FOR_READERS, LISTED_FOR_READERS, readers_of
from supervisor.ipc.messages import DaemonSettings
from supervisor.startup.api_user import LOGS

_PRIVATE = 0o700
_PASSABLE = 0o711
_READABLE = 0o040
_OWN = 0o600
_RING = ".ring"


def share(settings: DaemonSettings) -> None:
    """Let the workers read the data and runtime directories, or make both private. The daemon's user must own both.

    Raises:
        OSError: an owner or a mode cannot be changed.
    """
    gid = None if settings.api_account is None else settings.api_account[1]
    if gid is not None:
        os.chmod(os.path.dirname(settings.runtime_dir), _PASSABLE)
    _share_data(os.path.realpath(settings.data_dir), gid)
    _give(settings.runtime_dir, gid, LISTED_FOR_READERS)
    for name in os.listdir(settings.runtime_dir):
        if name.endswith(_RING):
            _give(f"{settings.runtime_dir}/{name}", gid)
    _share_audit(settings)


def _share_data(data_dir: str, gid: int | None) -> None:
    """Share contents before the directory that has them: its group then tells that nothing was left out."""
    if gid is None and readers_of(data_dir) is None:
        return
    logs = os.path.realpath(os.path.join(data_dir, LOGS))  # it may be a link to another disk
    if os.path.isdir(logs) and readers_of(logs) != gid:
        for directory, _, names in os.walk(logs, topdown=False):
            for name in names:
                _give(os.path.join(directory, name), gid)
            _give(directory, gid)
    _give(data_dir, gid)


def _give(path: str, gid: int | None, entered: int = FOR_READERS) -> None:
    """Let group `gid` read a file, or enter a directory; None: let only the owner.

    The owner's permissions for a file do not change.
    """
    status = os.lstat(path)
    if stat.S_ISDIR(status.st_mode):
        mode = _PRIVATE if gid is None else entered
    elif stat.S_ISREG(status.st_mode):
        mode = status.st_mode & stat.S_IRWXU | (0 if gid is None else _READABLE)
    else:
        return
    if gid is not None and status.st_gid != gid:
        os.chown(path, -1, gid, follow_symlinks=False)
    if stat.S_IMODE(status.st_mode) != mode:
        os.chmod(path, mode)


def _share_audit(settings: DaemonSettings) -> None:
    """Make the workers' user the owner of the directory for audit entries, and of its files."""
    uid, gid = settings.api_account or (os.geteuid(), os.getegid())
    os.makedirs(settings.audit_dir, _PRIVATE, exist_ok=True)
    directory = os.open(settings.audit_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        another = os.fstat(directory).st_uid != uid
        if another:
            os.fchown(directory, os.geteuid(), os.getegid())
        os.fchmod(directory, _PRIVATE)  # the umask, or the user of the workers, may have changed the mode
        if another:
            for name in os.listdir(directory):
                _hand_over(name, directory, uid, gid)
            os.fchown(directory, uid, gid)
    finally:
        os.close(directory)


def _hand_over(name: str, directory: int, uid: int, gid: int) -> None:
    """Make `uid` the owner of a file with entries: only of a regular file without other links.

    The previous owner may have put a link to another file there, which would change hands.
    """
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError:  # ELOOP: a symbolic link; ENXIO: a socket
        return
    try:
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            os.fchown(fd, uid, gid)
            os.fchmod(fd, _OWN)
    finally:
        os.close(fd)
