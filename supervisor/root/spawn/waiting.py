"""Starts that wait until there are descriptors, processes and memory for them."""

import time
from collections.abc import Callable, Iterator

from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Frame, Spawn

_LOOK_S = (0.25, 5.0)
"""Between two attempts: the first time, and at most."""
_TELL_S = 60.0
"""After so long people are told."""


class WaitingStarts:
    """Holds them in their order. Belongs to the control thread.

    Args:
        log: the daemon's.
        begin: starts one, or hands it back to :meth:`put_back`.
        send: takes a frame to the scheduler.
    """

    def __init__(self, log: Log, begin: Callable[[Spawn], None], send: Callable[[Frame], None]) -> None:
        self._log = log
        self._begin = begin
        self._send = send
        self._spawns: dict[str, Spawn] = {}
        self._why = ""
        self._explained: dict[str, str] = {}
        """What the scheduler has heard of each."""
        self._look_s = _LOOK_S[0]
        self._look_at_s: float | None = None
        """Monotonic time of the next attempt; None: nothing waits."""
        self._tell_at_s: float | None = None
        self._told = False

    def __bool__(self) -> bool:
        return bool(self._spawns)

    def __iter__(self) -> Iterator[str]:
        """Their run ids."""
        return iter(self._spawns)

    def __contains__(self, run: str) -> bool:
        return run in self._spawns

    @property
    def due_s(self) -> float | None:
        """When :meth:`tend` is to be called (monotonic seconds)."""
        return min((at for at in (self._look_at_s, self._tell_at_s) if at is not None), default=None)

    def start(self, spawn: Spawn) -> None:
        """Start it now or, behind those that wait, later."""
        if self._spawns:
            self._spawns[spawn.run] = spawn
            self._explain(spawn.run)
        else:
            self._begin(spawn)

    def put_back(self, spawn: Spawn, why: str) -> None:
        """Let one wait before all others, since it could not be started."""
        if why != self._why:
            self._log.warning(f"{why}: what starts waits until there are more")
        self._why = why
        self._spawns = {spawn.run: spawn, **self._spawns}
        self._explain(spawn.run)
        now_s = time.monotonic()
        if self._look_at_s is None:
            self._look_at_s = now_s + self._look_s
        if self._tell_at_s is None and not self._told:
            self._tell_at_s = now_s + _TELL_S

    def _explain(self, run: str) -> None:
        if self._explained.get(run) != self._why:
            self._explained[run] = self._why
            self._send({"op": "waiting", "run": run, "why": self._why})

    def drop(self, run: str) -> bool:
        """Forget one; False: it does not wait."""
        self._explained.pop(run, None)
        return self._spawns.pop(run, None) is not None

    def clear(self) -> None:
        """Forget all, and what was said: the next scheduler orders them again."""
        self._spawns.clear()
        self._explained.clear()
        self._tell_at_s, self._told = None, False

    def hurry(self) -> None:
        """Try again at once, and often for a while: something has ended."""
        if self._look_at_s is not None:
            self._look_s = _LOOK_S[0]
            self._look_at_s = time.monotonic()

    def tend(self, now_s: float) -> None:
        """Start those that can be started, and tell of a shortage that lasts (monotonic seconds)."""
        if self._look_at_s is not None and now_s >= self._look_at_s:
            self._try_again(now_s)
        if self._tell_at_s is not None and now_s >= self._tell_at_s:
            self._tell_at_s, self._told = None, True
            self._send({"op": "starts", "waiting": len(self._spawns), "why": self._why})

    def _try_again(self, now_s: float) -> None:
        while self._spawns:
            spawn = self._spawns.pop(next(iter(self._spawns)))
            self._begin(spawn)
            if spawn.run in self._spawns:
                self._look_s = min(2 * self._look_s, _LOOK_S[1])
                self._look_at_s = now_s + self._look_s
                return
            self._explained.pop(spawn.run, None)
            self._look_s = _LOOK_S[0]
        self._look_at_s = self._tell_at_s = None
        self._why = ""
        self._log.info("nothing that starts waits any more")
        if self._told:
            self._told = False
            self._send({"op": "starts", "waiting": 0, "why": None})
