"""The certificate for a worker of another user than the daemon, who cannot read its key: the scheduler reads it."""

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
    """Asks at most once a second whether there is another one; see :class:`api.server.tls.Files`."""

    def __init__(self, boot: Boot) -> None:
        self._control = ControlClient(boot.control_socket, boot.token)
        self._asking = BoundedSemaphore()
        self._until_s = 0.0
        self._version: str | None = None
        self._pem = ""

    def version(self) -> object:
        """Which there is now; that of before, when the scheduler is away."""
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
        """OpenSSL reads only files: this one is in memory, and no other process can open it."""
        fd = os.memfd_create("ringward-certificate", os.MFD_CLOEXEC)
        try:
            with open(fd, "w", encoding="ascii", errors="replace", closefd=False) as file:
                file.write(self._pem)
            context.load_cert_chain(f"/proc/self/fd/{fd}", password=no_passphrase)
        finally:
            os.close(fd)
