"""Gunicorn's log in the form that all our processes use: ``2026-11-21T03:04:05.678Z INFO api: text``."""

import logging
import sys
from typing import Any

from gunicorn.glogging import Logger

from api.times import rfc3339

_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code != 9}


class Formatter(logging.Formatter):
    """One line per line: a traceback's lines carry the same beginning, control characters are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's lines."""
        head = f"{rfc3339(int(record.created * 1000))} {record.levelname} api: "
        # Only the message is ours and has no line breaks of its own; those in it came from outside.
        lines = [record.getMessage().translate(_ESCAPES)]
        if record.exc_info:
            lines += [line.translate(_ESCAPES) for line in self.formatException(record.exc_info).split("\n")]
        return "\n".join(head + line for line in lines)


class ApiLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """Gunicorn's logger, quieter: what a client does to its own connection is not worth a traceback."""

    def setup(self, cfg: Any) -> None:
        """Set level and form."""
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(Formatter())

    def info(self, msg: Any, *args: Any, **kwargs: Any) -> None:
        """Gunicorn's own news are of use only when something is wrong."""
        super().debug(msg, *args, **kwargs)

    def exception(self, msg: Any, *args: Any, **kwargs: Any) -> None:
        """A client that takes nothing for too long ends in a time-out, which gunicorn calls an error."""
        error = sys.exc_info()[1]
        if isinstance(error, TimeoutError | ConnectionError):
            super().debug("a client is gone: %s", error)
        else:
            super().exception(msg, *args, **kwargs)
