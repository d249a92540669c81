"""The soft limit on open descriptors: raised only when many instances need it, and given back to each child."""

import resource

_PER_INSTANCE = 8
"""Pipes, pidfd, ring and log file of one instance, rounded up."""
_RESERVE = 128


class Descriptors:
    """Knows how many instances the present soft limit has room for."""

    def __init__(self) -> None:
        self._original, self._hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._soft = self._original

    def reserve(self, instances: int) -> None:
        """Make room for so many instances, as far as the hard limit allows."""
        wanted = instances * _PER_INSTANCE + _RESERVE
        while self._soft < wanted and self._soft < self._hard:
            self._soft = min(self._soft * 2, self._hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._soft, self._hard))

    def restore(self) -> int | None:
        """The soft limit that a child has to set for itself; None while ours is still the original."""
        return None if self._soft == self._original else self._original
