"""The recovery record of one run, in a memfd that outlives the root because the service manager holds it too.

The request is written once, including the environment and its secrets. Three parts change: the progress with each step,
the details rarely, and the text that masks hold back with the output. Each of them has two copies, which are written in
turn and have a number and a checksum. So a root that is killed while it writes one copy leaves the other one intact::

    0        16 MiB     32 MiB            33 MiB                     34 MiB   50 MiB      58 MiB
    | not used          | held A | held B | progress A | progress B  | start  | details A | details B

Offsets that were never written use no memory. Progress contains the number of its details and is written after them, so
both change at the same moment. Until the new progress is complete, the old progress is valid, with the other copy of
the details.
"""

import errno
import json
import os
import struct
from typing import NamedTuple
from zlib import crc32

from logring.state_json import from_json, to_json
from supervisor.root.handover import state_schema
from supervisor.root.handover.state_schema import RunDetails, RunStart, RunState

FORMAT = 2

_MIB = 1 << 20
_HEADER = struct.Struct("<QII")
"""Sequence number, length and checksum of the data after it."""
_HELD = (32 * _MIB, 32 * _MIB + 65536)
_PROGRESS = (33 * _MIB, 33 * _MIB + 4096)
_START = (34 * _MIB, 34 * _MIB)
_DETAILS = (50 * _MIB, 58 * _MIB)
_MAX_BYTES = {_START: 16 * _MIB, _DETAILS: 8 * _MIB}
_HELD_HEADER = struct.Struct("<IQ")
"""The length of the text held back from standard output, and the number of replaced secrets."""
_DETAILS_NUMBER = struct.Struct("<Q")
"""The number of the details that belong to a progress."""


class RecordContent(NamedTuple):
    """The content of a record."""

    about: dict[str, object]
    """Format, daemon, boot and runtime directory. A root uses only records in which these are its own."""
    fds: dict[str, list[int]]
    """Device and inode of each pipe by role: out, err, status."""
    state: RunState


class Record:
    """The memory of one record. The control thread writes the record, and the pump writes the held-back text.

    Args:
        fd: The memfd, which this object closes.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._held_seq = max(_newest_copy(fd, _HELD)[0], 0)
        self._details = b""
        self._start_written = _newest_copy(fd, _START)[0] >= 0
        self._seq, self._details_seq, newest = _newest(fd)
        if newest is not None:
            self._details = newest.details

    @classmethod
    def make(cls) -> "Record":
        """Create an empty record.

        Raises:
            OSError: no descriptor is left.
        """
        return cls(os.memfd_create("ringward-run", os.MFD_CLOEXEC))

    def write(self, content: RecordContent) -> None:
        """Write the current state. `start` and `fds` are written only the first time.

        Raises:
            OSError: there is not enough memory, or the record is too large.
        """
        if not self._start_written:
            start = {"start": to_json(content.state.start), "fds": content.fds}
            _write(self.fd, _START, 0, json.dumps(start).encode())
            self._start_written = True
        details = json.dumps({**content.about, "details": to_json(content.state.details)}).encode()
        if details != self._details:
            self._details = b""
            _write(self.fd, _DETAILS, self._details_seq + 1, details)
            self._details, self._details_seq = details, self._details_seq + 1
        progress = _DETAILS_NUMBER.pack(self._details_seq) + state_schema.pack(content.state.progress)
        _write(self.fd, _PROGRESS, self._seq + 1, progress)
        self._seq += 1

    def read(self) -> RecordContent | None:
        """Return the last written content; None if there is none.

        Raises:
            UnknownFormat, AttributeError, LookupError, RecursionError, TypeError, ValueError, struct.error: another
                version wrote it, in an unknown form.
        """
        start, (_, _, newest) = _newest_copy(self.fd, _START)[1], _newest(self.fd)
        if not start or newest is None:
            return None
        start_fields, about = json.loads(start), json.loads(newest.details)
        state = RunState(
            from_json(RunStart, start_fields["start"]),
            state_schema.unpack(newest.progress),
            from_json(RunDetails, about.pop("details")),
        )
        return RecordContent(about, start_fields["fds"], state)

    def write_held(self, out: bytes, err: bytes, masked: int) -> None:
        """Write the text that masks hold back from both outputs, and the number of replaced secrets.

        Raises:
            OSError: there is not enough memory.
        """
        self._held_seq += 1
        _write(self.fd, _HELD, self._held_seq, _HELD_HEADER.pack(len(out), masked) + out + err)

    def read_held(self) -> tuple[bytes, bytes, int]:
        """Return the last output passed to :meth:`write_held`."""
        data = _newest_copy(self.fd, _HELD)[1]
        if not data:
            return b"", b"", 0
        length, masked = _HELD_HEADER.unpack_from(data)
        text = data[_HELD_HEADER.size :]
        return text[:length], text[length:], masked

    def close(self) -> None:
        """Close the memory."""
        os.close(self.fd)


class _NewestParts(NamedTuple):
    progress: bytes
    details: bytes


def _newest(fd: int) -> tuple[int, int, _NewestParts | None]:
    """Return the numbers of the newest progress and its details, and both; zeros and None if there is none."""
    details = dict(_intact_copies(fd, _DETAILS))
    for seq, data in sorted(_intact_copies(fd, _PROGRESS), reverse=True):
        (number,) = _DETAILS_NUMBER.unpack_from(data)
        if number in details:
            return seq, number, _NewestParts(data[_DETAILS_NUMBER.size :], details[number])
    return 0, 0, None


def _write(fd: int, offsets: tuple[int, int], seq: int, data: bytes) -> None:
    if len(data) + _HEADER.size > _MAX_BYTES.get(offsets, offsets[1] - offsets[0]):
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    header = _HEADER.pack(seq, len(data), crc32(data, seq & 0xFFFFFFFF))
    if os.pwrite(fd, header + data, offsets[seq & 1]) < len(header) + len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _intact_copies(fd: int, offsets: tuple[int, int]) -> list[tuple[int, bytes]]:
    """Return the intact copies with their numbers."""
    records = []
    for offset in dict.fromkeys(offsets):
        header = os.pread(fd, _HEADER.size, offset)
        if len(header) < _HEADER.size or not header.strip(b"\0"):
            continue
        seq, length, crc = _HEADER.unpack(header)
        data = os.pread(fd, length, offset + _HEADER.size) if length <= _MAX_BYTES[_START] else b""
        if len(data) == length and crc32(data, seq & 0xFFFFFFFF) == crc:
            records.append((seq, data))
    return records


def _newest_copy(fd: int, offsets: tuple[int, int]) -> tuple[int, bytes]:
    """Return the newer intact copy and its number; -1 and nothing if there is none."""
    return max(_intact_copies(fd, offsets), default=(-1, b""))
