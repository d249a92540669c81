"""Messages between the scheduler and the file watcher, over a socketpair."""

from dataclasses import dataclass

from supervisor.ipc.helper_messages import HelperMessage

# Scheduler -> file watcher


@dataclass(frozen=True)
class WatchFiles(HelperMessage, op="watch"):
    """The files to watch; the only message of its kind."""

    directory: str
    """Where the file watcher stores its state."""
    tasks: dict[str, tuple[list[str], int]]
    """The globs and the `settle_ms` of each task."""


@dataclass(frozen=True)
class BurstStored(HelperMessage, op="stored"):
    """The run for a burst is stored."""

    task: str
    id: str


# File watcher -> scheduler


@dataclass(frozen=True)
class FileBurst(HelperMessage, op="burst"):
    """Changed files for which the task must run."""

    task: str
    id: str
    files: list[str]


@dataclass(frozen=True)
class FileWatcherLine(HelperMessage, op="said"):
    """A line for the daemon's log."""

    level: str
    """info or warning."""
    text: str


@dataclass(frozen=True)
class InotifyProblems(HelperMessage, op="refused"):
    """The present problems with inotify."""

    problems: list[str]
