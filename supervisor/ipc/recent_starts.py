"""The runs that were started last, in shared memory: also known when the root is killed before a run is stored.

A file in the runtime directory. Its header is the number of noted runs (8 bytes, little-endian). Slots of 32 bytes
follow, used in turn, each with the id of a run (26 characters) and zeros. A run is noted before its first instruction.

After the death of a root, the next scheduler looks here for runs that the database has as waiting. They have begun, so
they have crashed, and do not begin again. A run begins only after it is stored as waiting. So while the store is not
writable, no more runs begin than one transaction had.
"""

import mmap
import os
import struct

_PLACES = 4096
_SIZE = 32
_ID_BYTES = 26
_COUNT = struct.Struct("<Q")
_BYTES = _SIZE * (1 + _PLACES)


def _path(runtime_dir: str) -> str:
    return f"{runtime_dir}/begun"


class RecentStarts:
    """Notes them; the root's.

    Args:
        runtime_dir: in shared memory. What an earlier root has noted there stays, until its place is used again.

    Raises:
        OSError: there is no room for it.
    """

    def __init__(self, runtime_dir: str) -> None:
        self._path = _path(runtime_dir)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, _BYTES)  # ENOSPC now, and not SIGBUS later
            self._memory = mmap.mmap(fd, _BYTES)
        finally:
            os.close(fd)

    def note(self, run: str) -> None:
        """Note a run just before it begins."""
        (count,) = _COUNT.unpack_from(self._memory)
        at = _SIZE * (1 + count % _PLACES)
        self._memory[at : at + _ID_BYTES] = run.encode().ljust(_ID_BYTES, b"\0")[:_ID_BYTES]
        _COUNT.pack_into(self._memory, 0, count + 1)

    def clear(self) -> None:
        """Remove the file, once all runs have ended and their ends are stored."""
        os.unlink(self._path)


def begun(runtime_dir: str) -> frozenset[str]:
    """Return the ids of the last started runs; none without a note.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with open(_path(runtime_dir), "rb") as file:
            data = file.read(_BYTES)
    except FileNotFoundError:
        return frozenset()
    places = (data[at : at + _ID_BYTES].rstrip(b"\0") for at in range(_SIZE, len(data), _SIZE))
    return frozenset(place.decode("ascii", "replace") for place in places if place)
