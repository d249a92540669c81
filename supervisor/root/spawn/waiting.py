"""Starts that wait until there are enough descriptors for them."""

import time
from collections.abc import Callable, Iterator

from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Spawn

_LOOK_S = 0.25


class Waiting:
    """In their order; belongs to the control thread.

    Args:
        log: the daemon's.
        begin: starts one; False when that is not possible yet.
    """

    def __init__(self, log: Log, begin: Callable[[Spawn], bool]) -> None:
        self._log = log
        self._begin = begin
        self._spawns: dict[str, Spawn] = {}
        self.due_s: float | None = None
        """When :meth:`tend` is to be called (monotonic seconds)."""

    def __bool__(self) -> bool:
        return bool(self._spawns)

    def __iter__(self) -> Iterator[str]:
        """Their run ids."""
        return iter(self._spawns)

    def __contains__(self, run: str) -> bool:
        return run in self._spawns

    def start(self, spawn: Spawn) -> None:
        """Start it now or, behind those that wait, later."""
        if not self._spawns and self._begin(spawn):
            return
        self._spawns[spawn.run] = spawn
        if self.due_s is None:
            self._log.warning("too few descriptors are left: what starts waits until there are more")
            self.due_s = time.monotonic() + _LOOK_S

    def drop(self, run: str) -> bool:
        """Forget one; False: it does not wait."""
        return self._spawns.pop(run, None) is not None

    def clear(self) -> None:
        """Forget all."""
        self._spawns.clear()

    def tend(self, now_s: float) -> None:
        """Start those for which there are descriptors, when it is time to look (monotonic seconds)."""
        if self.due_s is None or now_s < self.due_s:
            return
        for spawn in list(self._spawns.values()):
            if not self._begin(spawn):
                self.due_s = now_s + _LOOK_S
                return
            del self._spawns[spawn.run]
        self.due_s = None
        self._log.info("there are enough descriptors again")
