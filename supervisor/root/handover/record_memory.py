"""The record of one run, in memory that outlives us: the service manager holds its descriptor, too.

The request, environment and secrets among it, is written once. Progress, which changes with each step, has a fixed size
and a place of its own; so have the details, which change rarely. Both have two copies, written in turn, each with a
number and a checksum: a root that is killed in the middle of writing one leaves the other. Text that a mask holds back
stands by itself, in the same way::

    0        16 MiB     32 MiB            33 MiB                     34 MiB   50 MiB      58 MiB
    | format 1, copies  | held A | held B | progress A | progress B  | start  | details A | details B

Places that were never written take no memory. Progress has the number of the details that belong to it, and is written
after them, so both change at once. Until the new progress is whole, the old one holds, with its details in the other
place. A record of format 1 holds until its successor is whole.
"""

import errno
import json
import os
import struct
from typing import Any, NamedTuple
from zlib import crc32

from supervisor.root.handover import state_schema
from supervisor.root.handover.state_schema import RunDetails, RunStart, RunState
from supervisor.root.handover.table import state_before

FORMAT = 2

_MIB = 1 << 20
_HEADER = struct.Struct("<QII")
"""Sequence number, length and checksum of the data after it."""
_FORMAT_1 = (0, 16 * _MIB)
_HELD = (32 * _MIB, 32 * _MIB + 65536)
_PROGRESS = (33 * _MIB, 33 * _MIB + 4096)
_START = (34 * _MIB, 34 * _MIB)
_DETAILS = (50 * _MIB, 58 * _MIB)
_MAX_BYTES = {_START: 16 * _MIB, _DETAILS: 8 * _MIB}
_HELD_HEADER = struct.Struct("<IQ")
"""Length of the held-back text of standard output, and the number of replaced secrets."""
_DETAILS_NUMBER = struct.Struct("<Q")
"""Number of the details that belong to a progress."""


class Known(NamedTuple):
    """The content of a record."""

    about: dict[str, Any]
    """Format, daemon, boot and place; a root uses only a record in which they are its own."""
    fds: dict[str, list[int]]
    """Device and inode of each pipe by its role: out, err, status."""
    state: RunState


class Record:
    """The memory of one record. The control thread writes the record, the pump the held-back text.

    Args:
        fd: of the memory; ours from now on.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._held_seq = max(_read(fd, _HELD)[0], 0)
        self._details = b""
        self._begun = _read(fd, _START)[0] >= 0
        self._of_format_1 = bool(_whole(fd, _FORMAT_1))
        self._seq, self._details_seq, found = _newest(fd)
        if found is not None:
            self._details = found.details

    @classmethod
    def make(cls) -> "Record":
        """Create an empty record.

        Raises:
            OSError: out of descriptors.
        """
        return cls(os.memfd_create("ringward-run", os.MFD_CLOEXEC))

    def write(self, known: Known) -> None:
        """Write the current state. `start` and `fds` are written only the first time.

        Raises:
            OSError: there is no memory, or not so much.
        """
        if not self._begun:
            start = {"start": state_schema.to_json(known.state.start), "fds": known.fds}
            _write(self.fd, _START, 0, json.dumps(start).encode())
            self._begun = True
        details = json.dumps({**known.about, "details": state_schema.to_json(known.state.details)}).encode()
        if details != self._details:
            self._details = b""
            _write(self.fd, _DETAILS, self._details_seq + 1, details)
            self._details, self._details_seq = details, self._details_seq + 1
        progress = _DETAILS_NUMBER.pack(self._details_seq) + state_schema.pack(known.state.progress)
        _write(self.fd, _PROGRESS, self._seq + 1, progress)
        self._seq += 1
        if self._of_format_1:
            for place in _FORMAT_1:  # a version that knows no other must not find the old state
                os.pwrite(self.fd, bytes(_HEADER.size), place)
            self._of_format_1 = False

    def read(self) -> Known | None:
        """Return the content written last; None if there is none.

        Raises:
            Foreign, KeyError, TypeError, ValueError: it is not what this version knows.
        """
        start, (_, _, found) = _read(self.fd, _START)[1], _newest(self.fd)
        if not start or found is None:
            return _format_1(self.fd)
        begun, about = json.loads(start), json.loads(found.details)
        state = RunState(
            state_schema.from_json(RunStart, begun["start"]),
            state_schema.unpack(found.progress),
            state_schema.from_json(RunDetails, about.pop("details")),
        )
        return Known(about, begun["fds"], state)

    def hold(self, out: bytes, err: bytes, masked: int) -> None:
        """Write the text that masks hold back from both outputs, and the number of replaced secrets.

        Raises:
            OSError: there is no memory.
        """
        self._held_seq += 1
        _write(self.fd, _HELD, self._held_seq, _HELD_HEADER.pack(len(out), masked) + out + err)

    def held(self) -> tuple[bytes, bytes, int]:
        """Return the last output passed to :meth:`hold`."""
        data = _read(self.fd, _HELD)[1]
        if not data:
            return b"", b"", 0
        length, masked = _HELD_HEADER.unpack_from(data)
        text = data[_HELD_HEADER.size :]
        return text[:length], text[length:], masked

    def close(self) -> None:
        """Close the memory."""
        os.close(self.fd)


class _Found(NamedTuple):
    progress: bytes
    details: bytes


def _newest(fd: int) -> tuple[int, int, _Found | None]:
    """Return the newest progress with intact details, and the numbers of both; zeros if there is none."""
    details = dict(_whole(fd, _DETAILS))
    for seq, data in sorted(_whole(fd, _PROGRESS), reverse=True):
        (number,) = _DETAILS_NUMBER.unpack_from(data)
        if number in details:
            return seq, number, _Found(data[_DETAILS_NUMBER.size :], details[number])
    return 0, 0, None


def _format_1(fd: int) -> Known | None:
    data = _read(fd, _FORMAT_1)[1]
    if not data:
        return None
    known = json.loads(data)
    about = {name: known[name] for name in ("daemon", "boot", "place")}
    return Known({"format": FORMAT, **about}, known["fds"], state_before(known))


def _write(fd: int, places: tuple[int, int], seq: int, data: bytes) -> None:
    if len(data) + _HEADER.size > _MAX_BYTES.get(places, places[1] - places[0]):
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    header = _HEADER.pack(seq, len(data), crc32(data, seq & 0xFFFFFFFF))
    if os.pwrite(fd, header + data, places[seq & 1]) < len(header) + len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _whole(fd: int, places: tuple[int, int]) -> list[tuple[int, bytes]]:
    """Return the whole copies with their numbers."""
    found = []
    for place in dict.fromkeys(places):
        header = os.pread(fd, _HEADER.size, place)
        if len(header) < _HEADER.size or not header.strip(b"\0"):
            continue
        seq, length, crc = _HEADER.unpack(header)
        data = os.pread(fd, length, place + _HEADER.size) if length <= _FORMAT_1[1] else b""
        if len(data) == length and crc32(data, seq & 0xFFFFFFFF) == crc:
            found.append((seq, data))
    return found


def _read(fd: int, places: tuple[int, int]) -> tuple[int, bytes]:
    """Return the newer intact copy with its number; -1 if there is none."""
    return max(_whole(fd, places), default=(-1, b""))
