"""The table that a root leaves to the one that it is executed anew as, in memory that only its descriptor leads to.

It is an object of JSON, described by whoever contributes to it (each ``take_down``), with

    handover   number of its format
    version    of Ringward, which wrote it
    keep       all descriptors that are inherited
    signals    that were caught and not yet acted upon

A root reads the format of the version before, too: :data:`CONVERSIONS` has for each older format what makes the next
one of it. Of a newer format it knows nothing, and says so when it is tried, before anything was given up.
"""

import json
import os
from collections.abc import Callable
from typing import Any

from supervisor.version import VERSION

HANDOVER = 2

CONVERSIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: lambda table: table,  # the fields of format 2 have defaults (supervisor/root/schema.py)
}
"""By format, what makes the next one of it."""

Table = dict[str, Any]


class NotAccepted(Exception):
    """A table that this version cannot go on with."""


class Keep:
    """Takes note of the descriptors that are to be inherited."""

    def __init__(self) -> None:
        self.fds: set[int] = set()

    def __call__(self, fd: int) -> int:
        """Note one, and return it."""
        self.fds.add(fd)
        return fd


def write(table: Table, keep: Keep, signals: set[int]) -> int:
    """Put a table into memory; returns the descriptor, which is closed on execution as yet."""
    whole = {"handover": HANDOVER, "version": VERSION, "keep": sorted(keep.fds), "signals": sorted(signals), **table}
    fd = os.memfd_create("ringward-handover", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(json.dumps(whole).encode())
    return fd


def read(fd: int) -> Table:
    """The table behind a descriptor, as a root of this version would have written it. Closes the descriptor.

    Raises:
        NotAccepted: a newer version wrote it, or one that is too old.
    """
    with open(fd, "rb") as file:
        file.seek(0)
        table: Table = json.load(file)
    found, author = table["handover"], table["version"]
    if found > HANDOVER:
        raise NotAccepted(f"{VERSION} does not know what {author} hands over: format {found}, known is {HANDOVER}")
    for number in range(found, HANDOVER):
        if number not in CONVERSIONS:
            raise NotAccepted(f"{VERSION} does not know any more what {author} hands over: format {found}")
        table = CONVERSIONS[number](table)
    return table
