"""``ringward simulate``."""

import json
from pathlib import Path
from typing import Any

import pytest

from store.database import open_writer
from store.runs.writes import insert_run, update_run
from store.tasks import update_task, upsert_task
from supervisor.cli import exit_codes
from tests.store.making import T0, make_run
from tests.support.command_line import Ringward

TEXT = """
[daemon]
timezone = "Europe/Prague"
[tasks.nightly]
run = "true"
cron = "30 2 * * *"
[tasks.often]
run = "true"
every = "50m"
on_overlap = "skip"
[services.web]
run = "true"
"""


@pytest.fixture(autouse=True)
def config(tmp_path: Path) -> Path:
    path = tmp_path / "ringward.toml"
    path.write_text(TEXT)
    path.chmod(0o600)
    return path


def simulated(ringward: Ringward, *arguments: str) -> dict[str, Any]:
    result = ringward("simulate", "--json", *arguments)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_month_with_a_clock_change(ringward: Ringward) -> None:
    """Days follow the configured time zone, each task is counted, and services are omitted."""
    outcome = simulated(ringward, "--from", "2026-10-01", "--days", "31")
    assert (outcome["from"], outcome["to"]) == ("2026-09-30T22:00:00.000Z", "2026-10-31T23:00:00.000Z")
    assert [(task["name"], task["times"], task["run"], task["dst_skipped"]) for task in outcome["tasks"]] == [
        ("nightly", 32, 31, 1),
        ("often", 893, 893, 0),
    ]
    assert [clock_change["task"] for clock_change in outcome["clockChanges"]] == ["nightly"]
    assert len(outcome["hours"]) == 24


def test_tables(ringward: Ringward) -> None:
    """The tables have a row for each task, collision, hour and clock change, separated by tabs in a pipe."""
    result = ringward("simulate", "--from", "2026-10-01", "--days", "31", "--duration", "often=1h")
    assert result.exit_code == 0, result.output
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert ["nightly", "32", "-", "-", "-", "-", "-", "1", "-", "-", "-"] in rows
    assert ["often", "893", "1h", "-", "446", "-", "-", "-", "-", "-", "-"] in rows
    assert ["2026-10-25", "nightly", "Europe/Prague", "-", "1", "1"] in rows
    assert [row[3] for row in rows if len(row) == 4 and row[0] == "2"] == ["nightly, often"]
    assert len([row for row in rows if len(row) == 4 and row[0].isdecimal() and len(row[0]) == 2]) == 24


def test_runs_that_share_a_slot(ringward: Ringward, config: Path) -> None:
    """The command reports how many runs wait, how long, and for which slot or limit."""
    config.write_text(
        "[daemon]\nmax_running = 1\n[slots.db]\nsize = 1\n"
        '[tasks.first]\nrun = "true"\ncron = "0 3 * * *"\nuses = ["db"]\n'
        '[tasks.second]\nrun = "true"\ncron = "10 3 * * *"\nuses = ["db"]\n'
    )
    options = ("--from", "2026-10-01", "--days", "2", "--duration", "30m")
    tasks = {task["name"]: task for task in simulated(ringward, *options)["tasks"]}
    assert (tasks["first"]["queued"], tasks["first"]["waitingFor"]) == (0, [])
    assert (tasks["second"]["queued"], tasks["second"]["longestWaitMs"]) == (2, 20 * 60_000)
    assert tasks["second"]["waitingFor"] == [
        {"kind": "daemon", "count": 2},
        {"kind": "slot", "name": "db", "count": 2},
    ]
    assert "\t20m\tmax_running (2), slot db (2)\n" in ringward("simulate", *options).stdout


def test_durations(ringward: Ringward, data: Path) -> None:
    """The duration of a task is its option's, else the common option's, else the average of the history, else zero."""
    database = open_writer(str(data / "ringward.db"))
    for name in ("nightly", "often"):
        upsert_task(database, name, "task", "{}")
        for took_ms in (60_000, 120_000):
            run = make_run(task_name=name, started_at=T0)
            insert_run(database, run)
            update_run(database, run.id, status="ended", end_reason="succeeded", exit_code=0, ended_at=T0 + took_ms)
    update_task(database, "often", last_instant=T0)
    database.close()

    def durations(*arguments: str) -> list[int]:
        return [task["durationMs"] for task in simulated(ringward, "--days", "1", *arguments)["tasks"]]

    assert durations() == [90_000, 90_000]
    assert durations("--duration", "nightly=2h") == [7_200_000, 90_000]
    assert durations("--duration", "nightly=2h", "--duration", "3s") == [7_200_000, 3000]
    assert durations("--duration", "3s", "--duration", "nightly=2h") == [7_200_000, 3000]
    (data / "ringward.db").unlink()
    assert durations("--duration", "nightly=2h") == [7_200_000, 0]


def test_unreadable_database(ringward: Ringward, data: Path) -> None:
    """The simulation continues without a history and says why."""
    (data / "ringward.db").write_bytes(b"no database" * 1000)
    result = ringward("simulate", "--days", "1")
    assert result.exit_code == 0
    assert "ignoring the history" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--days", "0"],
        ["--days", "99999"],
        ["--from", "yesterday"],
        ["--from", "1900-01-01"],
        ["--duration", "soon"],
        ["--duration", "absent=3s"],
        ["--duration", "=3s"],
    ],
)
def test_invalid_options(ringward: Ringward, arguments: list[str]) -> None:
    """Invalid options are refused with 64, and the message names the option."""
    result = ringward("simulate", *arguments)
    assert result.exit_code == exit_codes.USAGE
    assert arguments[0] in result.stderr


def test_too_many_times(ringward: Ringward, config: Path) -> None:
    """A simulation that would take hours is refused at once."""
    config.write_text('[tasks.t]\nrun = "true"\ncron = "* * * * * *"\n')
    result = ringward("simulate", "--days", "3660")
    assert result.exit_code == exit_codes.USAGE
    assert "use fewer --days" in result.stderr


def test_invalid_configuration(ringward: Ringward, config: Path) -> None:
    """The problems are listed as by ``ringward validate``."""
    config.write_text('[tasks.t]\nrun = "true"\ncron = "61 * * * *"\n')
    result = ringward("simulate")
    assert result.exit_code == exit_codes.CONFIG
    assert "ringward.toml:3: tasks.t.cron" in result.stderr
