"""The changes of one task's files, and the bursts into which they are grouped. Pure.

Every file has an entry: its inode, its size and the time of its last change. The entries for which a run was started
are *known*. A file whose entry differs from the known one is a *candidate*. When no candidate has changed for the time
``settle``, the candidates become a *burst*. A burst is pending until its run is stored. Then its entries become known.

The known entries and the pending burst are saved. So a burst is reported again if its run was not stored, and a
comparison finds the files that changed while the daemon was down.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

MAX_FILES = 10_000
"""Limit of files in one burst."""
MAX_BYTES = 1 << 20
"""Limit of bytes of the paths in one burst."""
MAX_KNOWN = 100_000
"""Limit of known files, and of candidates, of one task."""
_LONGEST_S = 60.0
_VERSION = 1


class FileState(NamedTuple):
    """The state of a file, by which a change is detected."""

    inode: int
    size: int
    ctime_ns: int


@dataclass(frozen=True)
class Burst:
    """The files for which one run is started.

    Attributes:
        id: Identifies the burst when it is reported again.
        files: The entries of the files by path.
    """

    id: str
    files: Mapping[str, FileState]


class TaskFiles:
    """The state of one task's files.

    Attributes:
        pending: The burst whose run is not stored yet.
        unsaved: Whether the known entries have changed since they were saved. A crash would only repeat work.
        urgent: Whether a glob was listed for the first time since the last save. Without a save, a crash would lose
            files, because the next first listing would take changed files as known.
        dropped: Whether there were too many candidates, so that the files must be listed again.
    """

    def __init__(self, settle_s: float, saved: object = None) -> None:
        """Restore the state from `saved`, an earlier result of :meth:`to_json`, or begin without known files.

        Raises:
            LookupError, TypeError, ValueError: `saved` is damaged or from another version.
        """
        self._settle_s = settle_s
        self._known_files: dict[str, FileState] = {}
        self._listed: set[str] = set()
        """Globs whose files have been listed at least once."""
        self._candidates: dict[str, FileState] = {}
        self._touched: dict[str, float] = {}
        """When the attributes of files last changed, by path."""
        self._created: dict[str, tuple[FileState, float]] = {}
        """Files that appeared without a write so far, and when, by path."""
        self._first_s = self._last_s = 0.0
        """When the first candidate appeared, and when a candidate last changed."""
        self.pending: Burst | None = None
        self.unsaved = False
        self.urgent = False
        self.dropped = False
        if saved is not None:
            self._restore(saved)

    def _restore(self, saved: Any) -> None:
        if saved["version"] != _VERSION:
            raise ValueError("of another version")
        self._listed = set(saved["globs"])
        if not all(isinstance(glob, str) for glob in self._listed):
            raise TypeError("a glob is not a string")
        self._known_files = {path: FileState(*entry) for path, entry in saved["known"].items()}
        if saved["pending"] is not None:
            files = {path: FileState(*entry) for path, entry in saved["pending"]["files"].items()}
            self.pending = Burst(saved["pending"]["id"], files)

    def to_json(self) -> Any:
        """Return the state to save."""
        pending = None if self.pending is None else {"id": self.pending.id, "files": dict(self.pending.files)}
        return {"version": _VERSION, "globs": sorted(self._listed), "known": self._known_files, "pending": pending}

    def listed(self, glob: str, files: Mapping[str, FileState], matches: Callable[[str], bool], now_s: float) -> None:
        """Take in all files that match a glob. The files of its first listing become known without a run.

        `matches` returns whether a known path matches the glob.
        """
        if glob not in self._listed:
            self._listed.add(glob)
            for path, entry in files.items():
                self._learn(path, entry)
            self.unsaved = self.urgent = True
            return
        for path in [path for path in self._known_files if path not in files and matches(path)]:
            self.vanished(path)
        for path, entry in files.items():
            self.changed(path, entry, now_s)

    def changed(self, path: str, entry: FileState, now_s: float) -> None:
        """Take in that a file was written, moved or linked into place, or has another entry."""
        self._created.pop(path, None)
        if entry == self._known_files.get(path) or (self.pending is not None and entry == self.pending.files.get(path)):
            self._candidates.pop(path, None)
            return
        if entry == self._candidates.get(path):
            return
        if len(self._candidates) == MAX_KNOWN and path not in self._candidates:
            self.dropped = True
            return
        if not self._candidates:
            self._first_s = now_s
        self._last_s = now_s
        self._candidates[path] = entry

    def vanished(self, path: str) -> None:
        """Take in that a file no longer exists."""
        self._candidates.pop(path, None)
        self._created.pop(path, None)
        if self._known_files.pop(path, None) is not None:
            self.unsaved = True

    def created(self, path: str, entry: FileState, now_s: float) -> None:
        """Take in that a file appeared that is being written, or whose link to a complete file does not show."""
        self._created[path] = entry, now_s

    def touched(self, path: str, now_s: float) -> None:
        """Take in that the attributes of a file have changed, perhaps because it is being written."""
        self._touched[path] = now_s

    def tick(self, now_s: float, status: Callable[[str], FileState | None]) -> None:
        """Update the known times of files whose attributes alone have changed, so that later listings ignore them.

        Take in files that have stayed as they appeared, which is unlikely for a file that is being written.
        """
        for path, (appeared, at_s) in list(self._created.items()):
            if now_s - at_s >= _LONGEST_S:
                del self._created[path]
                if appeared.size and status(path) == appeared:
                    self.changed(path, appeared, now_s)
        for path in [path for path, at_s in self._touched.items() if now_s - at_s >= self._settle_s]:
            del self._touched[path]
            previous, entry = self._known_files.get(path), status(path)
            if path in self._candidates or previous is None or entry is None:
                continue
            if (previous.inode, previous.size) == (entry.inode, entry.size):
                self._learn(path, entry)

    def due_s(self) -> float | None:
        """Return when the next burst is due; None if there are no candidates or a burst is pending."""
        if self.pending is not None or not self._candidates:
            return None
        if len(self._candidates) >= MAX_FILES:
            return self._first_s
        return min(self._last_s + self._settle_s, self._first_s + max(_LONGEST_S, 10 * self._settle_s))

    def take(self, now_s: float, status: Callable[[str], FileState | None]) -> Burst | None:
        """Make a burst of the candidates that are unchanged since they were seen, and return the pending burst.

        `status` returns the present entry of a file, or None if it no longer exists. Returns None if every candidate
        has changed.
        """
        files: dict[str, FileState] = {}
        size = 0
        for path, entry in list(self._candidates.items()):
            size += len(path.encode("utf-8", "surrogateescape")) + 1
            if len(files) == MAX_FILES or size > MAX_BYTES:
                break
            now = status(path)
            if now == entry:
                files[path] = entry
                del self._candidates[path]
            elif now is None:
                self.vanished(path)
            else:
                self._candidates[path] = now
                self._last_s = now_s
        self._first_s = now_s
        if files:
            self.pending = Burst(uuid.uuid4().hex, files)
        return self.pending

    def stored(self, burst_id: str) -> bool:
        """Take in that the run for a burst is stored; return whether that burst was pending."""
        if self.pending is None or self.pending.id != burst_id:
            return False
        for path, entry in self.pending.files.items():
            self._learn(path, entry)
        self.pending = None
        return True

    def _learn(self, path: str, entry: FileState) -> None:
        if path in self._known_files or len(self._known_files) < MAX_KNOWN:
            self._known_files[path] = entry
            self.unsaved = True

    @property
    def full(self) -> bool:
        """Whether no more files can become known."""
        return len(self._known_files) >= MAX_KNOWN

    def keep_globs(self, globs: Iterable[str], matches: Callable[[str], bool]) -> None:
        """Forget globs that the task no longer has, and known files that match none of the kept globs.

        `matches` returns whether a path matches a kept glob. Without this, files of former globs would count towards
        the limit of known files.
        """
        self._listed &= set(globs)
        for path in [path for path in self._known_files if not matches(path)]:
            del self._known_files[path]
            self.unsaved = True
