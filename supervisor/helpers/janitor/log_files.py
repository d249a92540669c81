"""All log files of a data directory, looked at as cheaply as that can be done: no file is opened."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from logring.logfile.compress import SUFFIX
from logring.paths import frames_path

_LOG = ".log"
_FRAMES = frames_path(_LOG)
_LEFT = _LOG + SUFFIX
_SECTOR = 512
"""In which stat(2) counts what a file occupies."""


class LogFile(NamedTuple):
    """A log file and its sidecar."""

    folder: str
    name: str
    ended_ms: int
    """When it was written last: for a sealed one the end of its run. Since the epoch."""
    size: int
    """Of the log file alone, in bytes."""
    occupied: int
    """Bytes on the disk, of both."""
    done: bool
    """Whether it is compressed, or was found not to gain by that: it is read-only then."""

    @property
    def path(self) -> str:
        """Where it stands."""
        return f"{self.folder}/{self.name}"

    @property
    def task(self) -> str:
        """Name of the task or service."""
        return self.folder.split("/")[-2]


def find_logs(root: str) -> Iterator[LogFile]:
    """All log files below the folder `root`; half-made ones of a janitor that died are removed, and empty folders.

    Raises:
        OSError: a folder cannot be read.
    """
    for task in _folders(root):
        for period in _folders(task):
            yield from _logs_in(period)
            remove_if_empty(period)
        remove_if_empty(task)


def mark_done(path: str) -> None:
    """Remember, in the file's mode, that the log was dealt with: nobody will write it any more."""
    with suppress(FileNotFoundError):
        os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) & ~stat.S_IWUSR)


def remove(path: str) -> None:
    """Remove a log and its sidecar, those that are there, and the folders that are empty then.

    Raises:
        OSError: it cannot be removed.
    """
    # In this order: a sidecar alone would never be found again.
    for part in (frames_path(path), path):
        with suppress(FileNotFoundError):
            os.unlink(part)
    folder = os.path.dirname(path)
    remove_if_empty(folder)
    remove_if_empty(os.path.dirname(folder))


def remove_if_empty(folder: str) -> None:
    """Remove a folder that is empty. Who needs it just now makes it again."""
    with suppress(OSError):
        os.rmdir(folder)


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:  # removed meanwhile
        return []


def _logs_in(folder: str) -> list[LogFile]:
    logs: list[tuple[str, os.stat_result]] = []
    frames: dict[str, int] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                with suppress(FileNotFoundError):
                    if name.endswith(_LOG):
                        logs.append((name, entry.stat(follow_symlinks=False)))
                    elif name.endswith(_FRAMES):
                        info = entry.stat(follow_symlinks=False)
                        frames[name.removesuffix(_FRAMES) + _LOG] = info.st_blocks * _SECTOR
                    elif name.endswith(_LEFT):
                        os.unlink(entry.path)
    except FileNotFoundError:
        return []
    return [
        LogFile(
            folder=folder,
            name=name,
            ended_ms=info.st_mtime_ns // 1_000_000,
            size=info.st_size,
            occupied=info.st_blocks * _SECTOR + frames.get(name, 0),
            done=not info.st_mode & stat.S_IWUSR,
        )
        for name, info in logs
        if stat.S_ISREG(info.st_mode)
    ]
