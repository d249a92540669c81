"""Schedules over a day of clock changes, while the scheduler is killed."""

import random
from pathlib import Path

import pytest

from tests.crash.compressed_day import Day


@pytest.mark.parametrize(("which", "steps"), [("forward", 0), ("back", 5)])
def test_each_instant_once(tmp_path: Path, which: str, steps: int) -> None:
    """Despite kills and clock steps, each instant is one run, or one row that says why it did not run."""
    seed = random.SystemRandom().randrange(1 << 32)
    day = Day(tmp_path, which, seed)
    try:
        wrong = day.play(kills=6, steps=steps)
    finally:
        day.daemon.clean()
    assert wrong == [], seed
    assert day.kills >= 6
    assert day.reasons["run"] > 200
    assert day.reasons["dst_skipped"] >= (1 if which == "forward" else 2)
