"""TLS contexts: one for each version of the certificate's files, since making one takes milliseconds of the loop.

While the files are being renewed they may be absent or not belong together; then the version before goes on.
"""

import logging
import os
import ssl
from collections.abc import Callable
from typing import Any

log = logging.getLogger("gunicorn.error")

_Version = tuple[tuple[int, int, int], ...]


class Contexts:
    """The current context of one worker."""

    def __init__(self) -> None:
        self._version: _Version | None = None
        self._context: ssl.SSLContext | None = None

    def get(self, config: Any, make: "Callable[[], ssl.SSLContext]") -> "ssl.SSLContext":
        """Gunicorn's hook `ssl_context`: the context for the files as they are now.

        Raises:
            OSError: the files cannot be used, and none could before.
        """
        try:
            version = tuple(_version(path) for path in (config.certfile, config.keyfile))
            if self._context is None or version != self._version:
                self._version = version
                self._context = make()
        except OSError as err:  # ssl.SSLError is one
            if self._context is None:
                raise
            log.error("the certificate cannot be renewed: %s", err)
        return self._context


def _version(path: str) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns
