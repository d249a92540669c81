"""TLS contexts: one for each version of the certificate's files, since making one takes milliseconds of the loop.

While the files are being renewed they may be absent or not belong together; then the version before goes on.
"""

import errno
import logging
import os
import ssl
from typing import Any, Protocol

log = logging.getLogger("gunicorn.error")


class Files(Protocol):
    """Where the certificate chain and its key come from."""

    def version(self) -> object:
        """Which they are now.

        Raises:
            OSError: they cannot be had.
        """

    def load(self, context: "ssl.SSLContext") -> None:
        """Have a context use them.

        Raises:
            OSError: they cannot be used; :class:`ssl.SSLError` is one.
        """


def no_passphrase() -> str:
    """Hook of :meth:`ssl.SSLContext.load_cert_chain`, which asks at the terminal without one.

    Raises:
        OSError: always.
    """
    raise OSError(errno.EINVAL, "tls_key is locked with a passphrase")


class OnDisk:
    """Files that this process can read."""

    def __init__(self, cert: str, key: str) -> None:
        self._cert, self._key = cert, key

    def version(self) -> object:
        """See :class:`Files`."""
        found = [os.stat(path) for path in (self._cert, self._key)]
        return [(one.st_ino, one.st_size, one.st_mtime_ns) for one in found]

    def load(self, context: "ssl.SSLContext") -> None:
        """See :class:`Files`."""
        context.load_cert_chain(self._cert, self._key, password=no_passphrase)


class Contexts:
    """The current context of one worker."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._version: object = None
        self._context: ssl.SSLContext | None = None
        self._told = ""
        """Errors that are in the log already, so that each is not logged for every connection."""

    def get(self, _config: Any, make: Any) -> "ssl.SSLContext":  # noqa: ARG002 - gunicorn's hook
        """Gunicorn's hook `ssl_context`: the context for the files as they are now.

        Raises:
            OSError: the files cannot be used, and none could before.
        """
        try:
            version = self._files.version()
            if self._context is None or version != self._version:
                self._version = version
                context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                self._files.load(context)
                self._context = context
            self._told = ""
        except OSError as err:  # ssl.SSLError is one
            if str(err) != self._told:
                self._told = str(err)
                log.error("the certificate cannot be %s: %s", "used" if self._context is None else "renewed", err)
            if self._context is None:
                raise
        return self._context
