from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.scheduler.bench import Bench
from tests.scheduler.runs.schedules import Make, Schedules, task


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[[str], Bench]]:
    """Make a bench with a configuration."""
    made: list[Bench] = []

    def make(text: str) -> Bench:
        made.append(Bench(tmp_path, text))
        return made[-1]

    yield make
    for made_bench in made:
        made_bench.close()


@pytest.fixture
def make_schedules(tmp_path: Path) -> Iterator[Make]:
    """Make benches of schedules, which are closed after the test."""
    made: list[Schedules] = []

    def make(keys: str) -> Schedules:
        made.append(Schedules(tmp_path, task(keys)))
        return made[-1]

    yield make
    for made_bench in made:
        made_bench.close()
