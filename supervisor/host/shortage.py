"""Shortages of descriptors, processes and memory.

Descriptors are counted in advance. For other resources the daemon retries until the kernel grants them. The soft limit
on open descriptors is raised only when it is needed, and each child gets the original limit.
"""

import errno
import os
import resource
import select
from collections.abc import Callable, Iterable

_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN})

SHORTAGES = (OSError, MemoryError)
"""The classes to catch; :func:`is_shortage` tells which of their instances are shortages."""

REST_S = 0.1
"""The pause of a thread after a shortage, so that it does not spin during a long one."""

_PER_RUN = 10
"""Descriptors of a run: pipes, pidfd, ring (twice, because mmap keeps a copy), log file, socket and record."""
_LATER = 3
"""Descriptors that a run needs only once it prints something: ring (twice) and log file."""
_RESERVE = 128
"""Descriptors for everything but runs: logs of failed starts, helpers and connections."""
LEAST = 256
"""Enough descriptors for the daemon's processes and a few runs and connections."""
_SPARE = 64


def is_shortage(err: BaseException) -> bool:
    """Return whether the daemon or the host has run out of descriptors, processes or memory."""
    return isinstance(err, MemoryError) or (isinstance(err, OSError) and err.errno in _ERRORS)


def is_of_memory(err: BaseException) -> bool:
    """Return whether the daemon or the host has run out of memory."""
    return isinstance(err, MemoryError) or (isinstance(err, OSError) and err.errno == errno.ENOMEM)


def reason_of(err: BaseException) -> str:
    """Return the kernel's description of an error."""
    return getattr(err, "strerror", None) or str(err) or "Cannot allocate memory"


def take_all(steps: Iterable[Callable[[], object]]) -> None:
    """Carry out every step, even if an earlier step failed because of a shortage.

    Raises:
        OSError, MemoryError: the first shortage, raised after the last step; any other error is raised at once.
    """
    first: OSError | MemoryError | None = None
    for step in steps:
        try:
            step()
        except SHORTAGES as err:
            if not is_shortage(err):
                raise
            # Without the traceback, whose frames would keep memory in use during the remaining steps.
            first = first or err.with_traceback(None)
    if first is not None:
        raise first


class Descriptors:
    """Raises the soft limit on open descriptors as the number of runs grows."""

    def __init__(self) -> None:
        self._soft, self._hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.original = self._soft
        """The soft limit before we raised it."""
        self.reserve((LEAST - _RESERVE) // _PER_RUN)

    def reserve(self, runs: int, starting: int = 0) -> bool:
        """Raise the soft limit, up to the hard limit, for runs.

        Args:
            runs: The number of started runs.
            starting: The number of other runs, none of whose descriptors may be open yet.

        Returns:
            Whether the runs may start. Otherwise the remaining descriptors are reserved for logs of failed starts,
            helpers and connections.
        """
        needed = (runs + starting) * _PER_RUN + _RESERVE
        while self._soft < needed and self._soft < self._hard:
            self._soft = min(self._soft * 2, self._hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._soft, self._hard))
        if needed <= self._soft:
            return True
        return self._soft - open_descriptors(self._soft) - runs * _LATER - starting * _PER_RUN >= _SPARE

    def restore(self) -> int | None:
        """Return the soft limit that a child must set for itself; None if the limit was not raised."""
        return None if self._soft == self.original else self.original


def open_descriptors(limit: int) -> int:
    """Count the open descriptors, all of which are below `limit`. This also works when no descriptor is free.

    Since Linux 6.2, the size of /proc/self/fd is their number (proc_fd_getattr in fs/proc/fd.c); before, it is 0. It
    includes descriptors that a system call such as accept(2) has reserved.
    """
    try:
        count = os.stat("/proc/self/fd").st_size
    except OSError:
        count = 0
    return count or polled_descriptors(limit)


def polled_descriptors(limit: int) -> int:
    """Count the open descriptors below `limit` with poll(2), which reports POLLNVAL for closed ones.

    With a high limit, this takes milliseconds.
    """
    poll = select.poll()
    for fd in range(limit):
        poll.register(fd, 0)
    return limit - sum(bool(mask & select.POLLNVAL) for _fd, mask in poll.poll(0))
