"""The scheduler's end of the watcher process: started with the first order, started again when it dies.

What is ordered is remembered here, so another watcher begins with all of it.
"""

from collections.abc import Callable
from typing import Any

from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Boot
from supervisor.ipc.probe_request import Order
from supervisor.scheduler.loop.helper_process import Partner
from supervisor.scheduler.loop.loop import Loop

OnWord = Callable[[dict[str, Any]], None]


class Watching:
    """Orders and the words that come of them."""

    def __init__(self, loop: Loop, boot: Boot, log: Log) -> None:
        self._boot = boot
        self._orders: dict[str, tuple[Order, OnWord]] = {}
        self._watcher = Partner(
            loop,
            log,
            "watcher",
            "supervisor.watcher",
            begun=self._begun,
            heard=self._heard,
            wanted=lambda: bool(self._orders),
        )

    def order(self, order: Order, on_word: OnWord) -> None:
        """Have something watched; `on_word` gets what the watcher says about it."""
        self._orders[order.key] = order, on_word
        if self._watcher.running:
            self._watcher.tell({"op": "watch", "order": order.to_dict()})
        else:
            self._watcher.need()

    def forget(self, key: str) -> None:
        """Watch it no more."""
        if self._orders.pop(key, None) is not None:
            self._watcher.tell({"op": "forget", "key": key})

    def _begun(self) -> None:
        self._watcher.tell({"op": "hello", "bell": self._boot.root_bell, "token": self._boot.token})
        for order, _on_word in self._orders.values():
            self._watcher.tell({"op": "watch", "order": order.to_dict()})

    def _heard(self, word: dict[str, Any]) -> None:
        known = self._orders.get(word["key"])
        if known is None:  # it was forgotten meanwhile
            return
        order, on_word = known
        if word["op"] in ("failed", "matched", "clean", "answered") or (word["op"] == "passed" and not order.times):
            del self._orders[order.key]
        on_word(word)

    def close(self) -> None:
        """Hang up: it ends what it does, and itself."""
        self._watcher.close()
