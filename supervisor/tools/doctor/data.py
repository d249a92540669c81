"""Checks the data directory, its disk, the exports and the database."""

import os
import stat
from typing import TYPE_CHECKING

from logring.logfile.file_owner import FOR_READERS
from supervisor.host.files import DAMAGED, nearest_existing, read_json
from supervisor.ipc.helper_messages import from_fields
from supervisor.ipc.log_jobs import ExportStatus, status_path
from supervisor.ipc.log_line import stamp
from supervisor.ipc.plural import counted
from supervisor.startup.data_directory import HOMELESS, RESERVE
from supervisor.tools.doctor.finding import Finding, size

if TYPE_CHECKING:
    from supervisor.config.model import Config

_RESERVE_BYTES = 256 << 20
_RESERVE_SHARE = 0.05
_INODES = 1000
_DATABASE_BYTES = 16 << 20
"""The size of the reserve file, which the daemon releases for the database when the disk is full."""
_DATABASE = "ringward.db"
_WRITABLE = "mount it writable, or set another data_dir"
_SECRET = stat.S_IRWXG | stat.S_IRWXO


def directory(path: str, readers: int | None = None) -> Finding:
    """Check that only the daemon can write to the data directory, and that only the group `readers` can read it."""
    check = "data directory"
    if not os.path.isabs(path):
        text, _, remedy = f"cannot use {path}: {HOMELESS}".partition("; ")
        return Finding(check, "fail", text, remedy)
    try:
        status = os.stat(path)
    except FileNotFoundError:
        above = nearest_existing(path)
        if _is_read_only(above):
            text = f"cannot create {path}: {above} is on a read-only file system"
            return Finding(check, "fail", text, _WRITABLE)
        return Finding(check, "ok", f"{path} does not exist yet; the first start creates it")
    except OSError as err:
        return Finding(check, "fail", f"{path}: {err.strerror}", "run this as the daemon's user, or as root")
    mode = stat.S_IMODE(status.st_mode)
    if _is_read_only(path):
        return Finding(check, "fail", f"{path} is on a read-only file system", _WRITABLE)
    if not stat.S_ISDIR(status.st_mode):
        return Finding(check, "fail", f"{path} is not a directory", "set another data_dir")
    if not os.access(path, os.W_OK | os.X_OK):
        text = f"{path} belongs to user {status.st_uid} and cannot be written by user {os.geteuid()}"
        return Finding(check, "fail", text, "run this as the daemon's user or as root, or change the owner")
    if mode & stat.S_IWOTH:
        return Finding(check, "fail", f"{path} is writable by everyone (mode {mode:04o})", _remedy(path, mode))
    if mode & _SECRET and (mode, status.st_gid) != (FOR_READERS, readers):
        return Finding(check, "warn", f"other users can enter {path} (mode {mode:04o})", f"chmod 700 {path}")
    return Finding(check, "ok", f"{path}, mode {mode:04o}")


def _is_read_only(path: str) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _remedy(path: str, mode: int) -> str:
    return "set data_dir to a directory of its own" if mode & stat.S_ISVTX else f"chmod 700 {path}"


def disk(path: str, min_free_bytes: int | None) -> Finding:
    """Check whether the disk has enough free space for logs and the database; `min_free_bytes` is configured."""
    check = "disk"
    has_reserve = os.path.exists(os.path.join(path, RESERVE))
    path = nearest_existing(path)
    filesystem = os.statvfs(path)
    free, total = filesystem.f_bavail * filesystem.f_frsize, filesystem.f_blocks * filesystem.f_frsize
    needed = min(_RESERVE_BYTES, int(total * _RESERVE_SHARE)) if min_free_bytes is None else min_free_bytes
    text = f"{size(free)} of {size(total)} free"
    if filesystem.f_files and filesystem.f_favail < _INODES:
        return Finding(check, "fail", f"{text}, but only {filesystem.f_favail} inodes", "remove files")
    if free < _DATABASE_BYTES and not has_reserve:
        return Finding(check, "fail", f"{text}: too little for the database", "free disk space, or use another disk")
    if free < needed:
        remedy = "free disk space, or lower keep_for, max_log_bytes or min_free_space"
        return Finding(check, "fail", f"{text}; below {size(needed)} logs do not grow", remedy)
    if free < 2 * needed:
        return Finding(check, "warn", f"{text}; below {size(needed)} logs do not grow", "free disk space soon")
    return Finding(check, "ok", text)


def export(data_dir: str, name: str) -> Finding:
    """Return the finding about an export, from the status that its process last stored."""
    check = f"export {name}"
    try:
        status = from_fields(ExportStatus, read_json(status_path(data_dir, name)))
    except FileNotFoundError:
        return Finding(check, "ok", "has not run yet")
    except (OSError, *DAMAGED) as err:
        return Finding(check, "warn", f"cannot read its state: {err}", "run this as the daemon's user, or as root")
    text = f"{counted(status.behind_lines, 'line')} behind, {counted(status.skipped, 'line')} lost"
    if status.lost_runs:
        text += f", {counted(status.lost_runs, 'run')} removed before delivery"
    if status.error is not None and status.failing_since is not None:
        text = f"failing since {stamp(status.failing_since)}: {status.error}; {text}"
        return Finding(check, "fail", text, "fix the cause; delivery then continues")
    return Finding(check, "ok", text)


def database(config: "Config", data_dir: str) -> Finding:
    """Check whether the database can be read and is intact. It is only read, so the daemon can be running."""
    from store.database import check_writable, open_reader
    from store.errors import StoreError

    check = "database"
    server = config.storage.database
    path = os.path.join(data_dir, _DATABASE)
    if server is None and _is_read_only(nearest_existing(path)):
        return Finding(check, "warn", f"cannot check {path} on a read-only file system", _WRITABLE)
    if server is None:
        try:
            os.stat(path)
        except FileNotFoundError:
            return Finding(check, "ok", "does not exist yet; the first start creates it")
        except OSError as err:
            return Finding(check, "fail", f"{path}: {err.strerror}", "run this as the daemon's user, or as root")
    try:
        reader = open_reader(path if server is None else server.url, limit_s=None)
        try:
            check_writable(reader)
            wrong = [] if server is not None else [row[0] for row in reader.rows("PRAGMA quick_check(3)")]
            runs = reader.rows("SELECT count(*) FROM runs")[0][0]
        finally:
            reader.close()
    except (StoreError, ImportError) as err:  # ImportError: the driver of the server is not installed
        return Finding(check, "fail", str(err), "restore a backup of the data directory, or check the daemon's log")
    if wrong not in ([], ["ok"]):
        return Finding(check, "fail", f"{path} is damaged: {'; '.join(wrong)}", "stop the daemon and restore a backup")
    return Finding(check, "ok", f"intact, {counted(runs, 'run')}")
