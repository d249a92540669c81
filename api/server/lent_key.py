"""The TLS certificate and key, sent by the scheduler to workers whose user cannot read the key file."""

import errno
import os
import ssl
import time
from typing import Any

import gevent
from gevent.lock import BoundedSemaphore

from api.server.tls import no_passphrase
from supervisor.ipc.control_client import ControlClient, Refused, Unavailable
from supervisor.ipc.messages import Boot

_KEEP_S = 1.0
_ASK_S = 2.0


class FromScheduler:
    """A source of certificate files that asks the scheduler at most once a second for a new version."""

    def __init__(self, boot: Boot) -> None:
        self._control = ControlClient(boot.control_socket, boot.token)
        self._asking = BoundedSemaphore()
        self._until_s = 0.0
        self._version: str | None = None
        self._pem = ""

    def version(self) -> object:
        """Return the current version; while the scheduler is down, the last known one."""
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
        except (Unavailable, Refused) as err:
            if self._version is None or isinstance(err, Refused):
                raise OSError(errno.EAGAIN, str(err)) from err
            return
        if answer["pem"] is not None:
            self._pem = answer["pem"]
        self._version = answer["version"]

    def load(self, context: "ssl.SSLContext") -> None:
        """Load the certificate from a memory file, because OpenSSL reads only files. No other process can open it."""
        fd = os.memfd_create("ringward-certificate", os.MFD_CLOEXEC)
        try:
            with open(fd, "w", encoding="ascii", errors="replace", closefd=False) as file:
                file.write(self._pem)
            context.load_cert_chain(f"/proc/self/fd/{fd}", password=no_passphrase)
        finally:
            os.close(fd)
