"""A consistent copy of a data directory, even while a daemon uses it.

The database is copied first, as it is at one moment; then the logs of its runs, as far as they are written. So no run
is newer than the copy, and each log belongs to a run. Not copied are files without a meaning elsewhere: locks, sockets,
and the secret parameters of runs, which end with the daemon.
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
_ALONE = ("id", "config.last")
_LOG_SUFFIX = ".log"
_UNFINISHED = ".unfinished"


class CannotCopy(Exception):
    """The database cannot be copied."""


@dataclass
class Copied:
    """The content of a copy.

    Attributes:
        runs: In the database; None: that is a server's, and not in the copy.
        logs: Log files.
        size_bytes: Of all files.
        damaged: Logs with damaged parts, and their errors.
    """

    directory: str
    runs: int | None = None
    logs: int = 0
    size_bytes: int = 0
    damaged: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "directory": self.directory,
            "runs": self.runs,
            "logs": self.logs,
            "bytes": self.size_bytes,
            "damaged": self.damaged,
        }


def back_up(data_dir: str, target: str, *, database_url: str | None = None) -> Copied:
    """Copy a data directory, and read the copy.

    Args:
        data_dir: of a daemon, which may run.
        target: does not exist yet. Until the copy is complete, it has another name, which ends in ``.unfinished``.
        database_url: of a PostgreSQL server; such a database is not copied, and the logs of all runs are.

    Raises:
        FileExistsError: there is something at `target`.
        CannotCopy: the database cannot be copied.
        OSError: another file cannot be.
    """
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "already exists; nothing is overwritten", target)
    making = target + _UNFINISHED
    os.mkdir(making, 0o700)
    copied = Copied(target)
    try:
        known = None
        if database_url is None:
            path = os.path.join(making, _DATABASE)
            duplicate(os.path.join(data_dir, _DATABASE), path)
            copied.size_bytes += os.path.getsize(path)
            known = open_reader(path, limit_s=None)
            copied.runs = known.rows("SELECT count(*) FROM runs")[0][0]
        with contextlib.closing(known) if known is not None else contextlib.nullcontext():
            for name in _ALONE:
                with contextlib.suppress(FileNotFoundError):  # a daemon that never came so far
                    copied.size_bytes += _copy(os.path.join(data_dir, name), os.path.join(making, name))
            for log in _logs(data_dir, known):
                _copy_log(data_dir, making, log, copied)
        owner = os.stat(data_dir)
        if os.geteuid() == 0 != owner.st_uid:
            with contextlib.suppress(PermissionError):  # EPERM: a file system on which nothing has another owner
                _give(making, owner)
        os.sync()
        os.rename(making, target)
    except StoreError as err:
        shutil.rmtree(making, ignore_errors=True)
        raise CannotCopy(f"cannot copy the database: {err}") from err
    except BaseException:  # Ctrl-C, too, leaves nothing half made
        shutil.rmtree(making, ignore_errors=True)
        raise
    return copied


def _give(making: str, owner: os.stat_result) -> None:
    """Have the copy belong to the daemon's user, who could not use it in the place of the data directory else.

    Until that is done only root can enter it. Links put in its place are not followed.

    Raises:
        PermissionError: that cannot be.
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


def _logs(data_dir: str, known: Database | None) -> Iterator[str]:
    """Paths of the logs of known runs, relative to the data directory."""
    for directory, _, names in os.walk(os.path.join(data_dir, _LOGS)):
        for name in names:
            run_id = name.removesuffix(_LOG_SUFFIX)
            if run_id != name and is_ulid(run_id) and (known is None or _has(known, run_id)):
                yield os.path.relpath(os.path.join(directory, name), data_dir)


def _has(database: Database, run_id: str) -> bool:
    return database.row("SELECT 1 FROM runs WHERE id = ?", [run_id]) is not None


def _copy_log(data_dir: str, making: str, log: str, copied: Copied) -> None:
    """Copy a log with its sidecar, unless it is removed at this moment; look whether it can be read."""
    target = os.path.join(making, log)
    os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
    try:
        copied.size_bytes += _copy(os.path.join(data_dir, log), target)
    except FileNotFoundError:
        return
    copied.logs += 1
    with contextlib.suppress(FileNotFoundError):  # most have none
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
    """Copy the present content of a file; return its size. Mode and times are kept: the janitor uses them."""
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
