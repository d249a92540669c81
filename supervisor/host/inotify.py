"""inotify(7), which the standard library lacks: events of files in directories."""

import ctypes
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

ATTRIB = 0x4
CLOSE_WRITE = 0x8
MOVED_FROM = 0x40
MOVED_TO = 0x80
DELETE = 0x200
DELETE_SELF = 0x400
MOVE_SELF = 0x800
Q_OVERFLOW = 0x4000
IGNORED = 0x8000
_ONLYDIR = 0x1000000
_READ_BYTES = 65536
_EVENT = struct.Struct("iIII")

_libc = ctypes.CDLL(None, use_errno=True)


class Event(NamedTuple):
    """One event: the number of the directory (-1: an overflow), what happened, and the name of the file."""

    watch: int
    mask: int
    name: str


class Inotify:
    """One instance of inotify; `fd` becomes readable with the next event.

    Raises:
        OSError: EMFILE: the user has too many instances.
    """

    def __init__(self) -> None:
        self.fd: int = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, directory: str, mask: int) -> int:
        """Watch a directory; return its number.

        Raises:
            OSError: ENOSPC: the user watches too many files; or the directory cannot be read.
        """
        return _checked(_libc.inotify_add_watch(self.fd, os.fsencode(directory), mask | _ONLYDIR))

    def remove(self, watch: int) -> None:
        """Stop watching a directory. A removed directory is no error."""
        _libc.inotify_rm_watch(self.fd, watch)

    def events(self) -> Iterator[Event]:
        """Return the events that are there."""
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
                yield Event(watch, mask, os.fsdecode(name))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
