"""Makes a consistent copy of a data directory, even while a daemon uses it.

The database is copied first, in the state of one moment. Then the logs of its runs are copied, as far as they are
written. So each copied log belongs to a run in the copy. Files that only a running daemon needs are not copied: locks,
sockets, secret parameters of runs, and ``config.last``, which has all secrets of the configuration in plain text.
"""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from logring.errors import LogError
from logring.log_paths import frames_path
from logring.reader import LogReader
from store.database import Database, open_reader
from store.errors import StoreError
from store.recovery.online_copy import duplicate
from store.runs.ids import is_ulid

_DATABASE = "ringward.db"
_LOGS = "logs"
_ID = "id"
_LOG_SUFFIX = ".log"
_UNFINISHED = ".unfinished"


class CannotCopy(Exception):
    """The database cannot be copied."""


class TargetInside(Exception):
    """The copy would contain itself."""


@dataclass
class CopyContent:
    """The content of a copy.

    Attributes:
        runs: The number of runs in the database; None if the database is on a server and thus not in the copy.
        logs: The number of log files.
        size_bytes: The size of all files.
        damaged: The damaged logs, each with its error.
    """

    directory: str
    runs: int | None = None
    logs: int = 0
    size_bytes: int = 0
    damaged: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return {
            "directory": self.directory,
            "runs": self.runs,
            "logs": self.logs,
            "bytes": self.size_bytes,
            "damaged": self.damaged,
        }


def back_up(data_dir: str, target: str, *, database_url: str | None = None) -> CopyContent:
    """Copy a data directory, and read the copy to verify it.

    Args:
        data_dir: The data directory of a daemon, which may be running.
        target: The path of the copy, which must not exist. Until the copy is complete, its name ends in
            ``.unfinished``.
        database_url: The URL of a PostgreSQL database. Such a database is not copied, but the logs of all runs are.

    Raises:
        FileExistsError: `target` exists.
        TargetInside: `target` is in the data directory.
        CannotCopy: the database cannot be copied.
        OSError: another file cannot be copied.
    """
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "already exists; nothing is overwritten", target)
    parent, data = os.path.realpath(os.path.dirname(target)), os.path.realpath(data_dir)
    if os.path.commonpath((parent, data)) == data:
        raise TargetInside(f"{target} is inside {data}, which the backup copies; choose a directory outside it")
    making = target + _UNFINISHED
    os.mkdir(making, 0o700)
    copied = CopyContent(target)
    try:
        database = None
        if database_url is None:
            path = os.path.join(making, _DATABASE)
            duplicate(os.path.join(data_dir, _DATABASE), path)
            copied.size_bytes += os.path.getsize(path)
            database = open_reader(path, limit_s=None)
            copied.runs = database.rows("SELECT count(*) FROM runs")[0][0]
        with contextlib.closing(database) if database is not None else contextlib.nullcontext():
            with contextlib.suppress(FileNotFoundError):  # the daemon has never completed a start
                copied.size_bytes += _copy(os.path.join(data_dir, _ID), os.path.join(making, _ID))
            for log in _logs(data_dir, database):
                _copy_log(data_dir, making, log, copied)
        owner = os.stat(data_dir)
        if os.geteuid() == 0 != owner.st_uid:
            with contextlib.suppress(PermissionError):  # EPERM: the file system does not support other owners
                _give(making, owner)
        os.sync()
        os.rename(making, target)
    except StoreError as err:
        shutil.rmtree(making, ignore_errors=True)
        raise CannotCopy(f"cannot copy the database: {err}") from err
    except BaseException:  # including Ctrl-C: no incomplete copy must remain
        shutil.rmtree(making, ignore_errors=True)
        raise
    return copied


def _give(making: str, owner: os.stat_result) -> None:
    """Make the daemon's user the owner of the copy, so that the copy can replace the data directory.

    Until all owners are changed, only root can enter the copy. A symbolic link in its place is not followed.

    Raises:
        PermissionError: an owner cannot be changed.
    """
    fd = os.open(making, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_uid != 0:
            raise PermissionError(errno.EPERM, "another directory was created there meanwhile", making)
        for _, directories, names, at in os.fwalk(".", topdown=False, dir_fd=fd):
            for name in (*directories, *names):
                os.chown(name, owner.st_uid, owner.st_gid, dir_fd=at, follow_symlinks=False)
        os.fchown(fd, owner.st_uid, owner.st_gid)
    finally:
        os.close(fd)


def _logs(data_dir: str, database: Database | None) -> Iterator[str]:
    """Yield the paths of the logs of known runs, relative to the data directory; None: of all runs."""
    for directory, _, names in os.walk(os.path.join(data_dir, _LOGS)):
        for name in names:
            run_id = name.removesuffix(_LOG_SUFFIX)
            if run_id != name and is_ulid(run_id) and (database is None or _has(database, run_id)):
                yield os.path.relpath(os.path.join(directory, name), data_dir)


def _has(database: Database, run_id: str) -> bool:
    return database.row("SELECT 1 FROM runs WHERE id = ?", [run_id]) is not None


def _copy_log(data_dir: str, making: str, log: str, copied: CopyContent) -> None:
    """Copy a log with its sidecar, unless it has just been removed, and check whether the copy can be read."""
    target = os.path.join(making, log)
    os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
    try:
        copied.size_bytes += _copy(os.path.join(data_dir, log), target)
    except FileNotFoundError:
        return
    copied.logs += 1
    with contextlib.suppress(FileNotFoundError):  # most logs have no sidecar
        copied.size_bytes += _copy(frames_path(os.path.join(data_dir, log)), frames_path(target))
    reader = LogReader(None, target)
    try:
        head = reader.head()
        if head.lines > head.first_available:
            reader.read(head.lines - 1, 1)
    except LogError as err:
        copied.damaged.append(f"{log}: {err}")
    finally:
        reader.close()


def _copy(source: str, target: str) -> int:
    """Copy the present content of a file; return its size.

    The copy keeps the mode and the times, which tell the janitor whether and when it must compress a log.
    """
    fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(fd, "rb") as reading:
        status = os.fstat(fd)
        mode = stat.S_IMODE(status.st_mode)
        making = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(making, "wb") as writing:
            shutil.copyfileobj(reading, writing, 1 << 20)
            size = writing.tell()
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    return size
