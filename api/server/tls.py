"""TLS contexts, one for each version of the certificate files.

Contexts are cached, because creating one blocks the loop for milliseconds. During a renewal the files may be missing or
not match each other; the previous context then stays in use.
"""

import errno
import logging
import os
import ssl
import time
from typing import Any, Protocol

import gevent
from gevent.lock import BoundedSemaphore

from supervisor.ipc.control_client import ControlClient, RequestRefused, Unavailable
from supervisor.ipc.messages import DaemonSettings

log = logging.getLogger("gunicorn.error")


class CertificateSource(Protocol):
    """A source of a certificate chain and its key."""

    def version(self) -> object:
        """Return an opaque value that changes whenever the files do.

        Raises:
            OSError: the files are not available.
        """

    def load(self, context: "ssl.SSLContext") -> None:
        """Load the files into a context.

        Raises:
            OSError: the files cannot be used; this includes :class:`ssl.SSLError`.
        """


def no_passphrase() -> str:
    """Password callback that refuses: without it, OpenSSL would ask for a passphrase at the terminal.

    Raises:
        OSError: always.
    """
    raise OSError(errno.EINVAL, "tls_key is locked with a passphrase")


class CertificateOnDisk:
    """A certificate and key that this process can read itself."""

    def __init__(self, cert: str, key: str) -> None:
        self._cert, self._key = cert, key

    def version(self) -> object:
        """Return inode, size and modification time of both files."""
        statuses = [os.stat(path) for path in (self._cert, self._key)]
        return [(status.st_ino, status.st_size, status.st_mtime_ns) for status in statuses]

    def load(self, context: "ssl.SSLContext") -> None:
        """Load the files into a context."""
        context.load_cert_chain(self._cert, self._key, password=no_passphrase)


_KEEP_S = 1.0
_ASK_S = 2.0


class CertificateFromScheduler:
    """A certificate and key that the scheduler sends, because this process's user cannot read the key.

    It requests a new version from the scheduler at most once a second.
    """

    def __init__(self, settings: DaemonSettings) -> None:
        self._control = ControlClient(settings.control_socket, settings.token)
        self._asking = BoundedSemaphore()
        self._until_s = 0.0
        self._version: str | None = None
        self._pem = ""

    def version(self) -> object:
        """Return the current version, or the last known one while the scheduler is down."""
        with self._asking:  # concurrent callers share the answer
            if time.monotonic() >= self._until_s:
                try:
                    self._ask()
                finally:
                    self._until_s = time.monotonic() + _KEEP_S
        return self._version

    def _ask(self) -> None:
        try:
            with gevent.Timeout(_ASK_S, Unavailable("the scheduler does not answer")):
                answer: dict[str, Any] = self._control.call("certificate", version=self._version)
        except (Unavailable, RequestRefused) as err:
            if self._version is None or isinstance(err, RequestRefused):
                raise OSError(errno.EAGAIN, str(err)) from err
            return
        if answer["pem"] is not None:
            self._pem = answer["pem"]
        self._version = answer["version"]

    def load(self, context: "ssl.SSLContext") -> None:
        """Load the certificate from a memory file, because OpenSSL only reads files."""
        fd = os.memfd_create("ringward-certificate", os.MFD_CLOEXEC)
        try:
            with open(fd, "w", encoding="ascii", errors="replace", closefd=False) as file:
                file.write(self._pem)
            context.load_cert_chain(f"/proc/self/fd/{fd}", password=no_passphrase)
        finally:
            os.close(fd)


class CurrentContext:
    """The TLS context that one worker currently uses."""

    def __init__(self, files: CertificateSource) -> None:
        self._files = files
        self._version: object = None
        self._context: ssl.SSLContext | None = None
        self._logged_error = ""
        """The last logged error; it is not logged again for each connection."""

    def get(self, _config: object, make: object) -> "ssl.SSLContext":  # noqa: ARG002 - gunicorn's hook
        """Return the context for the current files. This is gunicorn's hook `ssl_context`.

        Raises:
            OSError: the files cannot be used, and no earlier version was loaded.
        """
        try:
            version = self._files.version()
            if self._context is None or version != self._version:
                self._version = version
                context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                self._files.load(context)
                self._context = context
            self._logged_error = ""
        except OSError as err:  # includes ssl.SSLError
            if str(err) != self._logged_error:
                self._logged_error = str(err)
                log.error("the certificate cannot be %s: %s", "used" if self._context is None else "renewed", err)
            if self._context is None:
                raise
        return self._context
