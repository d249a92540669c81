"""gunicorn's log in the daemon's format: ``2026-11-21T03:04:05.678Z INFO api: text``."""

import logging
import sys
import time
from collections import deque

from gunicorn.glogging import Logger

from api.schemas.wire_times import rfc3339

_MOST = 10
_KINDS = 1000
_MINUTE_S = 60.0
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code != 9}


class Formatter(logging.Formatter):
    """A formatter that prefixes each line of a traceback, and escapes control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one or more lines."""
        head = f"{rfc3339(int(record.created * 1000))} {record.levelname} api: "
        # A line break in a message comes from a client, so it is escaped. Only a traceback has several lines.
        lines = [record.getMessage().translate(_ESCAPES)]
        if record.exc_info:
            lines += [line.translate(_ESCAPES) for line in self.formatException(record.exc_info).split("\n")]
        return "\n".join(head + line for line in lines)


class MessageLimit:
    """A limit of `most` messages per minute, so that messages that any client can cause do not displace older lines."""

    def __init__(self, most: int) -> None:
        self._logged_s: deque[float] = deque(maxlen=most)
        self._suppressed = 0

    def turn(self) -> int | None:
        """Return the number of messages suppressed since the last logged one; None if this one is suppressed too."""
        now_s = time.monotonic()
        if len(self._logged_s) == self._logged_s.maxlen and now_s - self._logged_s[0] < _MINUTE_S:
            self._suppressed += 1
            return None
        self._logged_s.append(now_s)
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed


class MessageLimitFilter(logging.Filter):
    """A filter with a `MessageLimit` for each kind of warning and error; it appends the number of suppressed ones."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[str, MessageLimit] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record. Messages that differ only in their arguments are of one kind."""
        if record.levelno < logging.WARNING:
            return True
        if len(self._kinds) >= _KINDS:
            self._kinds.clear()
        suppressed = self._kinds.setdefault(str(record.msg), MessageLimit(_MOST)).turn()
        if suppressed:
            record.msg, record.args = f"{record.getMessage()} (and {suppressed} earlier ones, not logged)", None
        return suppressed is not None


class ApiLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """A gunicorn logger without tracebacks for errors that a client causes on its own connection."""

    def setup(self, cfg: object) -> None:
        """Set the format and the limits of the error log."""
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(Formatter())
            handler.addFilter(MessageLimitFilter())

    def info(self, msg: object, *args: object, **kwargs: object) -> None:
        """Log gunicorn's own informational messages at debug level."""
        super().debug(msg, *args, **kwargs)

    def exception(self, msg: object, *args: object, **kwargs: object) -> None:
        """Log a client's timeout or disconnection at debug level; gunicorn would log it as an error."""
        error = sys.exc_info()[1]
        if isinstance(error, TimeoutError | ConnectionError):
            super().debug("a client disconnected: %s", error)
        else:
            super().exception(msg, *args, **kwargs)
