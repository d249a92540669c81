"""Errors of a ring or a log file.

::

    LogError
    ├── Corrupt        some lines cannot be read; the others can
    ├── ForeignFile    neither a ring nor a log file of Ringward
    └── NewerFormat    written by a newer release

A missing log is not an error: it counts as an empty log.
"""


class LogError(Exception):
    """The log cannot be read."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").partition("\n")[0])


class Corrupt(LogError):
    """The log is damaged.

    Attributes:
        first: the first unreadable line; None if the damage affects no particular lines.
        next: the line to continue with: the first readable line after the damage, or the end of the log.
    """

    def __init__(self, message: str | None = None, *, first: int | None = None, next_line: int | None = None) -> None:
        super().__init__(message)
        self.first = first
        self.next = next_line


class ForeignFile(LogError):
    """The file is neither a ring nor a log file."""


class NewerFormat(LogError):
    """The log was written by a newer release."""
