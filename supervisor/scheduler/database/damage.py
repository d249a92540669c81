"""Damage in the database that the scheduler, an API worker or the janitor finds while the daemon runs.

A thread then reads the whole database and its copy. Meanwhile work continues, but the root keeps the ends of all runs.

If the database is damaged and the copy is intact, the scheduler exits. The next one starts from the copy
(:mod:`.opening`), and the root reports active and ended runs to it. Without an intact copy, active runs continue, and
changes are retried.
"""

import contextlib
from typing import Protocol

from msgspec import Struct

from store.errors import DatabaseDamaged, StoreError
from store.recovery.copies import check, check_copy, suspect
from supervisor.ipc.log_line import Log, stamp
from supervisor.ipc.messages import DaemonSettings
from supervisor.scheduler.control.control_socket import Answer, Arguments, RequestEntry, done, operation
from supervisor.scheduler.loop.long_reads import LongReads
from supervisor.scheduler.loop.loop import Loop

_AGAIN_S = 60.0
"""Minimum time between two checks of the whole database, which are slow."""
_NO_COPY = (
    "active runs continue, and no new run starts; "
    "restore a backup, or begin a new history with: ringward recover --new-history"
)


class _CheckResult(Struct, frozen=True):
    """Result of a check of the whole database."""

    damage: str | None
    """Description of the damage; None if there is none."""
    copied_at_ms: int | None = None
    """Time of the copy in ms since the epoch; None if there is no intact copy."""


class _DamageArguments(Arguments):
    why: str


class DamageListener(Protocol):
    """Acts on damage in the database."""

    def database_doubted(self, doubted: bool) -> None:
        """Note that stored data may turn out to be lost (`doubted`), or no longer."""

    def database_lost(self, damage: str, remedy: str) -> None:
        """Report damage that only a user can repair, with the remedy."""

    def leave(self) -> None:
        """Exit, so that the next scheduler starts from the copy."""


class DamageMonitor:
    """Checks the database after a report of damage, and decides how to continue."""

    def __init__(
        self, loop: Loop, settings: DaemonSettings, reading: LongReads, log: Log, listener: DamageListener
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._reading = reading
        self._log = log
        self._listener = listener
        self._looking = False
        self._not_before_s = 0.0
        self.there = False
        """Whether the database is damaged and has no intact copy."""

    def on_error(self, error: DatabaseDamaged) -> None:
        """Check the database after a read or write of the scheduler found damage."""
        self._check(str(error))

    @operation(_DamageArguments)
    def database_damaged(self, request: _DamageArguments, _entry: RequestEntry) -> Answer:
        """Check the database after a read of an API worker found damage."""
        self._check(request.why)
        return done()

    def suspected(self) -> None:
        """Check the database after the janitor failed to copy it."""
        self._check("the janitor cannot copy it")

    def _check(self, reason: str) -> None:
        if self._settings.database_url is not None or self._looking or self._loop.now_s() < self._not_before_s:
            return
        self._looking = True
        self._listener.database_doubted(True)
        self._log.error(f"checking the whole database after an error: {reason}")
        path = self._settings.database
        self._reading.call(lambda: _check_database(path), self._checked)

    def _checked(self, result: _CheckResult | BaseException) -> None:
        self._looking = False
        self._not_before_s = self._loop.now_s() + _AGAIN_S
        if not isinstance(result, BaseException) and result.copied_at_ms is not None:
            copied_at = stamp(result.copied_at_ms)
            self._log.error(f"the database is damaged; the next scheduler starts from its copy of {copied_at}")
            self._listener.leave()
            return
        self._listener.database_doubted(False)
        if isinstance(result, BaseException):
            self._log.error(f"cannot read the database: {result}")
            return
        self.there = result.damage is not None
        if result.damage is None:
            self._log.info("checked the whole database: no damage")
        else:
            self._log.error(f"the database is damaged and has no intact copy: {result.damage}; {_NO_COPY}")
            self._listener.database_lost(result.damage, _NO_COPY)


def _check_database(path: str) -> _CheckResult:
    with contextlib.suppress(OSError):  # the mark is not essential: this check or the next start finds the damage
        suspect(path)
    try:
        check(path)
    except DatabaseDamaged as err:
        try:
            return _CheckResult(str(err), check_copy(path))
        except StoreError:
            return _CheckResult(str(err))
    return _CheckResult(None)
