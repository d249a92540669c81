"""The error with which the daemon refuses to start."""

import enum


class Cause(enum.Enum):
    """The causes that keep the daemon from starting; scripts tell causes apart by the exit code."""

    CONFIGURATION = "configuration"
    DATA_DIRECTORY = "data directory"
    ALREADY_RUNNING = "already running"
    HOST = "host"


class NotStarted(Exception):
    """The daemon cannot start. The message says why, and names the remedy."""

    def __init__(self, message: str, cause: Cause) -> None:
        super().__init__(message)
        self.cause = cause
