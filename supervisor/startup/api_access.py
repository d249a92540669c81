"""Read access of API workers with another user: granted at each start, and private to the daemon without them.

The workers belong to the group of the files that they may read, and own only the directory for audit entries.
"""

import os
import stat

from logring.logfile.file_owner import FOR_READERS, LISTED_FOR_READERS, readers_of
from supervisor.ipc.messages import Boot
from supervisor.startup.api_user import LOGS

_PRIVATE = 0o700
_PASSABLE = 0o711
_READABLE = 0o040
_OWN = 0o600
_RING = ".ring"


def share(boot: Boot) -> None:
    """Open the data directory and the runtime directory to those workers, or make both private. Both belong to us.

    Raises:
        OSError: something there cannot be changed.
    """
    gid = None if boot.api_account is None else boot.api_account[1]
    if gid is not None:
        os.chmod(os.path.dirname(boot.runtime_dir), _PASSABLE)
    _share_data(os.path.realpath(boot.data_dir), gid)
    _give(boot.runtime_dir, gid, LISTED_FOR_READERS)
    for name in os.listdir(boot.runtime_dir):
        if name.endswith(_RING):
            _give(f"{boot.runtime_dir}/{name}", gid)
    _share_audit(boot)


def _share_data(data_dir: str, gid: int | None) -> None:
    """Share existing logs first, and the directory itself last, so that an interrupted run is repeated."""
    if gid is None and readers_of(data_dir) is None:
        return
    logs = os.path.realpath(os.path.join(data_dir, LOGS))  # people have them on another disk, behind a link
    if os.path.isdir(logs) and readers_of(logs) != gid:
        for directory, _, names in os.walk(logs, topdown=False):
            for name in names:
                _give(os.path.join(directory, name), gid)
            _give(directory, gid)
    _give(data_dir, gid)


def _give(path: str, gid: int | None, entered: int = FOR_READERS) -> None:
    """Let a group read a file or enter a directory, or only its owner, whose permissions for a file stay."""
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


def _share_audit(boot: Boot) -> None:
    """Share the one directory that the workers own; its content goes with it, and no other user keeps access."""
    uid, gid = boot.api_account or (os.geteuid(), os.getegid())
    os.makedirs(boot.audit_dir, _PRIVATE, exist_ok=True)
    directory = os.open(boot.audit_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        another = os.fstat(directory).st_uid != uid
        if another:
            os.fchown(directory, os.geteuid(), os.getegid())
        os.fchmod(directory, _PRIVATE)  # whatever the umask is, or its user made of it
        if another:
            for name in os.listdir(directory):
                _hand_over(name, directory, uid, gid)
            os.fchown(directory, uid, gid)
    finally:
        os.close(directory)


def _hand_over(name: str, directory: int, uid: int, gid: int) -> None:
    """Give entries of another user there to this one: only a plain file with a single name."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError:  # ELOOP, ENXIO: a link, a socket
        return
    try:
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            os.fchown(fd, uid, gid)
            os.fchmod(fd, _OWN)
    finally:
        os.close(fd)
