"""The error with which the daemon refuses to start."""

import enum


class RefusalCause(enum.Enum):
    """The causes that prevent a start; each has its own exit code, by which scripts tell them apart."""

    CONFIGURATION = "configuration"
    DATA_DIRECTORY = "data directory"
    ALREADY_RUNNING = "already running"
    HOST = "host"


class NotStarted(Exception):
    """The daemon cannot start; the message gives the reason and the remedy."""

    def __init__(self, message: str, cause: RefusalCause) -> None:
        super().__init__(message)
        self.cause = cause
