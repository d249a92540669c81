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
from supervisor.ipc.messages import DaemonSettings
from supervisor.scheduler.reload import last_good
from tests.root.loop.test_shortage import BOOT

LOG = Log("test", "error")


@pytest.fixture
def boot(tmp_path: Path) -> DaemonSettings:
    """Return the settings of a daemon whose file has one task."""
    for name in ("data", "run"):
        (tmp_path / name).mkdir()
    config = dataclasses.replace(
        BOOT,
        data_dir=str(tmp_path / "data"),
        runtime_dir=str(tmp_path / "run"),
        http_socket=str(tmp_path / "data" / SOCKET_NAME),
        listen=[("127.0.0.1", 7464)],
        config_path=str(tmp_path / "ringward.toml"),
        overridden=["data_dir"],
    )
    write(config, "one")
    return config


def write(boot: DaemonSettings, task: str) -> None:
    path = Path(boot.config_path)
    path.write_text(f'[tasks.{task}]\nrun = "true"\n' if task else "")
    path.chmod(0o600)


def copy_of(boot: DaemonSettings) -> Path:
    return Path(boot.data_dir) / "config.last"


def test_restarted_scheduler_keeps_the_configuration(boot: DaemonSettings) -> None:
    """A restarted scheduler keeps the active configuration, whether the file was edited, emptied or broken."""
    started = last_good.find(boot, LOG, first_epoch=True)
    assert (list(started.config.tasks), started.copied, started.applied) == (["one"], False, True)
    for text in ("two", "", "broken]"):
        write(boot, text)
        loaded = last_good.find(boot, LOG, first_epoch=False)
        assert (loaded.config, loaded.copied, loaded.applied) == (started.config, True, True)


def test_new_daemon_reads_the_file(boot: DaemonSettings) -> None:
    """A new daemon ignores the copy of an earlier one, even if its first scheduler died before it made its own."""
    last_good.find(boot, LOG, first_epoch=True)
    write(boot, "two")
    later = dataclasses.replace(boot, started_at=boot.started_at + 1)
    assert list(last_good.find(later, LOG, first_epoch=False).config.tasks) == ["two"]


def test_copy_on_a_full_disk(boot: DaemonSettings) -> None:
    """On a full disk the error is reported, and the copy is kept in memory and replaces an outdated one."""
    config = last_good.find(boot, LOG, first_epoch=True).config
    obstacle = copy_of(boot).parent / "config.last.new"
    obstacle.mkdir()
    write(boot, "two")
    changed = load(boot.config_path)
    with pytest.raises(OSError, match="directory"):
        last_good.keep(changed, boot, applied=True)
    assert not copy_of(boot).exists()
    write(boot, "")
    assert last_good.find(boot, LOG, first_epoch=False) == last_good.UsableConfig(changed, copied=True, applied=True)
    obstacle.rmdir()
    last_good.keep(config, boot, applied=True)
    assert os.listdir(boot.runtime_dir) == []
    assert last_good.find(boot, LOG, first_epoch=False).config == config


def test_unwritable_copy(boot: DaemonSettings) -> None:
    """If the copy can be written nowhere, the outdated copy is removed, and a restarted scheduler reads the file."""
    loaded = last_good.find(boot, LOG, first_epoch=True)
    for place in (boot.data_dir, boot.runtime_dir):
        (Path(place) / "config.last.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        last_good.keep(loaded.config, boot, applied=True)
    assert not copy_of(boot).exists()
    again = last_good.find(boot, LOG, first_epoch=False)
    assert (list(again.config.tasks), again.read_again) == (["one"], True)


def test_copy_of_an_older_version(boot: DaemonSettings) -> None:
    """Keys that the older version did not know have their defaults."""
    loaded = last_good.find(boot, LOG, first_epoch=True)
    copy = json.loads(copy_of(boot).read_text())
    del copy["config"]["tasks"]["one"]["queue_max"], copy["config"]["daemon"]["log_level"]
    del copy["config"]["keep_refused"]
    copy_of(boot).write_text(json.dumps(copy))
    write(boot, "")
    assert last_good.find(boot, LOG, first_epoch=False) == loaded._replace(copied=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"started_at": 1, "applied": true, "config": {}}',
        "[",
        "\x00",
        pytest.param('{"config":' + "[" * 100_000, id="nested"),
    ],
)
def test_damaged_copy(boot: DaemonSettings, text: str) -> None:
    """The file replaces a damaged copy, and the scheduler knows that it read the file again."""
    copy_of(boot).write_text(text)
    check_ignored(boot)


def test_copy_with_a_damaged_byte(boot: DaemonSettings) -> None:
    """A copy with a byte that is not UTF-8 is ignored, as any damaged copy is."""
    last_good.find(boot, LOG, first_epoch=True)
    copy = copy_of(boot).read_bytes()
    copy_of(boot).write_bytes(copy.replace(b'"one"', b'"\xffne"'))
    check_ignored(boot)


def check_ignored(boot: DaemonSettings) -> None:
    loaded = last_good.find(boot, LOG, first_epoch=False)
    assert (list(loaded.config.tasks), loaded.read_again) == (["one"], True)
    assert not last_good.find(boot, LOG, first_epoch=False).read_again


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("broken]", "expected"),
        ("", "is empty"),
        ('[tasks.one]\nrun = "true"\n[http]\nlisten = ["127.0.0.1:1"]\n', "cannot change while the daemon runs"),
    ],
)
def test_refused_file(boot: DaemonSettings, text: str, reason: str) -> None:
    """Without a copy, an empty file and a file that a reload would refuse are refused."""
    Path(boot.config_path).write_text(text)
    with pytest.raises(ConfigError, match=reason):
        last_good.find(boot, LOG, first_epoch=False)
    assert not copy_of(boot).exists()
