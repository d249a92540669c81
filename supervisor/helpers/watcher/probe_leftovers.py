"""What commands leave behind: found, and killed.

This process is their subreaper (prctl(2)): what loses its parent becomes a child of it. Such an orphan belongs to a
command that still runs when it is in that one's session or group, or carries its mark; all others are to go.
"""

import contextlib
import os
import signal
from collections.abc import Collection, Mapping

from supervisor.host.process_environ import Environments
from supervisor.host.procfs import Process, children, family, look, send

MARK = "RINGWARD_PROBE"
_PATIENCE_S = 0.01
"""How long one that cannot be looked at holds up all attempts, once."""
_PASSES = 20
"""Sweeps of one call; what forks faster than that is met again at the next one."""


class Strays:
    """The processes of attempts that are over."""

    def __init__(self) -> None:
        self._environments = Environments(_PATIENCE_S)

    def end(self, over: Collection[int], running: Mapping[int, str]) -> bool:
        """Kill all there are until a pass finds no new one; returns whether some may be left.

        Args:
            over: Ids of the main processes of attempts that are over, and not reaped.
            running: Ids and marks of those that go on.
        """
        seen: set[tuple[int, int]] = set()
        for _ in range(_PASSES):
            roots, unknown = self._orphans(over, running)
            members = family([*over, *roots])
            new = [one for one in members.values() if (one.pid, one.start) not in seen]
            if not new:
                return bool(members) or unknown
            for process in new:
                seen.add((process.pid, process.start))
                send(process, signal.SIGKILL)
        return True

    def _orphans(self, over: Collection[int], running: Mapping[int, str]) -> tuple[list[int], bool]:
        """Ids of those that belong to nothing that runs, and whether there are some that cannot be told."""
        found, unknown = [], False
        for pid in children(os.getpid()):
            if pid in over or pid in running:
                continue
            with contextlib.suppress(ChildProcessError):  # ECHILD: it went between the two
                if os.waitpid(pid, os.WNOHANG)[0]:
                    continue
            process = look(pid)
            if process is None:
                continue
            belongs = self._belongs(process, running)
            unknown = unknown or belongs is None
            if belongs is False:
                found.append(pid)
        return found, unknown

    def _belongs(self, process: Process, running: Mapping[int, str]) -> bool | None:
        if process.session in running or process.group in running:
            return True
        variables = self._environments.read(process.pid, process.start)
        return None if variables is None else variables.get(MARK) in running.values()
