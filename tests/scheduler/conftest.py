from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.scheduler.bench import Bench


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
