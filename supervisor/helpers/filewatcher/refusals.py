"""Failures to use inotify: each cause is reported once, and retries have a growing delay. No I/O.

While inotify cannot watch a directory, its task lists that directory at intervals.
"""

import errno
import threading
from collections.abc import Callable, Sequence

from supervisor.ipc.backoff import backoff
from supervisor.ipc.file_bursts import FileWatcherLine, InotifyProblems
from supervisor.ipc.helper_messages import HelperMessage

LIST_S = 10.0
"""Interval at which a directory without events is listed."""
_DELAYS_S = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0)
_CAUSES = {
    errno.EMFILE: ("all inotify instances of the user are in use", "raise fs.inotify.max_user_instances"),
    errno.ENOSPC: ("all inotify watches of the user are in use", "raise fs.inotify.max_user_watches"),
    errno.ENOMEM: (
        "the kernel has no memory for inotify",
        "free memory, or raise the memory limit of the daemon's cgroup",
    ),
}
_WORKS = "inotify watches all directories of on_change again"


class Refusals:
    """The present problems with inotify in this process. All threads share it.

    Args:
        send: Sends a message to the scheduler.
    """

    def __init__(self, send: Callable[[HelperMessage], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._problems: dict[str, str] = {}
        """Problems by task and directory, or by the task that has no inotify instance."""

    def refused(self, location: str, error: OSError) -> None:
        """Note a failure, and report its cause if the cause is new."""
        number = error.errno or 0
        cause, remedy = _CAUSES.get(
            number, (f"inotify cannot be used ({error.strerror})", "check the kernel and its system call filter")
        )
        self._set(location, f"{cause}, so on_change lists directories every {LIST_S:.0f} s; {remedy}")

    def ended(self, location: str) -> None:
        """Forget a failure, because the directory is watched or gone, and report if it was the last one."""
        self._set(location, None)

    def _set(self, location: str, problem: str | None) -> None:
        with self._lock:
            before = set(self._problems.values())
            if problem is None:
                self._problems.pop(location, None)
            else:
                self._problems[location] = problem
            after = set(self._problems.values())
            for text in sorted(after - before):
                self._send(FileWatcherLine("warning", text))
            if before and not after:
                self._send(FileWatcherLine("info", _WORKS))
            if before != after:
                self._send(InotifyProblems(sorted(after)))


class Retries:
    """Determines when a task tries inotify again: after 5 s, then after twice the last delay, at most 5 minutes."""

    def __init__(self, delays_s: Sequence[float] = _DELAYS_S) -> None:
        self._delays_s = delays_s
        self._failures = 0
        self._at_s: float | None = 0.0
        """When the next attempt is due; None: there was no failure."""

    def due(self, now_s: float) -> bool:
        """Return whether an attempt is due. The first attempt is due at once."""
        return self._at_s is not None and now_s >= self._at_s

    def looked(self, now_s: float, *, refused: bool) -> None:
        """Take in whether the last look at the directories met a failure."""
        if not refused:
            self._at_s, self._failures = None, 0
        elif self._at_s is None or now_s >= self._at_s:
            self._at_s = now_s + backoff(self._delays_s, self._failures)
            self._failures += 1
