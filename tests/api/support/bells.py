"""The doorbells of a root and of a scheduler that are not there."""

import os
import selectors
import threading
import time

from supervisor.ipc.doorbell import DoorbellServer
from supervisor.ipc.messages import DaemonSettings


class Bells:
    """Both doorbells, in one thread."""

    def __init__(self, settings: DaemonSettings) -> None:
        self._root = DoorbellServer(settings.root_bell, settings.token)
        self._scheduler = DoorbellServer(settings.scheduler_bell, settings.token)
        self._selector = selectors.DefaultSelector()
        self._closing = False
        self.muted = False
        self._wake_r, self._wake_w = os.pipe()
        self._selector.register(self._wake_r, selectors.EVENT_READ, None)
        for bell in (self._root, self._scheduler):
            self._selector.register(bell.listener, selectors.EVENT_READ, (bell, True))
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def ring(self, name: str) -> None:
        if not self.muted:
            bell = self._scheduler if name == "events" else self._root
            bell.ring([name], time.monotonic())
            os.write(self._wake_w, b".")

    def _loop(self) -> None:
        while not self._closing:
            due = [at for bell in (self._root, self._scheduler) if (at := bell.due_s()) is not None]
            wait_s = max(0.0, min(due) - time.monotonic()) if due else None
            for key, _mask in self._selector.select(wait_s):
                if key.data is None:
                    os.read(self._wake_r, 4096)
                    continue
                bell, listening = key.data
                if listening:
                    sock = bell.accept()
                    if sock is not None:
                        self._selector.register(sock.fileno(), selectors.EVENT_READ, (bell, False))
                else:
                    self._selector.unregister(key.fd)
                    if bell.readable(key.fd, time.monotonic()):
                        self._selector.register(key.fd, selectors.EVENT_READ, key.data)
            for bell in (self._root, self._scheduler):
                bell.ring([], time.monotonic())

    def close(self) -> None:
        self._closing = True
        os.write(self._wake_w, b".")
        self._thread.join()
        self._root.close()
        self._scheduler.close()
        self._selector.close()
        os.close(self._wake_r)
        os.close(self._wake_w)
