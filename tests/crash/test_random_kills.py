"""Helpers are killed at random under load, with upgrades in between."""

from pathlib import Path

from tests.crash.harness import Storm
from tests.support.daemon import Daemon

SECONDS, LONGEST_PAUSE_S, KILLS = 6, 1.5, 3


def test_random_kills_lose_nothing(tmp_path: Path) -> None:
    """Kills of workers, gunicorn and the scheduler, and upgrades, lose no line, no row and no accepted trigger."""
    daemon = Daemon(tmp_path)
    try:
        report = Storm(daemon, tmp_path, seed=1, with_example=False).run(SECONDS, LONGEST_PAUSE_S, KILLS)
    finally:
        daemon.clean()
    assert report.differences == []
    assert report.kills.total() >= KILLS
    assert report.upgrades >= 1
    assert report.lines > 1000
