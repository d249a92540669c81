"""A bench with schedules, on a clock that the test moves."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from store.tasks import get_task, upsert_task
from supervisor.config.load import load
from supervisor.config.public_definition import definition_text
from supervisor.ipc.log_line import Log
from supervisor.scheduler.runs.scheduled_starts import InstantListener, ScheduledStarts
from tests.scheduler.bench import Bench
from tests.scheduler.fake_clock import FakeClock

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


START = ms("2026-06-01T00:00:30Z")


class Lines(Log):
    """Keeps the lines of the daemon's log."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.texts: list[str] = []

    def emit(self, line: bytes) -> None:
        self.texts.append(line.decode())


class Schedules(Bench):
    """A bench with schedules that fire at times chosen by the test."""

    def __init__(self, directory: Path, text: str) -> None:
        self.clock = FakeClock(START)
        super().__init__(directory, text, self.clock)
        self.log = self.lines = Lines("test")
        self.begin()

    def begin(self, *, first: bool = True) -> None:
        """Start a scheduler with the stored state."""
        self.take_up(first=first)
        for unit in self.units.values():
            upsert_task(self.store.database, unit.name, unit.definition.kind, definition_text(unit.definition))
        self.scheduled_starts = ScheduledStarts(self.core, self.engine, self.windows, self.make_listener())
        self.recall_pauses()
        self.scheduled_starts.start(self.units.values())
        self.store.work_all()

    def make_listener(self) -> InstantListener:
        """Return what follows the instants."""
        return InstantListener()

    def recall_pauses(self) -> None:
        """Take over stored pauses before the schedules start."""

    def clock_stepped(self, by_ms: int) -> None:
        self.scheduled_starts.clock_stepped(self.units.values(), by_ms)

    def dies(self, *, first: bool = False) -> None:
        """Drop unstored changes and start the next scheduler or daemon."""
        self.store.jobs.clear()
        self.begin(first=first)

    def rewrite(self, text: str) -> None:
        Path(self.settings.config_path).write_text(text)
        self.config = load(self.settings.config_path)

    def look(self) -> None:
        """Run one round of the loop, which fires due schedules."""
        self.loop.round(0)
        self.store.work_all()

    def until(self, wall: int) -> None:
        """Let time pass while the host is awake, with a round of the loop at each instant."""
        while (next_s := self.loop._wall.next_s()) is not None and round(next_s * 1000) <= wall:
            self.clock.advance_ms(max(0, round(next_s * 1000) - self.clock.wall))
            self.look()
        self.clock.advance_ms(wall - self.clock.wall)
        self.look()

    def rows(self, name: str = "t") -> list[tuple[str, int, int | None]]:
        """Return state or end reason, instant and count of missed ones, ordered by instant."""
        rows = self.store.database.rows(
            "SELECT state, scheduled_at, missed_count FROM runs WHERE task_name = ? ORDER BY scheduled_at", [name]
        )
        names = {15: "dst_skipped", 30: "missed", 35: "queue_full", 40: "skipped"}
        return [(names.get(state, "run"), at, count) for state, at, count in rows]

    def ran(self, name: str = "t") -> list[int]:
        return [at for reason, at, _ in self.rows(name) if reason == "run"]


Make = Callable[[str], Schedules]
"""Makes a bench from the keys of a task."""


def task(keys: str) -> str:
    many = "" if "max_concurrent" in keys else "max_concurrent = 10000\n"
    return f'[tasks.t]\nrun = "true"\n{many}{keys}\n'


def next_run(schedules: Schedules) -> int | None:
    row = get_task(schedules.store.database, "t")
    assert row is not None
    return row.next_run_at
