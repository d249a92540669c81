"""A binding for inotify(7), which the standard library lacks; it reports changes of the files in directories."""

import ctypes
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

ATTRIB = 0x4
CLOSE_WRITE = 0x8
MOVED_FROM = 0x40
MOVED_TO = 0x80
CREATE = 0x100
DELETE = 0x200
DELETE_SELF = 0x400
MOVE_SELF = 0x800
Q_OVERFLOW = 0x4000
IGNORED = 0x8000
_ONLYDIR = 0x1000000
_READ_BYTES = 65536
_EVENT = struct.Struct("iIII")

_libc = ctypes.CDLL(None, use_errno=True)


class InotifyEvent(NamedTuple):
    """One event: the watch descriptor of the directory (-1: an overflow), the event mask and the name of the file."""

    watch: int
    mask: int
    name: str


class Inotify:
    """An inotify instance; `fd` is readable while events are waiting.

    Raises:
        OSError: EMFILE: the user has reached the limit of instances.
    """

    def __init__(self) -> None:
        self.fd: int = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, directory: str, mask: int) -> int:
        """Watch a directory; return its watch descriptor.

        Raises:
            OSError: the directory cannot be watched; ENOSPC: the user has reached the limit of watches.
        """
        return _checked(_libc.inotify_add_watch(self.fd, os.fsencode(directory), mask | _ONLYDIR))

    def remove(self, watch: int) -> None:
        """Stop watching a directory. It is not an error if the directory was removed."""
        _libc.inotify_rm_watch(self.fd, watch)

    def events(self) -> Iterator[InotifyEvent]:
        """Yield the waiting events without blocking."""
        while True:
            try:
                data = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                watch, mask, _cookie, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                name = data[at : at + length].rstrip(b"\0")
                at += length
                yield InotifyEvent(watch, mask, os.fsdecode(name))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
