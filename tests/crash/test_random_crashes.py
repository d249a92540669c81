"""Services that crash at random."""

from pathlib import Path

import pytest

from tests.crash.services import Crashes
from tests.support.daemon import Daemon
from tests.support.host_features import require_cgroups

SECONDS = 2


@pytest.mark.parametrize("cgroups", ["auto", "off"])
def test_crashes_are_accounted_for(tmp_path: Path, cgroups: str) -> None:
    """Each incarnation has its row, its end and every byte. No process, descriptor, ring or cgroup remains."""
    if cgroups == "auto":
        require_cgroups()
    daemon = Daemon(tmp_path)
    try:
        report = Crashes(daemon, tmp_path, count=8, most_s=1.0, cgroups=cgroups, seed=1).run(SECONDS)
    finally:
        daemon.clean()
    assert report.differences == []
    assert report.runs > 10
    assert report.left > 0
    assert report.bytes > 0
