"""The thread that watches the directories of one task. Each task has its own, so a hung directory delays only its task.

inotify reports files that were closed after writing or moved into place. It does not say how a file was created: by a
program that goes on to write it, or by a hard link to a complete file. link(2) changes the time of the last status
change and not that of the last write, so a difference means a link. If a symbolic link is moved into place, the thread
lists the directory: Kubernetes updates a volume by replacing a link through which all its files lead.

Every two seconds, the thread checks for new and replaced directories, and watches and lists them. After an overflow of
inotify it lists all directories. Every ten seconds it lists the directories that inotify cannot watch or that other
hosts can change without an event.
"""

import contextlib
import fnmatch
import json
import os
import select
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from supervisor.helpers.filewatcher.changes import MAX_KNOWN, FileState, TaskFiles
from supervisor.helpers.filewatcher.refusals import LIST_S, Refusals, Retries
from supervisor.host import inotify
from supervisor.host.clock import Wakeup
from supervisor.host.files import DAMAGED, read_json, replace_file
from supervisor.host.inotify import Inotify
from supervisor.host.shared_memory import file_system_types, type_of
from supervisor.ipc.file_bursts import FileBurst, FileWatcherLine

_CHECK_S = 2.0
_SAVE_S = 60.0
_WRITTEN = inotify.CLOSE_WRITE | inotify.MOVED_TO
_GONE = inotify.MOVED_FROM | inotify.DELETE
_DIRECTORY_GONE = inotify.DELETE_SELF | inotify.MOVE_SELF | inotify.IGNORED
_MASK = _WRITTEN | _GONE | inotify.CREATE | inotify.ATTRIB | inotify.DELETE_SELF | inotify.MOVE_SELF
_SHARED = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "lustre", "nfs", "nfs4", "ocfs2", "smb3", "vboxsf"}
)
"""File systems that other hosts can change."""


def is_shared(file_system: str) -> bool:
    """Return whether a file system of this type can change without an inotify event."""
    return file_system in _SHARED or file_system.startswith("fuse")


def _is_linked(path: str) -> bool:
    """Return whether a file that has just appeared is a symbolic link, or a hard link to a complete file."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode) or status.st_nlink > 1 or status.st_mtime_ns != status.st_ctime_ns


def _is_match(path: str, directory: str, pattern: str) -> bool:
    """Return whether a path is directly in a directory and its file name matches a pattern."""
    return os.path.dirname(path) == directory and matches(os.path.basename(path), pattern)


def matches(name: str, pattern: str) -> bool:
    """Return whether a file name matches as in a shell, where hidden files need a pattern that begins with a dot."""
    return fnmatch.fnmatchcase(name, pattern) and (not name.startswith(".") or pattern.startswith("."))


class _Directory:
    """A directory in which a task watches files.

    Attributes:
        patterns: The globs of the task by their last component.
        identity: Device and inode of the directory; None: it must be entered, or does not exist.
        watch: The watch descriptor of inotify; None: only listings find changes.
        polled: Whether the directory is listed at intervals.
        listed_s: When it was last listed.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.patterns: dict[str, str] = {}
        self.identity: tuple[int, int] | None = None
        self.watch: int | None = None
        self.polled = False
        self.listed_s = 0.0


class TaskWatch(threading.Thread):
    """Watches the files of one task and reports bursts.

    Args:
        task: The name of the task.
        globs: Absolute paths with wildcards in the last component.
        settle_s: Time without a change after which a burst is complete.
        state_path: The path of the file with the saved state.
        send: Sends a message to the scheduler. Any thread may call it.
        refusals: Collects the problems with inotify of all tasks.
        file_system: Returns the type of the file system of a path.
        open_inotify: Creates an inotify instance.
        retries: Determines when to try inotify again.
    """

    def __init__(
        self,
        task: str,
        globs: Iterable[str],
        settle_s: float,
        state_path: str,
        send: Callable[[FileBurst | FileWatcherLine], None],
        refusals: Refusals,
        file_system: Callable[[str], str] = lambda path: type_of(path, file_system_types()),
        open_inotify: Callable[[], Inotify] = Inotify,
        retries: Retries | None = None,
    ) -> None:
        super().__init__(name=task, daemon=True)
        self._task = task
        self._state_path = state_path
        self._send = send
        self._refusals = refusals
        self._file_system = file_system
        self._open_inotify = open_inotify
        self._retries = retries or Retries()
        self._reported: dict[str, str] = {}
        """The last message about each directory, which is not repeated."""
        self._lock = threading.Lock()
        """Protects the state in `_changes`."""
        self._acknowledged: deque[str] = deque()
        self._wakeup = Wakeup()
        self._directories: dict[str, _Directory] = {}
        self._globs = frozenset(globs)
        for glob in self._globs:
            path, pattern = os.path.split(glob)
            self._directories.setdefault(path, _Directory(path)).patterns[pattern] = glob
        self._changes = self._load(settle_s)
        self._changes.keep_globs(self._globs, self._matches)
        self._inotify: Inotify | None = None
        self._poll = select.poll()
        self._poll.register(self._wakeup, select.POLLIN)
        self._saved_s = 0.0

    def _entry(self, path: str) -> FileState | None:
        """Return the entry of a regular file; None if there is no such file.

        Symbolic links are followed only if ``on_change`` names them without a wildcard.
        """
        try:
            status = os.stat(path, follow_symlinks=path in self._globs)
        except OSError:
            return None
        regular = stat.S_ISREG(status.st_mode)
        return FileState(status.st_ino, status.st_size, status.st_ctime_ns) if regular else None

    def _matches(self, path: str) -> bool:
        """Whether a path matches one of the globs."""
        directory, name = os.path.split(path)
        watched = self._directories.get(directory)
        return watched is not None and any(matches(name, pattern) for pattern in watched.patterns)

    def stored(self, burst_id: str) -> None:
        """Take in that the run for a burst is stored, so the next burst may follow. This never waits for the thread."""
        self._acknowledged.append(burst_id)
        self._wakeup.set()

    def close(self) -> None:
        """Save the state, unless the thread hangs while it holds the lock."""
        if self._lock.acquire(timeout=0.1):
            try:
                if self._changes.unsaved:
                    self._save()
            finally:
                self._lock.release()

    def run(self) -> None:
        """Watch until the process ends."""
        with self._lock:
            if self._changes.pending is not None:
                self._report()
        check_s = 0.0
        while True:
            with self._lock:
                now_s = time.monotonic()
                while self._acknowledged:
                    if self._changes.stored(self._acknowledged.popleft()):
                        self._save()
                if self._changes.dropped and self._changes.pending is None:
                    self._changes.dropped = False
                    self._list_again()
                    check_s = 0.0
                if now_s >= check_s:
                    self._check_files(now_s)
                    check_s = now_s + _CHECK_S
                due_s = self._changes.due_s()
                if due_s is not None and due_s <= now_s and self._changes.take(now_s, self._entry) is not None:
                    self._save()
                    self._report()
                due_s = self._changes.due_s()
            until_s = check_s if due_s is None else min(check_s, due_s)
            self._poll.poll(max(0.0, until_s - time.monotonic()) * 1000 + 1)
            self._wakeup.clear()
            with self._lock:
                if self._take_events(time.monotonic()):
                    check_s = 0.0

    def _report(self) -> None:
        burst = self._changes.pending
        if burst is not None:
            self._send(FileBurst(self._task, burst.id, list(burst.files)))

    # Directories.

    def _check_files(self, now_s: float) -> None:
        if self._retries.due(now_s):
            self._retry()
        for directory in self._directories.values():
            try:
                self._check_directory(directory, now_s)
            except OSError as err:
                self._stop_watching(directory)
                self._refusals.ended(self._location(directory))
                self._warn(directory.path, f"cannot watch {directory.path}: {err.strerror or err}; trying again")
        if self._inotify is not None:
            self._refusals.ended(self._task)
        existing = [directory for directory in self._directories.values() if directory.identity is not None]
        refused = self._inotify is None or any(watched.watch is None for watched in existing)
        self._retries.looked(now_s, refused=refused)
        self._changes.tick(now_s, self._entry)
        if self._changes.urgent or (self._changes.unsaved and now_s - self._saved_s >= _SAVE_S):
            self._save()

    def _retry(self) -> None:
        """Create an inotify instance if there is none, and let the next look try the missing watches again."""
        if self._inotify is None:
            try:
                self._inotify = self._open_inotify()
            except OSError as err:
                self._refusals.refused(self._task, err)
                return
            self._poll.register(self._inotify.fd, select.POLLIN)
        for directory in self._directories.values():
            if directory.watch is None:
                directory.identity = None

    def _location(self, directory: _Directory) -> str:
        return f"{self._task}: {directory.path}"

    def _check_directory(self, directory: _Directory, now_s: float) -> None:
        try:
            status = os.stat(directory.path)
        except FileNotFoundError:
            self._stop_watching(directory)
            self._refusals.ended(self._location(directory))
            for glob in directory.patterns.values():
                # An empty first listing, so that all files are new once the directory is created.
                self._changes.listed(glob, {}, lambda _path: False, now_s)
            self._warn(directory.path, f"{directory.path} does not exist; it is watched as soon as it does")
            return
        identity = status.st_dev, status.st_ino
        if identity != directory.identity:
            self._start_watching(directory, now_s)
            directory.identity = identity
        elif directory.polled and now_s - directory.listed_s >= LIST_S:
            self._list(directory, now_s)

    def _start_watching(self, directory: _Directory, now_s: float) -> None:
        self._stop_watching(directory)
        refusal: OSError | None = None
        if self._inotify is not None:
            try:
                directory.watch = self._inotify.add(directory.path, _MASK)
            except OSError as err:
                refusal = err
        shared = is_shared(kind := self._file_system(directory.path))
        directory.polled = shared or directory.watch is None
        # Listing after the watch was added misses no change in between. If the directory itself is unreadable, the
        # listing raises an error, and the watch failure is not reported as a problem with inotify.
        self._list(directory, now_s)
        if refusal is not None:
            self._refusals.refused(self._location(directory), refusal)
        else:
            self._refusals.ended(self._location(directory))
        if shared:
            reason = f"its file system, {kind}, sends no events for changes by other hosts"
            self._warn(directory.path, f"{directory.path} is listed every {LIST_S:.0f} s: {reason}")
        elif directory.watch is not None and self._reported.pop(directory.path, None) is not None:
            self._send(FileWatcherLine("info", f"{self._task}: {directory.path} is watched"))

    def _stop_watching(self, directory: _Directory) -> None:
        if directory.watch is not None and self._inotify is not None:
            self._inotify.remove(directory.watch)
        directory.watch, directory.identity = None, None

    def _list(self, directory: _Directory, now_s: float) -> None:
        """List a directory and compare its files with the known ones.

        Raises:
            OSError: the directory cannot be read.
        """
        directory.listed_s = now_s
        states: dict[str, dict[str, FileState]] = {pattern: {} for pattern in directory.patterns}
        with os.scandir(directory.path) as names:
            for name in names:
                fitting = [pattern for pattern in directory.patterns if matches(name.name, pattern)]
                if fitting and (entry := self._entry(name.path)) is not None:
                    for pattern in fitting:
                        states[pattern][name.path] = entry
        for pattern, glob in directory.patterns.items():
            self._changes.listed(
                glob,
                states[pattern],
                partial(_is_match, directory=directory.path, pattern=pattern),
                now_s,
            )
        if self._changes.full:
            self._warn(
                f"{directory.path}/",
                f"more than {MAX_KNOWN} files match on_change: a restart may report files again;"
                " let the task move processed files elsewhere",
            )

    # Events.

    def _take_events(self, now_s: float) -> bool:
        """Handle all waiting events; return whether the directories must be checked at once."""
        if self._inotify is None:
            return False
        must_check = False
        by_watch = {
            directory.watch: directory for directory in self._directories.values() if directory.watch is not None
        }
        for event in self._inotify.events():
            if event.mask & inotify.Q_OVERFLOW:
                self._send(FileWatcherLine("warning", f"{self._task}: {_OVERFLOW}"))
                self._list_again()
                must_check = True
                continue
            watched = by_watch.get(event.watch)
            if watched is None:
                continue
            if event.mask & _DIRECTORY_GONE:
                watched.identity = None
                must_check = True
                continue
            path = f"{watched.path.rstrip('/')}/{event.name}"
            if any(matches(event.name, pattern) for pattern in watched.patterns):
                self._handle(path, event.mask, now_s)
            elif event.mask & inotify.MOVED_TO and os.path.islink(path):
                watched.identity = None
                must_check = True
        return must_check

    def _list_again(self) -> None:
        """Let the next look enter and list all directories again."""
        for directory in self._directories.values():
            directory.identity = None

    def _handle(self, path: str, mask: int, now_s: float) -> None:
        entry = self._entry(path)
        if entry is None:
            self._changes.vanished(path)
        elif mask & _WRITTEN or (mask & inotify.CREATE and _is_linked(path)):
            self._changes.changed(path, entry, now_s)
        elif mask & inotify.CREATE:
            self._changes.created(path, entry, now_s)
        elif mask & inotify.ATTRIB:
            self._changes.touched(path, now_s)

    # State.

    def _load(self, settle_s: float) -> TaskFiles:
        try:
            return TaskFiles(settle_s, read_json(self._state_path))
        except FileNotFoundError:
            return TaskFiles(settle_s)
        except (OSError, *DAMAGED) as err:
            self._warn("", f"{self._state_path} cannot be used ({err}): changes since the last start are not detected")
            return TaskFiles(settle_s)

    def _save(self) -> None:
        self._saved_s = time.monotonic()
        try:
            text = json.dumps(self._changes.to_json(), ensure_ascii=False, separators=(",", ":"))
            with contextlib.suppress(FileExistsError):
                os.mkdir(os.path.dirname(self._state_path), 0o700)
            replace_file(self._state_path, text, durable=True)
        except OSError as err:  # ENOSPC and the like: at worst, files are reported again after a crash
            self._warn("", f"cannot write {self._state_path}: {err.strerror or err}")
            return
        self._changes.unsaved = self._changes.urgent = False

    def _warn(self, location: str, text: str) -> None:
        """Send a warning about a directory, unless it repeats the last one."""
        if self._reported.get(location) != text:
            self._reported[location] = text
            self._send(FileWatcherLine("warning", f"{self._task}: {text}"))


_OVERFLOW = "inotify events were lost; listing all directories (fs.inotify.max_queued_events)"
