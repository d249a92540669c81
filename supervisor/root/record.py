"""What is known of one run, in memory that outlives us: the service manager holds its descriptor, too.

There are two copies, written in turn, each with a checksum: a root that is killed in the middle of writing one leaves
the other. What a mask holds back changes more often and stands by itself, in the same way::

    0        16 MiB     32 MiB   +64 KiB
    | copy A | copy B   | held A | held B        places that were never written take no memory
"""

import json
import os
import struct
from typing import Any
from zlib import crc32

_HEADER = struct.Struct("<QII")
"""Sequence number, length and checksum of what follows."""
_COPIES = (0, 1 << 24)
_HELD = (1 << 25, (1 << 25) + (1 << 16))
_HELD_HEADER = struct.Struct("<IQ")
"""Length of what is held back of standard output, and how many were replaced."""


class Record:
    """One such memory; the control thread writes the record, the pump what is held back.

    Args:
        fd: of the memory; ours from now on.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._seq = max(_read(fd, _COPIES)[0], 0)
        self._held_seq = max(_read(fd, _HELD)[0], 0)

    @classmethod
    def make(cls) -> "Record":
        """An empty one.

        Raises:
            OSError: out of descriptors.
        """
        return cls(os.memfd_create("ringward-run", os.MFD_CLOEXEC))

    def write(self, known: dict[str, Any]) -> None:
        """Put down what is known now.

        Raises:
            OSError: there is no memory.
        """
        self._seq += 1
        _write(self.fd, _COPIES, self._seq, json.dumps(known).encode())

    def read(self) -> dict[str, Any] | None:
        """What was put down last; None: nothing."""
        data = _read(self.fd, _COPIES)[1]
        found: dict[str, Any] | None = json.loads(data) if data else None
        return found

    def hold(self, out: bytes, err: bytes, masked: int) -> None:
        """Put down what masks hold back of standard output and standard error, and how many secrets they replaced.

        Raises:
            OSError: there is no memory.
        """
        self._held_seq += 1
        _write(self.fd, _HELD, self._held_seq, _HELD_HEADER.pack(len(out), masked) + out + err)

    def held(self) -> tuple[bytes, bytes, int]:
        """What :meth:`hold` was told last."""
        data = _read(self.fd, _HELD)[1]
        if not data:
            return b"", b"", 0
        length, masked = _HELD_HEADER.unpack_from(data)
        text = data[_HELD_HEADER.size :]
        return text[:length], text[length:], masked

    def close(self) -> None:
        """Let go of it."""
        os.close(self.fd)


def _write(fd: int, places: tuple[int, int], seq: int, data: bytes) -> None:
    header = _HEADER.pack(seq, len(data), crc32(data, seq & 0xFFFFFFFF))
    os.pwrite(fd, header + data, places[seq & 1])


def _read(fd: int, places: tuple[int, int]) -> tuple[int, bytes]:
    """The newer whole copy with its number; -1 when there is none."""
    found = -1, b""
    for place in places:
        header = os.pread(fd, _HEADER.size, place)
        if len(header) < _HEADER.size:
            continue
        seq, length, crc = _HEADER.unpack(header)
        data = os.pread(fd, length, place + _HEADER.size) if length < _COPIES[1] else b""
        if seq > found[0] and len(data) == length and crc32(data, seq & 0xFFFFFFFF) == crc:
            found = seq, data
    return found
