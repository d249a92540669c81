"""Everything at once for a short while; ``make soak-chaos`` runs it for long."""

from pathlib import Path

from tests.crash.chaos import ROOT, Chaos
from tests.support.daemon import Daemon

SECONDS, LONGEST_PAUSE_S, KILLS, SEED = 6, 1.0, 6, 8


def test_chaos_loses_nothing(tmp_path: Path) -> None:
    """Kills of helpers and of the root, reloads, stops and bulk deletes lose no trigger, no line and no changed file.

    A run that died with the root ends as crashed, and can lack the output that was still in its pipe.
    """
    daemon = Daemon(tmp_path)
    daemon.write("")
    try:
        report = Chaos(daemon, tmp_path, SEED).run(SECONDS, LONGEST_PAUSE_S, KILLS)
    finally:
        daemon.clean()
    assert report.differences == []
    assert report.kills[ROOT] >= 1
    assert report.lines > 1000
    assert report.files >= 1
    assert report.exported > 100
