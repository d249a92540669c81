"""The demonstration: its history and its cleanup."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from logring.log_paths import frames_path, log_path
from logring.reader import LogReader
from store.database import open_reader
from store.notifications import page
from store.runs.daily_outcomes import days
from store.runs.filter import RunFilter
from store.runs.run_pages import list_runs
from store.runs.writes import Run
from store.service_uptime import state_times
from store.tasks import decode_promises, get_task
from supervisor.cli import exit_codes
from supervisor.config.load import load
from supervisor.config.model import Config, Service, Task
from supervisor.tools.demo.configuration import text
from supervisor.tools.demo.history import DAYS, LONG_LINES, DemoHistory, disk_full_day
from supervisor.tools.demo.sample_tasks import CRM, FINISH_BY_MS
from supervisor.tools.demo.seed import LOGS, seed
from tests.logring.support.rings import read_all
from tests.support.command_line import Ringward

PROGRAM = [sys.executable, "-c", "from supervisor.cli.entry import main; main()", "demo"]
NOW_MS = int(datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()) * 1000


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data")
    assert 5000 <= seed(str(path), configuration(path), NOW_MS, ZoneInfo("Europe/Prague")) <= 10_000
    return path


def configuration(directory: Path) -> Config:
    file = directory / "ringward.toml"
    file.write_text(text())
    file.chmod(0o600)
    return load(str(file), {})


def all_runs() -> list[Run]:
    return DemoHistory(NOW_MS, ZoneInfo("Europe/Prague")).runs()


def test_configuration_is_valid(tmp_path: Path) -> None:
    """The configuration has twelve tasks, a flow and four services, all in groups, and no other unit has runs."""
    config = configuration(tmp_path)
    flow = [name for name in config.tasks if name.partition(":")[0] == "new-prices"]
    assert (len(config.tasks) - len(flow), len(flow), len(config.services)) == (12, 5, 4)
    units: list[Task | Service] = [*config.tasks.values(), *config.services.values()]
    assert all(unit.group for unit in units)
    assert {run.task_name for run in all_runs()} <= {*config.tasks, *config.services}


def test_calendar(tmp_path: Path) -> None:
    """Two tasks have a calendar: one leaves out holidays, and one moves to the next open day."""
    config = configuration(tmp_path)
    year = datetime.now(UTC).year
    assert {date[:4] for date, _ in config.calendars["holidays"].dates} >= {str(year), str(year + 1)}
    report, invoices = config.tasks["sales-report"], config.tasks["invoices"]
    assert [calendar.name for calendar in report.skip_on] == ["holidays"]
    assert [calendar.name for calendar in invoices.skip_on] == ["holidays", "weekend"]
    assert (report.shift, invoices.shift) == (None, "next")


def test_missed_deadline(seeded: Path) -> None:
    """The last two transfers to the CRM failed, so that one is late, and too many of the last ten have failed."""
    with contextlib.closing(open_reader(str(seeded / "ringward.db"))) as database:
        task = get_task(database, CRM)
    assert task is not None
    state = decode_promises(task.promises)
    assert state.outcomes.endswith("ff")
    assert state.late is not None
    assert state.failing_since is not None
    assert state.late.instant + FINISH_BY_MS == state.late.deadline < NOW_MS


@pytest.mark.parametrize("day", range(1, 8))
def test_disk_was_full_last_tuesday(day: int) -> None:
    """The disk was full on a Tuesday between one and seven days ago."""
    now = datetime(2026, 11, day, tzinfo=UTC)
    full = disk_full_day(now)
    assert full.isoweekday() == 2
    assert 1 <= (now.date() - full).days <= 7


def test_runs_are_ordered_and_past() -> None:
    """No run is in the future, and every retry follows a failure of its task for the same instant."""
    runs = all_runs()
    by_id = {run.id: run for run in runs}
    assert [run.id for run in runs] == sorted(by_id)
    for run in runs:
        assert run.created_at <= (run.ended_at or run.created_at) < NOW_MS
        if run.retry_of_run_id is not None:
            before = by_id[run.retry_of_run_id]
            assert before.end_reason in ("failed", "timeout")
            assert (before.task_name, before.scheduled_at) == (run.task_name, run.scheduled_at)
            assert before.ended_at is not None
            assert before.ended_at <= run.created_at
    assert {run.end_reason for run in runs} >= {"succeeded", "failed", "timeout", "missed", "stopped", "crashed"}


def test_backup_failed_for_lack_of_space(seeded: Path) -> None:
    """All attempts failed, the log says why, and the latest backup succeeded."""
    failed = [run for run in stored(seeded, "backup") if run.end_reason == "failed"][:3]
    assert [run.retry_attempt for run in failed] == [2, 1, 0]
    assert {datetime.fromtimestamp(run.created_at / 1000, UTC).isoweekday() for run in failed} == {2}
    for run in failed:
        lines = log_of(seeded, run)
        assert len(lines) == run.lines
        assert any("No space left on device" in line for line in lines)
    assert stored(seeded, "backup")[0].end_reason == "succeeded"


def test_long_log_and_redrawn_lines(seeded: Path) -> None:
    """The daemon's own readers can read the long log and the redrawn lines."""
    long = max(stored(seeded, "search-index"), key=lambda run: run.lines)
    assert long.lines == LONG_LINES
    with_frames = [
        run
        for run in stored(seeded, "thumbnails")
        if Path(frames_path(log_path(str(seeded), run.task_name, run.id))).exists()
    ]
    assert with_frames
    assert any("100 %" in line for line in log_of(seeded, with_frames[0]))
    assert len(list(seeded.glob("logs/*/*/*.log"))) == LOGS


def test_daily_counts_and_notifications(seeded: Path) -> None:
    """The strip of days and the list of notifications have data."""
    database = open_reader(str(seeded / "ringward.db"), limit_s=None)
    try:
        assert len({day.day for day in days(database, "backup", 0)}) > DAYS - 10
        stored_notifications = page(database, 100)
        assert {notification.kind for notification in stored_notifications} - {"run.timeout"} == {
            "run.failed",
            "service.recovered",
            "task.late",
        }
        assert {notification.read_at is None for notification in stored_notifications} == {True, False}
    finally:
        database.close()


def test_uptime_of_services(seeded: Path) -> None:
    """Services have data for each of the last 90 days and an uptime above 99 %."""
    database = open_reader(str(seeded / "ringward.db"), limit_s=None)
    try:
        for name in ("web", "worker", "cache"):
            times = state_times(database, name, 0)
            up = sum(day.ms for day in times if day.state == "running")
            today = NOW_MS // 86_400_000
            assert {day.day for day in times} >= set(range(today - 89, today + 1))
            assert 0.99 < up / sum(day.ms for day in times) <= 1
    finally:
        database.close()


def test_only_loopback(ringward: Ringward) -> None:
    """The demonstration listens only on loopback, because it prints its password."""
    result = ringward("demo", "--listen", "0.0.0.0:0", plain=True)
    assert result.exit_code == exit_codes.USAGE
    assert "0.0.0.0" in result.output


def test_existing_directory_is_refused(ringward: Ringward, data: Path) -> None:
    """An existing directory is refused and not changed."""
    result = ringward("demo", "--keep", str(data), plain=True)
    assert result.exit_code == exit_codes.DATA_DIR
    assert list(data.iterdir()) == []


@pytest.mark.parametrize("keep", [False, True], ids=["removed", "kept"])
def test_demo_runs_and_cleans_up(tmp_path: Path, keep: bool) -> None:
    """The command prints its address; after Ctrl-C no process remains, and no file without --keep."""
    with tempfile.TemporaryDirectory(prefix="rw-") as short:
        directory = Path(short) / "kept"
        arguments = [*PROGRAM, *(["--json", "--keep", str(directory)] if keep else [])]
        environ = {**os.environ, "TMPDIR": short}
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environ, cwd=tmp_path) as demo:
            try:
                assert demo.stdout is not None
                if keep:
                    facts = json.loads(demo.stdout.readline())
                    home, address = Path(facts["config"]).parent, facts["address"]
                    assert facts["password"]
                    assert 5000 <= facts["runs"] <= 10_000
                else:
                    printed = [demo.stdout.readline() for _ in range(5)]
                    home, address = Path(printed[0].rstrip().rpartition(" in ")[2]), printed[1].split()[-1]
                assert address.startswith("http://127.0.0.1:")
                shown = subprocess.run(
                    [*PROGRAM[:-1], "-c", str(home / "ringward.toml"), "ps", "--json"], capture_output=True, check=True
                )
                assert len(json.loads(shown.stdout)) >= 1
                daemon = int((home / "data" / "lock").read_text())
            finally:
                demo.send_signal(signal.SIGINT)
                demo.wait()
        assert demo.returncode == 0
        assert home.exists() == keep
        with pytest.raises(ProcessLookupError):
            os.kill(daemon, 0)


def stored(directory: Path, task: str) -> list[Run]:
    """Return the stored runs, newest first."""
    database = open_reader(str(directory / "ringward.db"), limit_s=None)
    try:
        return list_runs(database, RunFilter(task_name=task), limit=500, now_ms=NOW_MS)[0]
    finally:
        database.close()


def log_of(directory: Path, run: Run) -> list[str]:
    reader = LogReader("/nonexistent/ring", log_path(str(directory), run.task_name, run.id))
    try:
        return [line.text.decode() for line in read_all(reader)]
    finally:
        reader.close()
