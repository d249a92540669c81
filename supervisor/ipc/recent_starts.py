"""The most recently started runs, noted in shared memory in case the root is killed before a start is stored.

The notes are a file in the runtime directory. Its header is the number of noted runs (8 bytes, little-endian). Slots of
32 bytes follow, which are used in turn. Each has a run id (26 characters), padded with zeros. The root notes a run
before the run executes its first instruction.

After a root was killed, the next scheduler looks here for runs that are still waiting according to the database. If
such a run was started, it has crashed and must not start again. A run starts only after it is stored as waiting. So
while the database is not writable, at most the runs of one transaction start.
"""

import mmap
import os
import struct

_SLOTS = 4096
_SIZE = 32
_ID_BYTES = 26
_COUNT = struct.Struct("<Q")
_BYTES = _SIZE * (1 + _SLOTS)


def _path(runtime_dir: str) -> str:
    return f"{runtime_dir}/begun"


class RecentStarts:
    """Writes the notes, in the root.

    Args:
        runtime_dir: A directory on tmpfs. Notes of an earlier root stay there until their slots are used again.

    Raises:
        OSError: the tmpfs is full.
    """

    def __init__(self, runtime_dir: str) -> None:
        self._path = _path(runtime_dir)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, _BYTES)  # fails with ENOSPC now, where a sparse file would cause SIGBUS later
            self._memory = mmap.mmap(fd, _BYTES)
        finally:
            os.close(fd)

    def note(self, run: str) -> None:
        """Note a run just before it starts."""
        (count,) = _COUNT.unpack_from(self._memory)
        at = _SIZE * (1 + count % _SLOTS)
        self._memory[at : at + _ID_BYTES] = run.encode().ljust(_ID_BYTES, b"\0")[:_ID_BYTES]
        _COUNT.pack_into(self._memory, 0, count + 1)

    def clear(self) -> None:
        """Remove the file, after all runs have ended and their results are stored."""
        os.unlink(self._path)


def read_run_ids(runtime_dir: str) -> frozenset[str]:
    """Return the ids of the most recently started runs; none if there is no file.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        with open(_path(runtime_dir), "rb") as file:
            data = file.read(_BYTES)
    except FileNotFoundError:
        return frozenset()
    fields = (data[at : at + _ID_BYTES].rstrip(b"\0") for at in range(_SIZE, len(data), _SIZE))
    return frozenset(field.decode("ascii", "replace") for field in fields if field)
