"""The free space of the file system with the log files."""

import os

from supervisor.ipc.messages import DaemonSettings

_DEFAULT_BYTES = 256 << 20
_DEFAULT_SHARE = 20  # one part in
_BACK_SHARE = 10


class DiskSpace:
    """Reports when log files must stop growing, so that the disk keeps a reserve for everything else.

    If the file system has a fixed number of inodes, 5 % of them are reserved as well.

    Args:
        directory: A directory on the file system.
        min_free_bytes: The reserve; None: the smaller of 256 MiB and 5 % of the file system; 0: no reserve.
    """

    def __init__(self, directory: str, min_free_bytes: int | None) -> None:
        self._directory = directory
        self._min_free = min_free_bytes
        self._short = False

    def configure(self, settings: DaemonSettings) -> None:
        """Set another reserve. Any thread may call it."""
        self._min_free = settings.min_free_bytes

    def shortage(self) -> str | None:
        """Return why log files must not grow; None: they may.

        After a shortage, log files may grow again when 10 % more than the reserve is free.
        """
        if self._min_free == 0:
            return None
        try:
            filesystem = os.statvfs(self._directory)
        except OSError:  # writing to the log file will report the error
            return None
        size, free = filesystem.f_blocks * filesystem.f_frsize, filesystem.f_bavail * filesystem.f_frsize
        required_bytes = min(_DEFAULT_BYTES, size // _DEFAULT_SHARE) if self._min_free is None else self._min_free
        inodes = filesystem.f_files // _DEFAULT_SHARE
        if self._short:
            required_bytes += required_bytes // _BACK_SHARE
            inodes += inodes // _BACK_SHARE
        if free < required_bytes:
            reason = f"only {free >> 20} MiB are free on the disk"
        elif filesystem.f_favail < inodes:
            reason = f"only {filesystem.f_favail} inodes are free on the disk"
        else:
            self._short = False
            return None
        self._short = True
        return reason
