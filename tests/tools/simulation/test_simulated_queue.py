"""The simulation matches a walk over every minute and the scheduler's own engine."""

import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from heapq import heappop, heappush
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from supervisor.config.load import load
from supervisor.config.model import Config, Task
from supervisor.schedule.admission import Capacity
from supervisor.tools.simulation.simulated_queue import DueTime, SimulatedQueue, SimulatedTask, queues
from tests.schedule.oracle import Oracle, expression
from tests.scheduler.runs.schedules import DAY, START, Schedules, task

YEAR_MS = 365 * DAY
FIRST_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1000


def loaded(directory: Path, text: str) -> Config:
    path = directory / "one.toml"
    path.write_text(text)
    path.chmod(0o600)
    return load(str(path))


def configured(directory: Path, keys: str) -> Task:
    return loaded(directory, task(keys)).tasks["t"]


def alone(definition: Task, start_ms: int, duration_ms: int = 0, mark_ms: int | None = None) -> SimulatedQueue:
    return SimulatedQueue([SimulatedTask(definition, start_ms, duration_ms, mark_ms)])


def test_year_in_time_zones(tmp_path: Path) -> None:
    """The instants of a year, and which of them run, match a walk over every minute."""
    choose = random.Random()
    for zone in ("Europe/Prague", "Australia/Lord_Howe", "America/Santiago"):
        oracle = Oracle(ZoneInfo(zone), FIRST_MS // 60_000, (FIRST_MS + YEAR_MS) // 60_000)
        for gap, overlap in (("run", "first"), ("skip", "second"), ("run", "both")):
            text = expression(choose)
            keys = f'cron = "{text}"\ntimezone = "{zone}"\ndst_gap = "{gap}"\ndst_overlap = "{overlap}"'
            play = alone(configured(tmp_path, keys), FIRST_MS + 1)
            played = [(start.at, start.outcome == "run", start.note) for start in play.until(FIRST_MS + YEAR_MS + 1)]
            expected = [node[:3] for node in oracle.walk(text, gap, overlap, 1_000_000)]
            assert played == expected, (zone, text, gap, overlap)


class _VirtualEngine(Schedules):
    """The scheduler's engine on a virtual clock, with durations of runs that the test sets."""

    def play(self, end_ms: int, durations_ms: Mapping[str, int]) -> None:
        self.starts: list[tuple[str, int]] = []
        ends: list[tuple[int, str]] = []
        while True:
            due_s = self.loop._wall.next_s()
            due_ms = end_ms if due_s is None else round(due_s * 1000)
            at = min(due_ms, ends[0][0] if ends else end_ms, end_ms)
            if at >= end_ms:
                return
            self.clock.advance_ms(at - self.clock.wall)
            while ends and ends[0][0] <= at:
                run_id = heappop(ends)[1]
                if run_id in self.engine.live:
                    self.exited(run_id, ran_ms=1)
                    self.store.work_all()
                self._take_starts(ends, at, durations_ms)
            self.look()
            self._take_starts(ends, at, durations_ms)

    def _take_starts(self, ends: list[tuple[int, str]], at: int, durations_ms: Mapping[str, int]) -> None:
        for run_id in self.root.take("stop"):
            self.exited(run_id, status=15, cause="stop")
            self.store.work_all()
        for run_id in self.root.take("spawn"):
            name = self.engine.live[run_id].unit.name
            self.started(run_id)
            self.starts.append((name, at))
            heappush(ends, (at + durations_ms[name], run_id))
        self.store.work_all()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[_VirtualEngine]:
    made = _VirtualEngine(tmp_path, task('cron = "0 0 1 1 *"'))
    yield made
    made.close()


@pytest.mark.parametrize(
    "keys",
    [
        'on_overlap = "skip"',
        'on_overlap = "queue"',
        'on_overlap = "queue"\ncoalesce = false\nqueue_max = 2',
        'on_overlap = "queue"\ncoalesce = false\nqueue_max = 1\nmax_concurrent = 2',
        'on_overlap = "terminate"',
        'on_overlap = "terminate"\nmax_concurrent = 2',
    ],
)
@pytest.mark.parametrize("minutes", [7, 25])
def test_engine_agrees(engine: _VirtualEngine, tmp_path: Path, keys: str, minutes: int) -> None:
    """The scheduler's engine runs, skips and rejects the same runs at the same instants."""
    limit = "" if "max_concurrent" in keys else "max_concurrent = 1\n"
    text = f'cron = ["*/10 * * * *", "3 */5 * * *"]\n{limit}{keys}'
    duration_ms = minutes * 60_000
    engine.rewrite(task(text))
    engine.dies(first=True)
    start_ms = engine.clock.wall
    engine.play(start_ms + DAY, {"t": duration_ms})
    play = alone(configured(tmp_path, text), start_ms + 1, duration_ms)
    shown = {"queued": "run", "terminates": "run"}
    expected = [(shown.get(start.outcome, start.outcome), start.at) for start in play.until(start_ms + DAY)]
    assert [(reason, at) for reason, at, _ in engine.rows()] == expected
    assert len(expected) > 100


def outcomes(play: SimulatedQueue, until_ms: int) -> list[str]:
    return [start.outcome for start in play.until(until_ms)]


def test_range_is_half_open(tmp_path: Path) -> None:
    """An instant at the beginning counts, and one at the end does not."""
    play = alone(configured(tmp_path, 'cron = "0 0 * * *"'), FIRST_MS)
    assert [start.at for start in play.until(FIRST_MS + DAY)] == [FIRST_MS]


def test_interval_continues(tmp_path: Path) -> None:
    """An interval counts from the last time that the daemon accounted for, before or after the beginning."""
    definition = configured(tmp_path, 'every = "45m"')
    for mark in (FIRST_MS - 50 * 60_000, FIRST_MS + 40 * 60_000):
        play = alone(definition, FIRST_MS, 0, mark)
        assert [start.at - FIRST_MS for start in play.until(FIRST_MS + 2 * 3_600_000)] == [2_400_000, 5_100_000]
    play = alone(definition, FIRST_MS)
    assert next(play.until(FIRST_MS + DAY)) == DueTime(FIRST_MS + 2_700_000, "t", FIRST_MS + 2_700_000, "run", None)


def test_waiting_runs(tmp_path: Path) -> None:
    """Waiting runs begin when a place is free, and the longest wait is known; a timeout ends longer runs."""
    simulated = SimulatedTask(
        configured(tmp_path, 'every = "10m"\nmax_concurrent = 1\ncoalesce = false'), FIRST_MS, 900_000
    )
    play = SimulatedQueue([simulated])
    assert outcomes(play, FIRST_MS + 1_900_000) == ["run", "queued", "queued"]
    play.finish(FIRST_MS + 1_900_000)
    assert [(began - FIRST_MS, end - FIRST_MS) for began, end in simulated.ran] == [
        (600_000, 1_500_000),
        (1_500_000, 2_400_000),
        (2_400_000, 3_300_000),
    ]
    assert (simulated.longest_wait_ms, simulated.waits) == (600_000, {("task", "t"): 2})
    play = alone(configured(tmp_path, 'every = "10m"\nmax_concurrent = 1\ntimeout = "9m"'), FIRST_MS, 900_000)
    assert set(outcomes(play, FIRST_MS + DAY)) == {"run"}


def random_tasks(choose: random.Random) -> str:
    """Return tasks that share two slots, with times and durations of which no two are equal."""
    limit = choose.choice(["", "[daemon]\nmax_running = 2\n"])
    texts = [f"{limit}[slots.db]\nsize = 2\n[slots.gpu]\nsize = 1\n"]
    for number, name in enumerate("abcde"):
        minutes = choose.choice([7, 10, 15, 30])
        keys = {
            "run": '"true"',
            "cron": f'"{7 * number} */{minutes} * * * *"',
            "uses": choose.choice(["[]", '["db"]', '["gpu"]', '["db", "gpu"]', "{ db = 2 }"]),
            "queue_priority": choose.randint(-20, 20),
            "max_concurrent": choose.randint(1, 2),
            "queue_max": choose.randint(1, 3),
            "coalesce": choose.choice(["true", "false"]),
            "on_overlap": choose.choice(['"queue"', '"queue"', '"skip"', '"terminate"']),
        }
        texts.append("\n".join([f"[tasks.{name}]", *(f"{key} = {value}" for key, value in keys.items()), ""]))
    return "".join(texts)


@pytest.mark.parametrize("_round", range(4))
def test_engine_agrees_on_slots(engine: _VirtualEngine, tmp_path: Path, _round: int) -> None:
    """Tasks with shared slots, max_running and priorities start, wait and are refused as in the engine."""
    choose = random.Random()
    text = random_tasks(choose)
    durations_ms = {name: choose.randint(60, 1500) * 1000 + number + 1 for number, name in enumerate("abcde")}
    engine.rewrite(text)
    engine.dies(first=True)
    start_ms = engine.clock.wall
    engine.play(start_ms + DAY, durations_ms)
    config = loaded(tmp_path, text)
    tasks = [SimulatedTask(simulated, start_ms + 1, durations_ms[name]) for name, simulated in config.tasks.items()]
    together = queues(tasks, Capacity(config.slots, config.daemon.max_running), [])
    shown = {"queued": "run", "terminates": "run"}
    all_starts = [start for queue in together for start in queue.until(start_ms + DAY)]
    for simulated in tasks:
        name = simulated.task.name
        expected = [(reason, at) for reason, at, _ in engine.rows(name)]
        assert [
            (shown.get(simulated_start.outcome, simulated_start.outcome), simulated_start.at)
            for simulated_start in all_starts
            if simulated_start.task == name
        ] == expected, text
        starts = sorted([*(began for began, _ in simulated.ran), *simulated.active.values()])
        assert starts == [at for other, at in engine.starts if other == name], (name, text)


def test_reasons_for_waiting(tmp_path: Path) -> None:
    """A waiting run counts for each slot or limit that it waits for, and an idle slot causes no wait."""
    config = loaded(
        tmp_path,
        "[daemon]\nmax_running = 2\n[slots.db]\nsize = 1\n"
        '[tasks.a]\nrun = "x"\nevery = "1h"\nuses = ["db"]\n'
        '[tasks.b]\nrun = "x"\ncron = "10 * * * *"\nuses = ["db"]\n'
        '[tasks.c]\nrun = "x"\ncron = "0 5 * * *"\n'
        '[tasks.d]\nrun = "x"\ncron = "20 5 * * *"\n',
    )
    minutes = {"a": 30, "b": 5, "c": 60, "d": 1}
    tasks = [SimulatedTask(simulated, FIRST_MS, minutes[name] * 60_000) for name, simulated in config.tasks.items()]
    (shared,) = queues(tasks, Capacity(config.slots, config.daemon.max_running), [])
    arrivals = [(start.task, start.outcome) for start in shared.until(FIRST_MS + 6 * 3_600_000)]
    assert set(arrivals) == {("a", "run"), ("b", "run"), ("b", "queued"), ("c", "run"), ("d", "queued")}
    assert {simulated.task.name: dict(simulated.waits) for simulated in tasks} == {
        "a": {},
        "b": {("slot", "db"): 5, ("daemon", ""): 1},
        "c": {},
        "d": {("daemon", ""): 1},
    }
    assert [simulated.longest_wait_ms // 60_000 for simulated in tasks] == [0, 20, 0, 15]


def test_service_holds_its_slot(tmp_path: Path) -> None:
    """A run that needs a service's slot waits for the whole simulation; a stopped service holds no slot."""
    text = (
        "[slots.gpu]\nsize = 1\n"
        '[tasks.t]\nrun = "x"\ncron = "0 1 * * *"\nuses = ["gpu"]\n'
        '[services.s]\nrun = "x"\nuses = ["gpu"]\n'
    )
    for keys, outcome, wait_ms in (("", "queued", 23 * 3_600_000), ("autostart = false\n", "run", 0)):
        config = loaded(tmp_path, text + keys)
        simulated = SimulatedTask(config.tasks["t"], FIRST_MS, 0)
        (shared,) = queues([simulated], Capacity(config.slots), config.services.values())
        assert outcomes(shared, FIRST_MS + DAY) == [outcome]
        shared.finish(FIRST_MS + DAY)
        assert simulated.longest_wait_ms == wait_ms


def test_jitter_moves_the_start(tmp_path: Path) -> None:
    """Jitter moves the start of a run, not its instant."""
    play = alone(configured(tmp_path, 'cron = "0 * * * *"\njitter = "30m"'), START)
    first = next(play.until(START + DAY))
    assert 0 < first.starts_at - first.at < 30 * 60_000
    assert first.at % 3_600_000 == 0
