"""Gunicorn's log in the form that all our processes use: ``2026-11-21T03:04:05.678Z INFO api: text``."""

import logging
import re
import sys
import time
from collections import deque
from typing import Any

from gunicorn.glogging import Logger

from api.times import rfc3339

_REFUSALS = 10
_MINUTE_S = 60.0
_QUOTED = re.compile("b?['\"]")
"""Here begins what the client sent: perhaps a body that has lost its head, with a password in it."""
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
        self._told: deque[float] = deque(maxlen=_REFUSALS)
        self._untold = 0
        for handler in self.error_log.handlers:
            handler.setFormatter(Formatter())

    def info(self, msg: Any, *args: Any, **kwargs: Any) -> None:
        """Gunicorn's own news are of use only when something is wrong."""
        super().debug(msg, *args, **kwargs)

    def warning(self, msg: Any, *args: Any, **kwargs: Any) -> None:
        """Of requests that are none only so many a minute: anybody can send them, and older lines would have to go."""
        if not str(msg).startswith("Invalid request"):
            super().warning(msg, *args, **kwargs)
            return
        now_s = time.monotonic()
        if len(self._told) == _REFUSALS and now_s - self._told[0] < _MINUTE_S:
            self._untold += 1
            return
        self._told.append(now_s)
        if self._untold:
            super().warning("%d more invalid requests were not told of", self._untold)
            self._untold = 0
        super().warning("%.500s", _QUOTED.split(str(msg), maxsplit=1)[0].rstrip(": "))

    def debug(self, msg: Any, *args: Any, **kwargs: Any) -> None:
        """Of who hangs up in the middle of a request gunicorn would log what came of it, credentials among that."""
        if str(msg).startswith("Ignored premature client disconnection"):
            msg, args = "a client has hung up in the middle of a request", ()
        super().debug(msg, *args, **kwargs)

    def exception(self, msg: Any, *args: Any, **kwargs: Any) -> None:
        """A client that takes nothing for too long ends in a time-out, which gunicorn calls an error."""
        error = sys.exc_info()[1]
        if isinstance(error, TimeoutError | ConnectionError):
            super().debug("a client is gone: %s", error)
        else:
            super().exception(msg, *args, **kwargs)
