"""The position of an export, on disk: the runs that it follows, and the next line of each.

The file ``<data>/exports/NAME.cursors`` is a journal. Each line is a JSON object, and each batch appends one line::

    {"format": 1}
    {"seen": [[17, "01J…"]], "seen_at": 1764144000000,    rows of runs that were found, and when the last was created
     "runs": {"01J…": ["web", 0]},                        runs to follow: task or service, instance
     "at": {"01J…": 120},                                 the next line of each
     "done": ["01H…"],                                    runs that were delivered completely
     "facts": {"since": 1764144000000}}                   facts of the sink

Each commit appends a line and waits for the disk. A last line without a newline was truncated by a crash and is
ignored. The journal is rewritten when it is opened and when it has grown too large, also for ``ulimit -f``.
"""

import contextlib
import errno
import os
from collections import deque
from typing import Any, NamedTuple

import msgspec

from supervisor.host.files import DAMAGED, replace_file, write_all

_FORMAT = 1
_MAX_BYTES = 4 << 20
_MOST_SEEN = 1000
_encode = msgspec.json.encode


class FollowedRun(NamedTuple):
    """A followed run, with the fields that its records contain."""

    id: str
    task: str
    instance: int
    root: str = ""
    """Id of the first attempt, for receivers of spans; empty: unknown. It is not in the journal."""


class UnreadableJournal(Exception):
    """The journal is damaged, or a newer release wrote it."""


class Cursors:
    """The journal of one export.

    Attributes:
        runs: The runs to follow, oldest first.
        at: The next line of each run of which lines were delivered.
        seen: The number and id of the rows that were found last.
        seen_at: When the last of these runs was created, in ms since the epoch; None: the export is new.
        facts: The facts of the sink, by name.
    """

    def __init__(self, path: str) -> None:
        """Read the journal, or begin a new one.

        Raises:
            UnknownFormat: the journal is damaged, or a newer release wrote it.
            OSError: the journal cannot be read or written.
        """
        self._path = path
        self.runs: dict[str, FollowedRun] = {}
        self.at: dict[str, int] = {}
        self.seen: deque[tuple[int, str]] = deque(maxlen=_MOST_SEEN)
        self.seen_at: int | None = None
        self.facts: dict[str, int] = {}
        self._change: dict[str, object] = {}
        self._fd = -1
        self._size = self._limit = 0
        self._load()
        self._rewrite()

    def add_runs(self, seen: list[tuple[int, str]], seen_at: int, runs: list[FollowedRun]) -> None:
        """Note the rows of new runs, and which of these runs to follow."""
        self._apply({"seen": seen, "seen_at": seen_at, "runs": {run.id: [run.task, run.instance] for run in runs}})

    def move(self, run_id: str, line: int) -> None:
        """Note the next line of a run."""
        self._apply({"at": {run_id: line}})

    def finish(self, run_id: str) -> None:
        """Forget a run that was delivered completely."""
        self._apply({"done": [run_id]})

    def note(self, name: str, value: int) -> None:
        """Note a fact of the sink."""
        self._apply({"facts": {name: value}})

    def _apply(self, change: dict[str, Any]) -> None:
        self._take(change)
        for name, value in change.items():
            collected = self._change.get(name)
            if isinstance(collected, dict):
                collected.update(value)
            elif isinstance(collected, list):
                collected.extend(value)
            else:
                self._change[name] = value

    def _take(self, change: dict[str, Any]) -> None:
        self.seen.extend((seq, run_id) for seq, run_id in change.get("seen", ()))
        self.seen_at = change.get("seen_at", self.seen_at)
        self.runs.update(
            {run_id: FollowedRun(run_id, task, instance) for run_id, (task, instance) in change.get("runs", {}).items()}
        )
        self.at.update(change.get("at", {}))
        self.facts.update(change.get("facts", {}))
        for run_id in change.get("done", ()):
            self.runs.pop(run_id, None)
            self.at.pop(run_id, None)

    def commit(self) -> None:
        """Write all changes to the disk. After a failure, the next call tries again.

        Raises:
            OSError: the disk is full or failing.
        """
        if not self._change:
            return
        if self._size > self._limit or not self._is_at_path():
            self._rewrite()
            return
        line = _encode(self._change) + b"\n"
        try:
            write_all(self._fd, line)
            os.fdatasync(self._fd)
        except OSError as err:
            with contextlib.suppress(OSError):  # a truncated line is ignored only if it is the last one
                os.ftruncate(self._fd, self._size)
            if err.errno != errno.EFBIG:
                raise
            self._rewrite()
            return
        self._size += len(line)
        self._change = {}

    def _is_at_path(self) -> bool:
        """Return whether the open journal still has its path; it may have been moved or removed."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def _load(self) -> None:
        try:
            with open(self._path, "rb") as file:
                lines = file.read().split(b"\n")[:-1]
        except FileNotFoundError:
            return
        if not lines:
            return
        try:
            if msgspec.json.decode(lines[0]).get("format") != _FORMAT:
                raise UnreadableJournal(f"{self._path} was written by a newer release")
            for line in lines[1:]:
                self._take(msgspec.json.decode(line))
        except DAMAGED as err:
            raise UnreadableJournal(f"{self._path} is damaged") from err

    def _rewrite(self) -> None:
        whole = {
            "seen": list(self.seen),
            "seen_at": self.seen_at,
            "runs": {run.id: [run.task, run.instance] for run in self.runs.values()},
            "at": self.at,
            "facts": self.facts,
        }
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.dirname(self._path), 0o700)
        data = _encode({"format": _FORMAT}) + b"\n" + _encode(whole) + b"\n"
        replace_file(self._path, data, durable=True)
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size, self._limit = fd, len(data), 2 * len(data) + _MAX_BYTES
        self._change = {}
