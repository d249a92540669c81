"""How many of the last runs may fail, through restarts."""

from collections.abc import Callable

import pytest

from tests.scheduler.notifications.test_finish_by import Promising, make
from tests.scheduler.runs.schedules import task

__all__ = ("make",)

Make = Callable[..., Promising]
KEYS = 'failure_rate = "2 in 4"'


def end_runs(harness: Promising, outcomes: str) -> None:
    """End runs that fail (f), succeed (s) or are stopped (x), each under a new scheduler."""
    for outcome in outcomes:
        harness.dies()
        harness.trigger_by_hand()
        run = harness.live()
        harness.exited(run.id, status=256 if outcome == "f" else 0, cause="stop" if outcome == "x" else None)
        harness.store.work_all()


@pytest.mark.parametrize(
    ("outcomes", "kinds"),
    [
        ("fsss", []),
        ("fx", []),
        ("ff", ["task.failing"]),
        ("fssfff", ["task.failing"]),
        ("fsssf", []),
        ("fssfss", ["task.failing", "task.steady"]),
        ("fsxfsssff", ["task.failing", "task.steady", "task.failing"]),
    ],
)
def test_rate(make: Make, outcomes: str, kinds: list[str]) -> None:
    """Too many failures among the last runs are reported once, and so is the end of that; stops do not count."""
    harness = make(KEYS)
    end_runs(harness, outcomes)
    assert [kind for kind, times, _ in harness.told() for _ in range(times)] == sorted(kinds)


def test_texts(make: Make) -> None:
    """The reports have the numbers, and the second one how long it lasted."""
    harness = make(KEYS)
    end_runs(harness, "sff")
    harness.clock.advance_ms(90 * 60_000)
    end_runs(harness, "sss")
    assert [text for _, _, text in harness.told()] == [
        "2 of the last 3 runs failed.",
        "1 of the last 4 runs failed. It failed too often for 1h30m.",
    ]


def test_retries(make: Make) -> None:
    """A run and its retries count as one."""
    harness = make(KEYS + '\nretry_attempts = 1\nretry_delay = "1s"')
    for _ in range(2):
        harness.trigger_by_hand()
        harness.end(status=256)
        harness.until(harness.clock.wall + 1000)
        harness.end()
    assert (harness.stored().outcomes, harness.kinds()) == ("ss", [])


def test_key_is_removed(make: Make) -> None:
    """Without the key, nothing is counted any more, and nothing is reported."""
    harness = make(KEYS)
    end_runs(harness, "ff")
    harness.rewrite(task(""))
    harness.dies()
    assert (harness.stored().outcomes, harness.stored().failing_since) == ("", None)
    end_runs(harness, "ssss")
    assert harness.kinds() == ["task.failing"]
