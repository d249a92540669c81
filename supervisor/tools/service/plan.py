"""The parts of an installation: files, and the commands that register them with the init system."""

import hashlib
from dataclasses import dataclass, field

NAME = "ringward"
DEFAULT_PROGRAM = "/opt/ringward/.venv/bin/ringward"
"""The path of the program in the files of ``deploy/``."""
_MARK = "# Written by ringward service install; as long as it is not changed, this is its sum: "
"""The beginning of a file's last line, which shows whether a user has changed the file."""
_SUM_CHARS = 16

Command = tuple[str, ...]
"""A program with its arguments."""


@dataclass(frozen=True)
class InstallOptions:
    """How the daemon must run. No path contains characters that are special to shells or systemd."""

    program: str
    config: str
    data: str
    user: str | None = None
    """The daemon's user and group; None: root, so that tasks can run as any user. API workers then have another user.
    """
    hardened: bool = False
    old_systemd: bool = False
    """Whether systemd is older than version 254."""
    tell_data: bool = False
    """Whether the command line must name the data directory, because the configuration does not."""

    def command(self, *words: str) -> str:
        """Return a command line of ringward for this daemon."""
        data = ("--data", self.data) if self.tell_data else ()
        return " ".join((self.program, *words, "--config", self.config, *data))


@dataclass(frozen=True)
class File:
    """A file of the installation."""

    path: str
    text: str
    mode: int = 0o644


@dataclass(frozen=True)
class Plan:
    """An installation under one init system."""

    files: tuple[File, ...]
    enable: tuple[Command, ...]
    """Commands that start the daemon, now and at each boot."""
    disable: tuple[Command, ...]
    """Commands that stop the daemon, before the files are removed."""
    forget: tuple[Command, ...] = ()
    """Commands to run after the files were removed."""
    enabled: tuple[str, ...] = ()
    """Globs of paths. If a path matches one of them, the service is enabled."""
    state: tuple[str, ...] = field(default=())
    """Directories that the init system creates next to the files."""


def stamped(body: str) -> str:
    """Return the text of a file with its checksum in a last line, which is a comment that begins with ``#``."""
    return f"{body}{_MARK}{_sum(body)}\n"


def unchanged(text: str) -> bool:
    """Return whether a text is unchanged since a version of Ringward wrote it."""
    body, mark, checksum = text.rpartition(_MARK)
    return bool(mark) and checksum == f"{_sum(body)}\n"


def _sum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:_SUM_CHARS]
