"""The copy of the active configuration."""

import dataclasses
import json
from pathlib import Path

import pytest

from supervisor.config.problems import ConfigError
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Boot
from supervisor.scheduler.reload import last_good
from tests.root.loop.test_shortage import BOOT

LOG = Log("test", "error")


@pytest.fixture
def boot(tmp_path: Path) -> Boot:
    (tmp_path / "data").mkdir()
    one = dataclasses.replace(BOOT, data_dir=str(tmp_path / "data"), config_path=str(tmp_path / "ringward.toml"))
    write(one, "one")
    return one


def write(boot: Boot, task: str) -> None:
    path = Path(boot.config_path)
    path.write_text(f'[tasks.{task}]\nrun = "true"\n' if task else "")
    path.chmod(0o600)


def copy_of(boot: Boot) -> Path:
    return Path(boot.data_dir) / "config.last"


def test_a_restarted_scheduler_has_what_is_in_force(boot: Boot) -> None:
    """Neither an edited nor an empty nor a broken file comes into force by a restart."""
    started = last_good.find(boot, LOG, first_epoch=True)
    assert (list(started.config.tasks), started.copied, started.applied) == (["one"], False, True)
    for text in ("two", "", "broken]"):
        write(boot, text)
        found = last_good.find(boot, LOG, first_epoch=False)
        assert (found.config, found.copied, found.applied) == (started.config, True, True)


def test_another_daemon_takes_the_file(boot: Boot) -> None:
    """The copy of an earlier daemon does not count, not even when the first scheduler died before it made one."""
    last_good.find(boot, LOG, first_epoch=True)
    write(boot, "two")
    later = dataclasses.replace(boot, started_at=boot.started_at + 1)
    assert list(last_good.find(later, LOG, first_epoch=False).config.tasks) == ["two"]


def test_a_copy_that_cannot_be_written(boot: Boot) -> None:
    """The scheduler starts all the same, and the copy of an earlier configuration goes."""
    found = last_good.find(boot, LOG, first_epoch=True)
    (copy_of(boot).parent / "config.last.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        last_good.keep(found.config, boot, applied=True)
    assert not copy_of(boot).exists()
    again = last_good.find(boot, LOG, first_epoch=False)
    assert (list(again.config.tasks), again.copied, again.applied) == (["one"], False, False)


def test_a_copy_of_an_older_version(boot: Boot) -> None:
    """Keys that it did not know have their defaults."""
    found = last_good.find(boot, LOG, first_epoch=True)
    copy = json.loads(copy_of(boot).read_text())
    del copy["config"]["tasks"]["one"]["queue_max"], copy["config"]["daemon"]["log_level"]
    del copy["config"]["keep_refused"]
    copy_of(boot).write_text(json.dumps(copy))
    write(boot, "")
    assert last_good.find(boot, LOG, first_epoch=False) == found._replace(copied=True)


@pytest.mark.parametrize("text", ["", "{}", '{"started_at": 1, "applied": true, "config": {}}', "[", "\x00"])
def test_a_damaged_copy(boot: Boot, text: str) -> None:
    """The file stands in for it; where that is broken, too, nothing comes into force."""
    copy_of(boot).write_text(text)
    assert list(last_good.find(boot, LOG, first_epoch=False).config.tasks) == ["one"]
    copy_of(boot).write_text(text)
    write(boot, "broken]")
    with pytest.raises(ConfigError):
        last_good.find(boot, LOG, first_epoch=False)
