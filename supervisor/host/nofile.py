"""The soft limit on open descriptors: raised only when we or many instances need it, and given back to each child."""

import os
import resource

_PER_INSTANCE = 8
"""Pipes, pidfd, ring and log file of one instance, rounded up."""
_LATER = 2
"""Ring and log file: an instance that prints nothing at first has none yet."""
_RESERVE = 128
LEAST = 256
"""What our own processes have open themselves, and room for a few runs and connections."""
_SPARE = 64


class Descriptors:
    """Knows how many instances the present soft limit has room for."""

    def __init__(self) -> None:
        self._soft, self._hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.original = self._soft
        """The soft limit before we raised it."""
        self.reserve((LEAST - _RESERVE) // _PER_INSTANCE)

    def take_up(self, original: int) -> None:
        """Our own limit was raised before we were executed anew: give this one back to children."""
        self.original = original

    def reserve(self, instances: int) -> bool:
        """Make room for so many instances, as far as the hard limit allows; False: what is left is for other things.

        Those are the logs of what cannot be started, our helpers, and connections to us.
        """
        wanted = instances * _PER_INSTANCE + _RESERVE
        while self._soft < wanted and self._soft < self._hard:
            self._soft = min(self._soft * 2, self._hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._soft, self._hard))
        if wanted <= self._soft:
            return True
        return self._soft - len(os.listdir("/proc/self/fd")) - instances * _LATER >= _SPARE

    def restore(self) -> int | None:
        """The soft limit that a child has to set for itself; None while ours is still the original."""
        return None if self._soft == self.original else self.original
