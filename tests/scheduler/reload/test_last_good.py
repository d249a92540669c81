"""The copy of the active configuration."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from supervisor.config.files.lookup import SOCKET_NAME
from supervisor.config.load import load
from supervisor.config.problems import ConfigError
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Boot
from supervisor.scheduler.reload import last_good
from tests.root.loop.test_shortage import BOOT

LOG = Log("test", "error")


@pytest.fixture
def boot(tmp_path: Path) -> Boot:
    """Settings of a daemon whose file has one task."""
    for name in ("data", "run"):
        (tmp_path / name).mkdir()
    one = dataclasses.replace(
        BOOT,
        data_dir=str(tmp_path / "data"),
        runtime_dir=str(tmp_path / "run"),
        http_socket=str(tmp_path / "data" / SOCKET_NAME),
        listen=[("127.0.0.1", 7464)],
        config_path=str(tmp_path / "ringward.toml"),
        overridden=["data_dir"],
    )
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


def test_a_copy_on_a_full_disk(boot: Boot) -> None:
    """It is in memory as long as the data directory takes none, which is reported, and replaces an outdated one."""
    config = last_good.find(boot, LOG, first_epoch=True).config
    obstacle = copy_of(boot).parent / "config.last.new"
    obstacle.mkdir()
    write(boot, "two")
    changed = load(boot.config_path)
    with pytest.raises(OSError, match="directory"):
        last_good.keep(changed, boot, applied=True)
    assert not copy_of(boot).exists()
    write(boot, "")
    assert last_good.find(boot, LOG, first_epoch=False) == last_good.Found(changed, copied=True, applied=True)
    obstacle.rmdir()
    last_good.keep(config, boot, applied=True)
    assert os.listdir(boot.runtime_dir) == []
    assert last_good.find(boot, LOG, first_epoch=False).config == config


def test_a_copy_that_can_be_written_nowhere(boot: Boot) -> None:
    """The copy of an earlier configuration goes, and the scheduler that reads the file starts without a copy."""
    found = last_good.find(boot, LOG, first_epoch=True)
    for place in (boot.data_dir, boot.runtime_dir):
        (Path(place) / "config.last.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        last_good.keep(found.config, boot, applied=True)
    assert not copy_of(boot).exists()
    again = last_good.find(boot, LOG, first_epoch=False)
    assert (list(again.config.tasks), again.read_again) == (["one"], True)


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
    """The file stands in for it, and the scheduler knows that."""
    copy_of(boot).write_text(text)
    found = last_good.find(boot, LOG, first_epoch=False)
    assert (list(found.config.tasks), found.read_again) == (["one"], True)
    assert not last_good.find(boot, LOG, first_epoch=False).read_again


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("broken]", "expected"),
        ("", "is empty"),
        ('[tasks.one]\nrun = "true"\n[http]\nlisten = ["127.0.0.1:1"]\n', "cannot change while the daemon runs"),
    ],
)
def test_a_file_that_a_reload_would_refuse(boot: Boot, text: str, why: str) -> None:
    """Without a copy nothing comes into force that a reload would refuse, nor an empty file."""
    Path(boot.config_path).write_text(text)
    with pytest.raises(ConfigError, match=why):
        last_good.find(boot, LOG, first_epoch=False)
    assert not copy_of(boot).exists()
