"""Errors of a ring or a log file.

::

    LogError
    ├── Corrupt        some lines cannot be read; the others can
    ├── ForeignFile    not a ring and not a log file of ours
    └── NewerFormat    written by a newer release

That a log does not exist is no error: an absent log is an empty log.
"""


class LogError(Exception):
    """The log cannot be read."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").partition("\n")[0])


class Corrupt(LogError):
    """The log is damaged.

    Attributes:
        first: the first line that cannot be read, or None when the damage is not within certain lines.
        next: the line to go on with: the first one behind the damage that can be read, or the end of the log.
    """

    def __init__(self, message: str | None = None, *, first: int | None = None, next_line: int | None = None) -> None:
        super().__init__(message)
        self.first = first
        self.next = next_line


class ForeignFile(LogError):
    """The file is neither a ring nor a log file."""


class NewerFormat(LogError):
    """The log was written by a newer release."""
