"""The operation ``upcoming``: what all schedules do, through pauses, windows and pages."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.scheduler.control.agenda_operations import AgendaOperations
from tests.scheduler.control.operations import operations_of
from tests.scheduler.runs.schedules import DAY, HOUR, MINUTE, START
from tests.scheduler.runs.test_pauses import Pausable

TEXT = """
[daemon]
timezone = "Europe/Berlin"
[windows.night]
cron = "0 0 * * *"
duration = "2h"
match = { tasks = "a" }
[tasks.a]
run = "true"
cron = "30 1,12 * * *"
timezone = "UTC"
[tasks.b]
run = "true"
cron = "* * * * *"
[tasks.c]
run = "true"
every = "90m"
"""


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Pausable]:
    made = Pausable(tmp_path, TEXT)
    yield made
    made.close()


def ask(harness: Pausable, end: int, limit: int = 100, start: int = 0, reach: str | None = None) -> dict[str, Any]:
    operations = AgendaOperations(harness.core, harness.units, harness.windows, harness.daemon_pause, harness.config)
    answers: list[dict[str, Any]] = []
    request = {"start": start, "end": end, "limit": limit, "reach": reach}
    operations_of(operations)["upcoming"](request, answers.append)
    while not answers:
        harness.loop.round(0)
    result: dict[str, Any] = answers[0]["result"]
    return result


def listed(answer: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(item["task"], item["kind"], (item["at"] - START) // MINUTE) for item in answer["items"]]


def test_entries_of_all_tasks(harness: Pausable) -> None:
    """Entries of all tasks are in the order of their times; tasks that run often do not hide others."""
    answer = ask(harness, START + 6 * HOUR)
    assert listed(answer) == [
        ("b", "runs", 0),
        ("a", "run", 89),
        ("c", "run", 90),
        ("c", "run", 180),
        ("c", "run", 270),
    ]
    assert (answer["next"], answer["pause"]) == (None, None)
    assert listed(ask(harness, START + DAY, reach="a")) == [("a", "run", 89), ("a", "run", 749)]


def test_windows_and_clock_changes(harness: Pausable) -> None:
    """The answer has the openings of windows, and the clock changes of the daemon's zone."""
    answer = ask(harness, START + 35 * DAY, limit=10_000)
    assert len(answer["windows"]) == 35
    october = START + 146 * DAY
    assert ask(harness, october + DAY, start=october - DAY)["clock_changes"] == [[1792890000000, 7200, 3600]]


def test_pages(harness: Pausable) -> None:
    """Pages that begin at the time which the page before gives have each run once."""
    whole = ask(harness, START + DAY)
    runs: dict[str, int] = {}
    start: int | None = 0
    while start is not None:
        page = ask(harness, START + DAY, limit=2, start=start)
        for item in page["items"]:
            runs[item["task"]] = runs.get(item["task"], 0) + item.get("count", 1)
        start = page["next"]
    assert runs == {
        name: sum(item.get("count", 1) for item in whole["items"] if item["task"] == name) for name in ("a", "b", "c")
    }


def test_paused_task(harness: Pausable) -> None:
    """A paused task has an entry with the person, the end and the note; its runs begin after the end."""
    harness.act("task_pause", task="a", until=START + 2 * HOUR, note="a disk")
    first, second = (item for item in ask(harness, START + DAY)["items"] if item["task"] == "a")
    assert (first["kind"], first["until"]) == ("paused", START + 2 * HOUR)
    assert first["cause"].startswith("paused by anna since ")
    assert first["cause"].endswith(": a disk")
    assert (second["kind"], second["at"]) == ("run", START + 749 * MINUTE + 30_000)


def test_paused_daemon(harness: Pausable) -> None:
    """During a pause of all schedules, only runs after its end are listed."""
    harness.act("daemon_pause", until=START + 5 * HOUR)
    answer = ask(harness, START + 7 * HOUR)
    assert answer["pause"]["by"] == "anna"
    assert listed(answer) == [("b", "runs", 300), ("c", "run", 390)]
    harness.act("daemon_pause")
    assert ask(harness, START + 7 * HOUR)["items"] == []
