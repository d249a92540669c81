"""Shortages: descriptors are counted; other resources that the kernel refuses for a while are requested again.

The soft limit on open descriptors is raised only when we or many runs need it, and given back to each child.
"""

import errno
import resource
import select
from collections.abc import Callable, Iterable

_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN})

SHORTAGES = (OSError, MemoryError)
"""The classes to catch; :func:`is_shortage` tells which of their instances are a shortage."""

REST_S = 0.1
"""How long a thread rests after a shortage, so that a lasting shortage does not make it spin."""

_PER_INSTANCE = 10
"""Of one instance: pipes, pidfd, ring (twice, since mmap keeps a copy), log file, socket and record."""
_LATER = 3
"""Ring (twice) and log file: an instance that prints nothing at first has none yet."""
_RESERVE = 128
LEAST = 256
"""What our own processes have open themselves, and room for a few runs and connections."""
_SPARE = 64


def is_shortage(err: BaseException) -> bool:
    """Return whether descriptors, processes or memory have run out, for the daemon or for the host."""
    return isinstance(err, MemoryError) or (isinstance(err, OSError) and err.errno in _ERRORS)


def is_of_memory(err: BaseException) -> bool:
    """Return whether memory has run out."""
    return isinstance(err, MemoryError) or (isinstance(err, OSError) and err.errno == errno.ENOMEM)


def reason(err: BaseException) -> str:
    """Return the kernel's words for an error."""
    return getattr(err, "strerror", None) or str(err) or "Cannot allocate memory"


def take_all(steps: Iterable[Callable[[], object]]) -> None:
    """Take every step, even after a step failed for a shortage.

    Raises:
        OSError, MemoryError: the first shortage, after the last step; any other error, at once.
    """
    first: OSError | MemoryError | None = None
    for step in steps:
        try:
            step()
        except SHORTAGES as err:
            if not is_shortage(err):
                raise
            # Without its frames, which hold on to memory that another thread may want to give back.
            first = first or err.with_traceback(None)
    if first is not None:
        raise first


class Descriptors:
    """Knows how many instances the present soft limit has room for."""

    def __init__(self) -> None:
        self._soft, self._hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.original = self._soft
        """The soft limit before we raised it."""
        self.reserve((LEAST - _RESERVE) // _PER_INSTANCE)

    def reserve(self, instances: int) -> bool:
        """Make room for `instances` runs, up to the hard limit; return False if the rest is reserved.

        It is for logs of failed starts, helpers, and connections.
        """
        wanted = instances * _PER_INSTANCE + _RESERVE
        while self._soft < wanted and self._soft < self._hard:
            self._soft = min(self._soft * 2, self._hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._soft, self._hard))
        if wanted <= self._soft:
            return True
        return self._soft - open_descriptors(self._soft) - instances * _LATER >= _SPARE

    def restore(self) -> int | None:
        """Return the soft limit that a child has to set for itself; None while ours is still the original."""
        return None if self._soft == self.original else self.original


def open_descriptors(limit: int) -> int:
    """Count the open descriptors below `limit`, which takes none: listing /proc/self/fd would."""
    poll = select.poll()
    for fd in range(limit):
        poll.register(fd, 0)
    return limit - sum(bool(mask & select.POLLNVAL) for _fd, mask in poll.poll(0))
