"""The table that a root hands over to its successor in the same process, in a memfd.

It is a JSON object with

    handover   the number of the format
    version    the version of Ringward that wrote it
    keep       the inherited descriptors
    signals    the signals that were caught but not handled yet
    runs       pairs of :class:`.state_schema.RunState` and :class:`.state_schema.ExactState`

and the other fields of :class:`.state_schema.Handover`, which belong to no run: settings, connections to helpers,
listeners, unwritten logs, unacknowledged exits.

A root also reads older formats: :data:`CONVERSIONS` converts each format to the next one. It refuses newer formats in
the trial, before anything has changed.
"""

import json
import os
from collections.abc import Callable
from typing import Any

from logring.state_json import to_json
from supervisor.root.handover.state_schema import RootState
from supervisor.version import VERSION

HANDOVER = 3

Table = dict[str, Any]


class HandoverRejected(Exception):
    """This version cannot use the table."""


class KeptDescriptorList:
    """Collects the descriptors that the next root must inherit."""

    def __init__(self) -> None:
        self.fds: set[int] = set()

    def __call__(self, fd: int) -> int:
        """Add a descriptor, and return it."""
        self.fds.add(fd)
        return fd


def write(state: RootState, keep: KeptDescriptorList, signals: set[int]) -> int:
    """Write the state to a memfd and return its descriptor, which still has the close-on-exec flag."""
    head = {"handover": HANDOVER, "version": VERSION, "keep": sorted(keep.fds), "signals": sorted(signals)}
    whole = {**head, **to_json(state)}
    fd = os.memfd_create("ringward-handover", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(json.dumps(whole).encode())
    return fd


CONVERSIONS: dict[int, Callable[[Table], Table]] = {}
"""A converter to the next format for each older format."""


def read(fd: int) -> Table:
    """Read a table, close its descriptor, and convert the table to the format of this version.

    Raises:
        HandoverRejected: the version that wrote it is too new or too old.
    """
    with open(fd, "rb") as file:
        file.seek(0)
        table: Table = json.load(file)
    written, author = table["handover"], table["version"]
    if written > HANDOVER:
        raise HandoverRejected(
            f"{VERSION} cannot read the handover of {author}: its format is {written}, the newest known is {HANDOVER}"
        )
    for number in range(written, HANDOVER):
        if number not in CONVERSIONS:
            raise HandoverRejected(f"{VERSION} no longer reads the handover of {author}: its format is {written}")
        table = CONVERSIONS[number](table)
    return table
