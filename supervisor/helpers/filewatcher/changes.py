"""The changes of the files of one task, and the bursts that they form. Pure.

Every file has an entry: inode, size and time of its last change. The entries of files that a run was started for are
*known*. A file whose entry is not the known one is a *candidate*. When the candidates have not changed for the time
``settle``, they become a *burst*. It stays pending until its run is stored; then its entries are known.

The known entries and the pending burst are stored. So a burst whose run was not stored is reported again, and files
that change while the daemon is down are found by a comparison.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

MAX_FILES = 10_000
"""Of one burst."""
MAX_BYTES = 1 << 20
"""Of the names in one burst."""
MAX_KNOWN = 100_000
"""Of one task: files that are known, and files that wait for a burst."""
_LONGEST_S = 60.0
_VERSION = 1


class Entry(NamedTuple):
    """The state of a file by which a change is known."""

    inode: int
    size: int
    ctime_ns: int


@dataclass(frozen=True)
class Burst:
    """The files that one run is started for.

    Attributes:
        id: Identifies the burst when it is reported again.
        files: Their entries by path.
    """

    id: str
    files: Mapping[str, Entry]


class Changes:
    """The state of one task.

    Attributes:
        pending: The burst whose run is not stored yet.
        unsaved: Whether the known entries changed since they were saved. A crash then only repeats work.
        urgent: Whether a glob was listed for the first time since then. Without it a crash would lose files.
        dropped: Whether there were too many candidates, so that the files have to be listed again.
    """

    def __init__(self, settle_s: float, saved: object = None) -> None:
        """`saved`: an earlier result of :meth:`to_json`.

        Raises:
            LookupError, TypeError, ValueError: it is of another version, or damaged.
        """
        self._settle_s = settle_s
        self._known: dict[str, Entry] = {}
        self._listed: set[str] = set()
        """Globs whose files were listed once."""
        self._candidates: dict[str, Entry] = {}
        self._touched: dict[str, float] = {}
        """Files whose attributes changed, and when."""
        self._first_s = self._last_s = 0.0
        """When the first and the last candidate was seen."""
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
        self._known = {path: Entry(*entry) for path, entry in saved["known"].items()}
        if saved["pending"] is not None:
            files = {path: Entry(*entry) for path, entry in saved["pending"]["files"].items()}
            self.pending = Burst(saved["pending"]["id"], files)

    def to_json(self) -> Any:
        """Return the state to store."""
        pending = None if self.pending is None else {"id": self.pending.id, "files": dict(self.pending.files)}
        return {"version": _VERSION, "globs": sorted(self._listed), "known": self._known, "pending": pending}

    def listed(self, glob: str, found: Mapping[str, Entry], matches: Callable[[str], bool], now_s: float) -> None:
        """Compare with all files of a glob; the files at its first listing are known from then on.

        `matches` tells whether a known path is one of the glob's.
        """
        if glob not in self._listed:
            self._listed.add(glob)
            for path, entry in found.items():
                self._learn(path, entry)
            self.unsaved = self.urgent = True
            return
        for path in [path for path in self._known if path not in found and matches(path)]:
            self.vanished(path)
        for path, entry in found.items():
            self.changed(path, entry, now_s)

    def changed(self, path: str, entry: Entry, now_s: float) -> None:
        """A file was written or moved to its place, or differs."""
        if entry == self._known.get(path) or (self.pending is not None and entry == self.pending.files.get(path)):
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
        """A file is no longer there."""
        self._candidates.pop(path, None)
        if self._known.pop(path, None) is not None:
            self.unsaved = True

    def touched(self, path: str, now_s: float) -> None:
        """The attributes of a file changed, perhaps because it is being written."""
        self._touched[path] = now_s

    def tend(self, now_s: float, status: Callable[[str], Entry | None]) -> None:
        """Learn the new times of files of which only attributes changed, so that no later listing reports them."""
        for path in [path for path, at_s in self._touched.items() if now_s - at_s >= self._settle_s]:
            del self._touched[path]
            known, entry = self._known.get(path), status(path)
            if path in self._candidates or known is None or entry is None:
                continue
            if (known.inode, known.size) == (entry.inode, entry.size):
                self._learn(path, entry)

    def due_s(self) -> float | None:
        """Return when the next burst is due; None if there is none, or one is pending."""
        if self.pending is not None or not self._candidates:
            return None
        if len(self._candidates) >= MAX_FILES:
            return self._first_s
        return min(self._last_s + self._settle_s, self._first_s + max(_LONGEST_S, 10 * self._settle_s))

    def take(self, now_s: float, status: Callable[[str], Entry | None]) -> Burst | None:
        """Make a burst of the candidates that did not change any more; None if there are none.

        `status` returns the present entry of a file.
        """
        files: dict[str, Entry] = {}
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
        """The run of a burst is stored; return whether that burst was pending."""
        if self.pending is None or self.pending.id != burst_id:
            return False
        for path, entry in self.pending.files.items():
            self._learn(path, entry)
        self.pending = None
        return True

    def _learn(self, path: str, entry: Entry) -> None:
        if path in self._known or len(self._known) < MAX_KNOWN:
            self._known[path] = entry
            self.unsaved = True

    @property
    def full(self) -> bool:
        """Whether more files match than can be known."""
        return len(self._known) >= MAX_KNOWN

    def keep_globs(self, kept: Iterable[str], matches: Callable[[str], bool]) -> None:
        """Forget globs that the task no longer has, and the known files that match none of the others.

        `matches` tells whether a path is one of a kept glob. Without this the files of former globs would use up the
        places of known files.
        """
        self._listed &= set(kept)
        for path in [path for path in self._known if not matches(path)]:
            del self._known[path]
            self.unsaved = True
