"""Reactions of a scheduler to damage found in the database."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from store.database import open_writer
from store.errors import DatabaseDamaged
from store.recovery.copies import copy_path, is_suspect, make_copy
from supervisor.ipc.log_line import Log
from supervisor.scheduler.database.damage import DamageMonitor
from supervisor.scheduler.loop.long_reads import LongReads
from supervisor.scheduler.loop.loop import Loop
from tests.root.loop.test_shortage import BOOT
from tests.scheduler.control.operations import operations_of
from tests.support.waiting import until


@dataclass
class Bench:
    """A damage monitor with a database and a record of its decisions."""

    path: str
    loop: Loop = field(default_factory=Loop)
    reported: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        open_writer(self.path).close()
        settings = replace(BOOT, data_dir=os.path.dirname(self.path))
        reading = LongReads(self.loop, self.path, lambda _damage: None)
        self.damage = DamageMonitor(self.loop, settings, reading, Log("test"), self)

    def database_doubted(self, doubted: bool) -> None:
        self.reported.append(doubted)

    def database_lost(self, damage: str, _remedy: str) -> None:
        self.reported.append(damage)

    def leave(self) -> None:
        self.reported.append("leave")

    def after(self, count: int) -> list[Any]:
        """Wait for this many decisions and return them."""

        def reported() -> bool:
            self.loop.round(0)
            return len(self.reported) >= count

        until(reported, "a decision")
        return self.reported


@pytest.fixture
def harness(tmp_path: Path) -> Bench:
    return Bench(str(tmp_path / "ringward.db"))


def spoil(path: str) -> None:
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))


def stored(harness: Bench) -> None:
    """Let the store thread find the damage."""
    harness.damage.on_error(DatabaseDamaged())


def reported(harness: Bench) -> None:
    """Let an API worker report the damage."""
    answers: list[dict[str, Any]] = []
    operations_of(harness.damage)["database_damaged"]({"why": "x"}, answers.append)
    assert answers[0]["ok"]


@pytest.mark.parametrize("met", [stored, reported, lambda harness: harness.damage.suspected()])
def test_repairable_damage(harness: Bench, met: Callable[[Bench], None]) -> None:
    """Whichever process finds damage, the scheduler exits after a full check.

    The root keeps ends of runs until then.
    """
    make_copy(harness.path)
    spoil(harness.path)
    met(harness)
    met(harness)
    assert harness.after(2) == [True, "leave"]
    assert is_suspect(harness.path)
    assert not harness.damage.there


@pytest.mark.parametrize("copy", ["none", "damaged"])
def test_unrepairable_damage(harness: Bench, copy: str) -> None:
    """The scheduler reports damage without a usable copy once, keeps running, and does not repeat the full check."""
    if copy == "damaged":
        make_copy(harness.path)
        spoil(copy_path(harness.path))
    spoil(harness.path)
    stored(harness)
    first, second, output = harness.after(3)
    assert (first, second, "damaged" in output) == (True, False, True)
    assert harness.damage.there
    stored(harness)
    assert len(harness.reported) == 3


def test_suspicion_without_damage_is_dropped(harness: Bench) -> None:
    """If the full check finds no damage, the scheduler continues and clears the suspicion."""
    make_copy(harness.path)
    reported(harness)
    assert harness.after(2) == [True, False]
    assert not is_suspect(harness.path)
