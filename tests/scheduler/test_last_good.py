"""The copy of the configuration that worked last."""

from pathlib import Path

from supervisor.logline import Log
from supervisor.scheduler.last_good import load_or_keep


def test_a_copy_that_cannot_be_written(tmp_path: Path) -> None:
    """The scheduler starts all the same: a full disk must not take every schedule away."""
    path = tmp_path / "ringward.toml"
    path.write_text('[tasks.t]\nrun = "true"\n')
    path.chmod(0o600)
    (tmp_path / "config.last.new").mkdir()
    config, warnings = load_or_keep(str(path), str(tmp_path), first_epoch=False, log=Log("test", "error"))
    assert list(config.tasks) == ["t"]
    assert warnings == []
