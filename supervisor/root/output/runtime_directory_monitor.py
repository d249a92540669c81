"""Creates the runtime directory again when it or one of its files is removed. Belongs to the control thread.

When a user logs out for the last time, logind removes the user's shared memory (RemoveIPC, logind.conf(5)), except for
system users and users with lingering. An administrator may also remove the directory by hand. A removed ring stays
mapped, so its content is copied into a new file. The sockets are created again, and the helpers restart because they
hold the old files. If the whole file system is gone ($XDG_RUNTIME_DIR was unmounted), the next suitable one is used.
"""

import contextlib
import fcntl
import os
import socket
from dataclasses import replace
from typing import Protocol

from logring.logfile.file_owner import LISTED_FOR_READERS
from supervisor.host.shared_memory import UnusableDirectory, file_system_types, prepare_directory
from supervisor.host.shortage import reason_of
from supervisor.ipc.listening_sockets import CannotListen, listen_again
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import LOCK, DaemonSettings
from supervisor.ipc.plural import counted
from supervisor.root.handover.quiesce import Quiesce
from supervisor.root.output.pump_thread import Pump

_POLL_S = 1.0
_TICK_MS = 100
"""Longer than a tick of the clock of file systems: two changes within one give a directory the same time."""
_PRIVATE = 0o700
_PASSABLE = 0o711


class RuntimeDirectoryListener(Protocol):
    """The part of the root that reacts to changes of the runtime directory."""

    def listen_again(self) -> None:
        """Make the doorbell of the rings listen on a new socket."""

    def on_runtime_directory_moved(self, settings: DaemonSettings) -> None:
        """Use settings with another directory, before anything is created there."""

    def on_runtime_directory_restored(self, is_new: bool) -> None:
        """Continue with the restored directory; `is_new`: it was empty, so it has no records of the runs."""


class RuntimeDirectoryMonitor:
    """Checks every second that the directory and its files exist.

    Args:
        settings: The settings.
        log: The daemon's log.
        pump: The pump, which owns the rings.
        quiesce: Stops the pump and the file thread.
        listeners: The sockets of the API; new sockets replace those whose files were removed.
        root: Reacts to changes of the directory.
    """

    def __init__(
        self,
        settings: DaemonSettings,
        log: Log,
        pump: Pump,
        quiesce: Quiesce,
        listeners: list[socket.socket],
        root: RuntimeDirectoryListener,
    ) -> None:
        self._settings = settings
        self._log = log
        self._pump = pump
        self._quiesce = quiesce
        self._listeners = listeners
        self._root = root
        self._has_recent_starts = os.path.lexists(self._recent_starts_path)
        """Whether the file of records exists. Without memory for it, it was never created, so it cannot be missing."""
        self._complete: tuple[int, int, int, bool] | None = None
        """The state of the directory, and whether the scheduler works, when no file was missing; None: unknown."""
        self._failing = ""
        """The last logged reason why the directory cannot be restored; empty: no failure."""
        self.new_lock: int | None = None
        """The lock of a new directory, until the control thread takes it over."""
        self.due_s = pump.clock.monotonic_s() + _POLL_S
        """When :meth:`tick` is due (monotonic seconds)."""
        self._quiescing = False
        """Whether the other threads were asked to wait."""

    def tick(self, now_s: float, *, scheduler_works: bool) -> None:
        """Check the files if it is time, and start to restore them if one is missing."""
        if now_s < self.due_s:
            return
        self.due_s = now_s + _POLL_S
        if self._quiescing:
            return
        self._pump.files.check_data_directory()  # before the threads pause: it may have the API's socket
        missing = self._missing_files(scheduler_works=scheduler_works)
        if missing or self._pump.rings_have_place_again:
            self._quiescing = True
            self._quiesce.start(lambda quiesced: self._make_again(missing, quiesced))

    def _missing_files(self, *, scheduler_works: bool) -> list[str]:
        """Return the missing files, for the log."""
        settings = self._settings
        try:
            status = os.stat(f"{settings.runtime_dir}/")
        except OSError:  # ENOENT, ENOTDIR
            return [settings.runtime_dir]
        paths = [sock.getsockname() for sock in self._listeners if sock.family == socket.AF_UNIX]
        seen = status.st_dev, status.st_ino, status.st_mtime_ns, scheduler_works
        rings_are_gone = False
        if seen != self._complete:  # each new or removed file changes the time of the directory
            paths += [f"{settings.runtime_dir}/{name}" for name in (LOCK, "listening.json")]
            paths += [settings.root_bell, settings.audit_dir]
            paths += [self._recent_starts_path] if self._has_recent_starts else []
            paths += [settings.control_socket, settings.scheduler_bell] if scheduler_works else []
            rings_are_gone = self._pump.rings_are_gone
        missing = [path for path in paths if not os.path.lexists(path)] or (["a ring"] if rings_are_gone else [])
        age_ms = self._pump.clock.wall_ms() - status.st_mtime_ns // 1_000_000
        self._complete = seen if not missing and age_ms > _TICK_MS else None
        return missing

    def _make_again(self, missing: list[str], quiesced: bool) -> None:
        self._quiescing = False
        before = self._settings
        if not quiesced:  # the file thread waits for a hung disk: the next check tries again
            return
        try:
            is_new = self._find_directory()
            if not os.path.lexists(self._settings.root_bell):
                self._root.listen_again()
            listen_again(self._settings, self._listeners)
            rings = self._pump.make_rings_again()
        except (OSError, UnusableDirectory, CannotListen) as err:
            if missing:
                self._fail(f"{', '.join(missing)} was removed and cannot be created again: {reason_of(err)}")
            return
        finally:
            self._quiesce.release()
        if not missing:
            self._log.info(f"{self._settings.runtime_dir} has room again, and got {counted(rings, 'ring')}")
            return
        self._failing = ""
        moved = self._settings is not before
        where = f"its files are now in {self._settings.runtime_dir}" if moved else "it was created again"
        self._log.error(f"{', '.join(missing)} was removed; {where}, with {counted(rings, 'ring')}")
        self._root.on_runtime_directory_restored(is_new)
        self._has_recent_starts = os.path.lexists(self._recent_starts_path)

    def _fail(self, text: str) -> None:
        if text != self._failing:
            self._failing = text
            self._log.error(f"{text}; until then lines of new runs appear late")

    def _find_directory(self) -> bool:
        """Create the directory at its path or else at the next suitable one; return whether it is new.

        Raises:
            OSError, UnusableDirectory: why it cannot be created at its own path; no other path is suitable either.
        """
        try:
            return self._make_directory(self._settings)
        except (OSError, UnusableDirectory):
            if os.path.isdir(self._settings.runtime_dir):
                raise  # do not use another path, or the next start would find two directories
            for base in self._settings.runtime_bases:
                settings = replace(self._settings, runtime_dir=f"{base}/{self._settings.daemon_id}")
                try:
                    self._make_directory(settings)
                except (OSError, UnusableDirectory):
                    continue
                self._settings = settings
                self._root.on_runtime_directory_moved(settings)
                return True
            raise

    def _make_directory(self, settings: DaemonSettings) -> bool:
        """Create the directory, its lock and the audit directory if they are missing; return whether it is new.

        Raises:
            OSError: the directory cannot be created, or another daemon uses it.
            UnusableDirectory: it would not be in shared memory, or other users could write to it.
        """
        above = os.path.dirname(settings.runtime_dir)
        is_new = settings is not self._settings or not os.path.isdir(settings.runtime_dir)
        if is_new:
            prepare_directory(above, settings.runtime_dir, file_system_types())
            if settings.api_account is not None:
                os.chmod(above, _PASSABLE)
                os.chown(settings.runtime_dir, -1, settings.api_account[1])
                os.chmod(settings.runtime_dir, LISTED_FOR_READERS)
        if is_new or not os.path.lexists(f"{settings.runtime_dir}/{LOCK}"):
            self._lock(settings)
            is_new = True
        if not os.path.lexists(settings.audit_dir):
            os.mkdir(settings.audit_dir, _PRIVATE)
            if settings.api_account is not None:
                os.chown(settings.audit_dir, *settings.api_account)
        return is_new or not os.path.lexists(f"{settings.runtime_dir}/begun")

    @property
    def _recent_starts_path(self) -> str:
        return f"{self._settings.runtime_dir}/begun"

    def _lock(self, settings: DaemonSettings) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(f"{settings.runtime_dir}/{LOCK}", flags, 0o600)
        except OSError:  # ENOSPC
            with contextlib.suppress(OSError):  # ENOTEMPTY: the directory existed before
                os.rmdir(settings.runtime_dir)
            raise
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        if self.new_lock is not None:
            os.close(self.new_lock)
        self.new_lock = fd
