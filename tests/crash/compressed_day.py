"""A day of schedules in seconds: a real daemon, whose scheduler has a simulated clock and is killed.

Each run notes its instant. At the end, the rows and the notes are compared with a walk over every minute of that day:
every instant is present, as a run or as a row with the reason why it did not run, and none ran twice.
"""

import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import psutil

from store.database import open_reader
from supervisor.ipc.log_line import stamp
from tests.crash import simulated_clock
from tests.crash.harness import soak_parser
from tests.schedule.oracle import Oracle, expression
from tests.support.daemon import PYTHON, Daemon
from tests.support.manager import service_manager
from tests.support.waiting import until

HOUR_MS = 3_600_000
DAYS = {"forward": "2026-03-28T20:00Z", "back": "2026-10-24T20:00Z"}
"""Starts of days on which the clocks of both zones change, at 01:00 UTC."""
ZONES = ("Europe/Prague", "Europe/Lisbon")
ALL_RUN = "catch_up = 1000\ncatch_up_window = '7d'"
STATES = {15: "dst_skipped", 30: "missed", 35: "queue_full", 40: "skipped"}
EVERY_MS = 17 * 60_000
JITTER_MS = 20 * 60_000


class SimulatedClockDaemon(Daemon):
    """A daemon that runs under simulated_clock.py instead of Python."""

    def __init__(self, directory: Path, start_ms: int) -> None:
        super().__init__(directory)
        clock = directory / "clock"
        self.clock = simulated_clock.make(str(clock), start_ms)
        self._python = directory / "python"
        self._python.write_text(f'#!/bin/sh\nexec "{PYTHON}" -I "{simulated_clock.__file__}" "{clock}" "$@"\n')
        self._python.chmod(0o700)

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "CLOCK_PYTHON": str(self._python)}

    def command(self) -> list[str]:
        code = f"import sys; sys.executable = {str(self._python)!r}; from supervisor.cli.entry import main; main()"
        return [str(PYTHON), "-I", "-c", code]


class Plan(NamedTuple):
    """A cron task, and its expected instants."""

    cron: str
    zone: str
    gap: str = "run"
    overlap: str = "first"
    keys: str = ALL_RUN
    complete: bool = True
    """Whether each instant has its own row, because the task catches up with all."""


def plans(choose: random.Random) -> dict[str, Plan]:
    prague, lisbon = ZONES
    all_plans = {
        "nightly": Plan("30 2 * * *", prague),
        "nightly-skips": Plan("30 2 * * *", prague, gap="skip", overlap="second"),
        "nightly-both": Plan("30 1 * * *", lisbon, overlap="both"),
        "lisbon": Plan("*/20 1-3 * * *", lisbon),
        "often": Plan(
            "*/10 * * * *", prague, keys=f"{ALL_RUN}\nmax_concurrent = 4\ncoalesce = false\nqueue_max = 1000"
        ),
        "hourly": Plan("0 * * * *", lisbon, keys="", complete=False),
        "not-late": Plan("*/15 * * * *", prague, keys="catch_up = 0", complete=False),
        "jitter": Plan("*/30 * * * *", prague, keys=f"{ALL_RUN}\njitter = '20m'"),
        "skips": Plan("*/15 * * * *", lisbon, keys=f"{ALL_RUN}\non_overlap = 'skip'"),
        "full": Plan("*/20 * * * *", prague, keys=f"{ALL_RUN}\ncoalesce = false\nqueue_max = 1"),
    }
    for number, zone in enumerate(ZONES):
        gap, overlap = choose.choice(("run", "skip")), choose.choice(("first", "second", "both"))
        all_plans[f"some-{number}"] = Plan(expression(choose), zone, gap, overlap)
    return all_plans


class Day:
    """One day, started by :meth:`play`."""

    def __init__(self, directory: Path, which: str, seed: int) -> None:
        self._choose = random.Random(seed)
        self._start_ms = int(datetime.fromisoformat(DAYS[which]).timestamp()) * 1000
        self._end_ms = self._start_ms + 26 * HOUR_MS
        self.daemon = SimulatedClockDaemon(directory, self._start_ms)
        self._notes = directory / "notes"
        self._notes.mkdir()
        self._plans = plans(self._choose)
        tasks = [
            f"[tasks.{name}]\n{self._note(name)}\ncron = '{plan.cron}'\ntimezone = '{plan.zone}'\n"
            f"dst_gap = '{plan.gap}'\ndst_overlap = '{plan.overlap}'\n{plan.keys}\n"
            for name, plan in self._plans.items()
        ]
        tasks.append(f"[tasks.interval]\n{self._note('interval')}\nevery = '17m'\n{ALL_RUN}\n")
        self.daemon.write(
            "[defaults]\nkeep_runs = 1000000\nkeep_refused = 1000000\nkeep_for = '3650d'\n" + "".join(tasks)
        )
        self.kills = 0
        self.reasons: Counter[str] = Counter()

    def _note(self, name: str) -> str:
        return f"run = 'echo $RINGWARD_SCHEDULED_AT >> {self._notes}/{name}'"

    def play(self, kills: int, steps: int = 0) -> list[str]:
        """Play the whole day with this many kills and clock steps; return all errors."""
        self._steps = steps
        daemon = self.daemon
        daemon.start()
        self._database = open_reader(str(daemon.data / "ringward.db"), limit_s=None)
        try:
            return self._played(kills)
        finally:
            self._database.close()

    def _played(self, kills: int) -> list[str]:
        daemon, choose = self.daemon, self._choose
        until(lambda: len(self._marks()) == len(self._plans) + 1, "all schedules to be stored")
        deaths, settings = (
            sorted(choose.randrange(self._start_ms, self._end_ms) for _ in range(number))
            for number in (kills, self._steps)
        )
        while daemon.clock.now_ms < self._end_ms:
            step_ms = choose.choice((20_000, 60_000, 400_000, 1_200_000))
            now_ms = min(daemon.clock.now_ms + step_ms, self._end_ms)
            daemon.clock.pass_to(now_ms)
            while settings and settings[0] <= now_ms:
                settings.pop(0)
                now_ms = min(now_ms + choose.choice((-5_000_000, -90_000, 90_000, 5_000_000)), self._end_ms)
                daemon.clock.set_to(now_ms)
            if choose.random() < 0.3:
                until(lambda now_ms=now_ms: self._all_ahead(now_ms), f"all schedules to come to {stamp(now_ms)}")  # type: ignore[misc]
            while deaths and deaths[0] <= now_ms:
                deaths.pop(0)
                self._kill()
        for late_ms in (0, JITTER_MS, 2 * JITTER_MS):  # the last runs may wait for their jitter, and then catch up
            daemon.clock.pass_to(self._end_ms + late_ms)
            self._settle(self._end_ms + late_ms)
        self._kill()  # earlier output does not appear again
        until(daemon.ready, "the daemon to be ready")
        self._settle(self._end_ms)
        return self._differences()

    def _kill(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            self.daemon.helper("ringward scheduler").kill()
            self.kills += 1

    def _settle(self, now_ms: int) -> None:
        until(lambda: self._all_ahead(now_ms), f"all schedules to come to {stamp(now_ms)}", 60)
        active = "SELECT count(*) FROM runs WHERE state >= 100"
        until(lambda: self._rows(active) == [(0,)], "all runs to end", 60)

    def _rows(self, sql: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in self._database.rows(sql)]

    def _marks(self) -> list[tuple[object, ...]]:
        return self._rows("SELECT name FROM tasks WHERE last_instant IS NOT NULL")

    def _all_ahead(self, now_ms: int) -> bool:
        """Return whether the next start of every task is still ahead."""
        sql = f"SELECT count(*) FROM tasks WHERE next_run_at <= {now_ms}"
        return self._rows(sql) == [(0,)]

    # Expected results.

    def _differences(self) -> list[str]:
        differences: list[str] = []
        for name, plan in self._plans.items():
            oracle = Oracle(ZoneInfo(plan.zone), self._start_ms // 60_000, self._end_ms // 60_000)
            instants = oracle.walk(plan.cron, plan.gap, plan.overlap, 100_000)
            rows = self._rows_of(name)
            differences += _compared(name, plan, {instant.at: instant.runs for instant in instants}, rows)
            differences += self._notes_of(name, rows)
        rows = self._rows_of("interval")
        first = rows[0][0]
        expected = [first + number * EVERY_MS for number in range((self._end_ms - first) // EVERY_MS + 1)]
        # Intervals do not follow the wall clock; after a step their instants differ.
        if self._steps:
            return differences + self._notes_of("interval", rows)
        if [at for at, _, _ in rows] != expected or first - self._start_ms > EVERY_MS:
            differences.append(f"interval: {rows}")
        return differences + self._notes_of("interval", rows)

    def _rows_of(self, name: str) -> list[tuple[int, str, int]]:
        """Return the instant, outcome and number of missed times of each row of a task."""
        sql = (
            "SELECT scheduled_at, state, missed_count FROM runs"
            f" WHERE task_name = '{name}' AND scheduled_at <= {self._end_ms} ORDER BY scheduled_at"
        )
        rows = [
            (int(str(at)), STATES.get(int(str(state)), "run"), int(str(count or 1)))
            for at, state, count in self._rows(sql)
        ]
        self.reasons.update(reason for _, reason, _ in rows)
        return rows

    def _notes_of(self, name: str, rows: Sequence[tuple[int, str, int]]) -> list[str]:
        """Return errors unless exactly the runs ran, each once."""
        file = self._notes / name
        lines = file.read_text().split() if file.exists() else []
        noted = Counter(at for at in lines if at <= stamp(self._end_ms))
        ran = Counter(stamp(at) for at, reason, _ in rows if reason == "run")
        same = noted == ran
        return [] if same else [f"{name}: noted and not in the rows {noted - ran}, in the rows only {ran - noted}"]


def _compared(name: str, plan: Plan, due: dict[int, bool], rows: Sequence[tuple[int, str, int]]) -> list[str]:
    """Compare the rows with `due`: all instants, and whether each should run."""
    differences = []
    skipped = {at for at, runs in due.items() if not runs}
    accounted = [row for row in rows if row[1] != "dst_skipped"]
    if [at for at, reason, _ in rows if reason == "dst_skipped"] != sorted(skipped):
        differences.append(f"{name}: dst_skipped differ: {rows}")
    expected = sorted(due.keys() - skipped)
    there = [at for at, _, _ in accounted]
    if plan.complete and (there != expected or any(reason == "missed" for _, reason, _ in accounted)):
        differences.append(
            f"{name}: lost {sorted(set(expected) - set(there))}, too many {sorted(set(there) - set(expected))}"
        )
    if len(set(there)) != len(there) or not set(there) <= set(expected):
        differences.append(f"{name}: an instant twice, or a run at a time that is no instant")
    if sum(count for _, _, count in accounted) != len(expected):
        differences.append(
            f"{name}: {len(expected)} instants, accounted for are {sum(count for _, _, count in accounted)}"
        )
    return differences


def main() -> int:
    """``python -m tests.crash.compressed_day SECONDS [SEED] [--descriptor-store]``: play days for this long."""
    options = soak_parser(__doc__).parse_args()
    end_s = time.monotonic() + options.seconds
    seed = options.seed
    with service_manager(descriptor_store=options.descriptor_store):
        while time.monotonic() < end_s:
            for which in DAYS:
                with tempfile.TemporaryDirectory() as name:
                    day = Day(Path(name), which, seed)
                    try:
                        wrong = day.play(kills=60, steps=seed % 2 * 20)
                    finally:
                        day.daemon.clean()
                print(f"clocks go {which}, seed {seed}: {day.kills} kills, {dict(day.reasons)}", flush=True)
                if wrong:
                    print("\n".join(wrong))
                    return 1
            seed += 1
    print("no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
