"""The scheduler's end of the watcher process: started with the first order, started again when it dies.

What is ordered is remembered here, so another watcher begins with all of it.
"""

import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from supervisor.logline import Log
from supervisor.messages import Boot, Decoder, Frame, ProtocolError, encode
from supervisor.scheduler.loop import Loop
from supervisor.watcher.order import Order

_READ_BYTES = 65536
_DELAYS_MS = (0, 100, 500, 1000, 5000)
_HEALTHY_S = 10.0

OnWord = Callable[[dict[str, Any]], None]


class Watching:
    """Orders and the words that come of them."""

    def __init__(self, loop: Loop, boot: Boot, log: Log) -> None:
        self._loop = loop
        self._boot = boot
        self._log = log
        self._orders: dict[str, tuple[Order, OnWord]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._sock: socket.socket | None = None
        self._decoder = Decoder()
        self._unsent = bytearray()
        self._waiting = False
        """Until a watcher is started again."""
        self._failures = 0
        self._started_s = 0.0

    def order(self, order: Order, on_word: OnWord) -> None:
        """Have something watched; `on_word` gets what the watcher says about it (:mod:`supervisor.watcher.order`)."""
        self._orders[order.key] = order, on_word
        if self._process is not None:
            self._send({"op": "watch", "order": order.to_dict()})
        elif not self._waiting:
            self._start()

    def forget(self, key: str) -> None:
        """Watch it no more."""
        if self._orders.pop(key, None) is not None:
            self._send({"op": "forget", "key": key})

    def _start(self) -> None:
        self._waiting = False
        if not self._orders:
            return
        ours, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, "-I", "-m", "supervisor.watcher", "--fd", str(theirs.fileno())]
            try:
                process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
                )
            except OSError as err:  # EMFILE, EAGAIN, ENOMEM
                ours.close()
                self._log.warning(f"the watcher cannot be started: {err.strerror}")
                self._again()
                return
        ours.setblocking(False)
        self._process, self._sock = process, ours
        self._pidfd = os.pidfd_open(process.pid)
        self._started_s = self._loop.now_s()
        self._decoder, self._unsent = Decoder(), bytearray()
        self._loop.watch(self._pidfd, lambda _mask: self._ended(process))
        self._loop.watch(ours.fileno(), self._ready)
        self._send({"op": "hello", "bell": self._boot.root_bell, "token": self._boot.token})
        for order, _on_word in self._orders.values():
            self._send({"op": "watch", "order": order.to_dict()})

    def _again(self) -> None:
        if self._loop.now_s() - self._started_s >= _HEALTHY_S:
            self._failures = 0
        delay = _DELAYS_MS[min(self._failures, len(_DELAYS_MS) - 1)]
        self._failures += 1
        self._waiting = True
        self._loop.after(delay, self._start)

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        self._loop.unwatch(self._pidfd)
        os.close(self._pidfd)
        if self._sock is not None:
            self._read(self._sock)
        self._hang_up()
        status = process.wait()
        self._process = None
        self._log.warning(f"the watcher ended with status {status}")
        self._again()

    def _hang_up(self) -> None:
        if self._sock is not None:
            self._loop.unwatch(self._sock.fileno())
            self._sock.close()
            self._sock = None

    def _send(self, frame: Frame) -> None:
        if self._sock is not None:
            self._unsent += encode(frame)
            self._flush(self._sock)

    def _flush(self, sock: socket.socket) -> None:
        if self._unsent:
            with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):  # it is busy, or its pidfd tells
                del self._unsent[: sock.send(self._unsent)]
        self._loop.change(sock.fileno(), select.EPOLLIN | (select.EPOLLOUT if self._unsent else 0))

    def _ready(self, mask: int) -> None:
        if self._sock is not None and mask & select.EPOLLOUT:
            self._flush(self._sock)
        if self._sock is not None and mask & (select.EPOLLIN | select.EPOLLHUP) and not self._read(self._sock):
            self._hang_up()
            if self._process is not None:
                self._process.kill()

    def _read(self, sock: socket.socket) -> bool:
        """Take what came; False at its end."""
        try:
            data = sock.recv(_READ_BYTES)
            for word in self._decoder.feed(data):
                self._heard(word)
        except BlockingIOError:
            return True
        except (ConnectionResetError, ProtocolError):
            return False
        return bool(data)

    def _heard(self, word: dict[str, Any]) -> None:
        known = self._orders.get(word["key"])
        if known is None:  # it was forgotten meanwhile
            return
        order, on_word = known
        if word["op"] in ("failed", "matched", "clean") or (word["op"] == "passed" and not order.times):
            del self._orders[order.key]
        on_word(word)

    def close(self) -> None:
        """Hang up: it ends what it does, and itself."""
        self._hang_up()
