"""The parts of an installation: files, and commands that make them known to the init system."""

import hashlib
from dataclasses import dataclass, field

NAME = "ringward"
DEFAULT_PROGRAM = "/opt/ringward/.venv/bin/ringward"
"""Where the files in ``deploy/`` expect it."""
_MARK = "# Written by ringward service install; as long as it is not changed, this is its sum: "
"""Begins the last line of a file, which distinguishes our files from files that a user has changed."""
_SUM_CHARS = 16

Command = tuple[str, ...]
"""A program and its arguments."""


@dataclass(frozen=True)
class Wanted:
    """How the daemon is to run. No path has a character that shells or systemd take for something else."""

    program: str
    config: str
    data: str
    user: str | None = None
    """The daemon's user and group; None: root, so that tasks can have any. API workers have one of their own then."""
    hardened: bool = False
    old_systemd: bool = False
    """Whether it is before version 254."""
    tell_data: bool = False
    """Whether the command line names the data directory: the configuration does not."""

    def command(self, *words: str) -> str:
        """Return a call of ringward about this daemon."""
        data = ("--data", self.data) if self.tell_data else ()
        return " ".join((self.program, *words, "--config", self.config, *data))


@dataclass(frozen=True)
class File:
    """A file that is written."""

    path: str
    text: str
    mode: int = 0o644


@dataclass(frozen=True)
class Plan:
    """An installation under one init system."""

    files: tuple[File, ...]
    enable: tuple[Command, ...]
    """To have it started, now and at each boot."""
    disable: tuple[Command, ...]
    """To have it ended, before the files go."""
    forget: tuple[Command, ...] = ()
    """When they are gone."""
    enabled: tuple[str, ...] = ()
    """Patterns of paths, one of which is there while it is enabled."""
    state: tuple[str, ...] = field(default=())
    """Directories that the init system makes beside the files."""


def stamped(body: str) -> str:
    """Return the text of a file whose lines may be comments that begin with ``#``."""
    return f"{body}{_MARK}{_sum(body)}\n"


def unchanged(text: str) -> bool:
    """Return whether a file is as any version of Ringward has written it."""
    body, mark, rest = text.rpartition(_MARK)
    return bool(mark) and rest == f"{_sum(body)}\n"


def _sum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:_SUM_CHARS]
