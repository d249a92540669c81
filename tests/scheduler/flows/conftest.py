"""The bench of flows as a fixture."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scheduler.flows.playing import FlowBench, Make


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Make]:
    """Make benches of flows, which are closed after the test."""
    made: list[FlowBench] = []

    def make(text: str) -> FlowBench:
        made.append(FlowBench(tmp_path, text))
        return made[-1]

    yield make
    for one in made:
        one.close()
