"""Damage in the database that the scheduler, an API worker or the janitor meets while the daemon runs.

All of the database is read then, in a thread, and so is its copy. Everything goes on meanwhile, but the root keeps the
ends of runs, stored or not. When there is damage and the copy is well, this scheduler ends. The next one starts again
from the copy (:mod:`.mending`) and hears from the root what runs and what has ended. Without such a copy what runs goes
on, and what cannot be stored is tried again.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from store.errors import Damaged, Lost, StoreError
from store.recovery.copies import check, check_copy, suspect
from supervisor.ipc.log_line import Log, stamp
from supervisor.ipc.messages import Boot
from supervisor.scheduler.control.control_socket import Operation, Reply, done
from supervisor.scheduler.loop.long_reads import LongReads
from supervisor.scheduler.loop.loop import Loop

_AGAIN_S = 60.0
"""Between two times at which all is read, at least: it takes long."""
_NO_COPY = (
    "what runs goes on, what cannot be stored does not start; "
    "restore a backup, or begin a new history with: ringward recover --new-history"
)


@dataclass(frozen=True)
class _Found:
    """What reading all of the database has shown."""

    damage: str | None
    """What is wrong; None: nothing."""
    copied_at_ms: int | None = None
    """When the copy was made; None: there is none that is well."""


class DamageMonitor:
    """Hears of damage, and decides.

    Args:
        doubt: called with whether it is doubtful that what is stored will be kept.
        told: called with what is wrong when it cannot be repaired.
        leave: called when the next scheduler is to start again from the copy.
    """

    def __init__(
        self,
        loop: Loop,
        boot: Boot,
        reading: LongReads,
        log: Log,
        doubt: Callable[[bool], None],
        told: Callable[[str], None],
        leave: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._boot = boot
        self._reading = reading
        self._log = log
        self._doubt = doubt
        self._told = told
        self._leave = leave
        self._looking = False
        self._not_before_s = 0.0
        self.on_lost: Callable[[StoreError, str], None] = lambda _error, _remedy: None
        """Called with damage that cannot be repaired, and what a person can do."""
        self.there = False
        """There is damage, and no way to repair it."""

    def operations(self) -> dict[str, Operation]:
        """For API workers."""
        return {"database_damaged": self._reported}

    def met(self, error: Damaged) -> None:
        """Something could not be stored, or not be read."""
        self._look(str(error))

    def _reported(self, arguments: dict[str, Any], reply: Reply) -> None:
        """A worker could not read something; whether it is right is found out."""
        reply(done())
        self._look(str(arguments["why"]))

    def suspected(self) -> None:
        """The janitor could not copy it."""
        self._look("it cannot be copied")

    def _look(self, why: str) -> None:
        if self._boot.database_url is not None or self._looking or self._loop.now_s() < self._not_before_s:
            return
        self._looking = True
        self._doubt(True)
        self._log.error(f"reading all of the database, in which there is damage: {why}")
        path = self._boot.database
        self._reading.call(lambda: _look(path), self._found)

    def _found(self, found: _Found | BaseException) -> None:
        self._looking = False
        self._not_before_s = self._loop.now_s() + _AGAIN_S
        if not isinstance(found, BaseException) and found.copied_at_ms is not None:
            copied_at = stamp(found.copied_at_ms)
            self._log.error(f"the database is damaged; another scheduler starts again from its copy of {copied_at}")
            self._leave()
            return
        self._doubt(False)
        if isinstance(found, BaseException):
            self._log.error(f"the database cannot be read: {found}")
            return
        self.there = found.damage is not None
        if found.damage is None:
            self._log.info("all of the database was read: there is no damage")
        else:
            self._log.error(f"the database is damaged, and there is no copy of it: {_NO_COPY}: {found.damage}")
            self._told(found.damage)
            self.on_lost(Lost(f"({found.damage})"), _NO_COPY)


def _look(path: str) -> _Found:
    with contextlib.suppress(OSError):  # then the next start finds it where it begins to read, or we do
        suspect(path)
    try:
        check(path)
    except Damaged as err:
        try:
            return _Found(str(err), check_copy(path))
        except StoreError:
            return _Found(str(err))
    return _Found(None)
