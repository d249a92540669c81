"""The copy of the active configuration."""

import dataclasses
import json
from pathlib import Path

import pytest

from supervisor.config.files.lookup import SOCKET_NAME
from supervisor.config.load import load
from supervisor.config.model import Config
from supervisor.config.problems import ConfigError
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings
from supervisor.scheduler.reload import last_good
from supervisor.startup import config_copy
from tests.root.loop.test_shortage import BOOT

LOG = Log("test", "error")


@pytest.fixture
def settings(tmp_path: Path) -> DaemonSettings:
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


def write(settings: DaemonSettings, task: str) -> None:
    path = Path(settings.config_path)
    path.write_text(f'[tasks.{task}]\nrun = "true"\n' if task else "")
    path.chmod(0o600)


def start(settings: DaemonSettings) -> Config:
    """Write the copy as ``ringward up`` does; return the configuration."""
    config = load(settings.config_path)
    config_copy.keep(config, settings, applied=True)
    return config


def copy_of(settings: DaemonSettings) -> Path:
    return Path(settings.data_dir) / "config.last"


def test_restarted_scheduler_keeps_the_configuration(settings: DaemonSettings) -> None:
    """A restarted scheduler keeps the active configuration, whether the file was edited, emptied or broken."""
    started = start(settings)
    for text in ("two", "", "broken]"):
        write(settings, text)
        loaded = last_good.find(settings, LOG)
        assert (loaded.config, loaded.applied, loaded.read_again) == (started, True, False)


def test_new_daemon_reads_the_file(settings: DaemonSettings) -> None:
    """A new daemon ignores the copy of an earlier one, even if its first scheduler died before it made its own."""
    start(settings)
    write(settings, "two")
    later = dataclasses.replace(settings, started_at=settings.started_at + 1)
    assert list(last_good.find(later, LOG).config.tasks) == ["two"]


def test_copy_on_a_full_disk(settings: DaemonSettings) -> None:
    """On a full disk the error is reported, and the copy is kept in memory and replaces an outdated one."""
    config = start(settings)
    obstacle = copy_of(settings).parent / "config.last.new"
    obstacle.mkdir()
    write(settings, "two")
    changed = load(settings.config_path)
    with pytest.raises(OSError, match="directory"):
        config_copy.keep(changed, settings, applied=True)
    assert not copy_of(settings).exists()
    write(settings, "")
    assert last_good.find(settings, LOG) == last_good.UsableConfig(changed, applied=True, read_again=False)
    obstacle.rmdir()
    config_copy.keep(config, settings, applied=True)
    assert last_good.find(settings, LOG).config == config


@pytest.mark.parametrize("place", ["data_dir", "runtime_dir"])
def test_removed_copy(settings: DaemonSettings, place: str) -> None:
    """If the data directory or the runtime directory is lost, the copy in the other one is used."""
    config = start(settings)
    (Path(getattr(settings, place)) / "config.last").unlink()
    write(settings, "two")
    assert last_good.find(settings, LOG).config == config


def test_unwritable_copy(settings: DaemonSettings) -> None:
    """If the copy can be written nowhere, the outdated copy is removed, and a restarted scheduler reads the file."""
    config = start(settings)
    for place in (settings.data_dir, settings.runtime_dir):
        (Path(place) / "config.last.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        config_copy.keep(config, settings, applied=True)
    assert not copy_of(settings).exists()
    again = last_good.find(settings, LOG)
    assert (list(again.config.tasks), again.read_again) == (["one"], True)


def test_copy_of_an_older_version(settings: DaemonSettings) -> None:
    """Keys that the older version did not know have their defaults."""
    config = start(settings)
    copy = json.loads(copy_of(settings).read_text())
    del copy["config"]["tasks"]["one"]["queue_max"], copy["config"]["daemon"]["log_level"]
    del copy["config"]["keep_refused"]
    copy_of(settings).write_text(json.dumps(copy))
    write(settings, "")
    assert last_good.find(settings, LOG) == last_good.UsableConfig(config, applied=True, read_again=False)


def test_copy_with_unlimited_restarts(settings: DaemonSettings) -> None:
    """A copy is usable if a service may restart without a limit, which JSON cannot express."""
    unlimited = 'restart_attempts = "unlimited"\nflap_restarts = "unlimited"\n'
    Path(settings.config_path).write_text(f'[services.a]\nrun = "true"\n{unlimited}[services.b]\nrun = "true"\n')
    config = start(settings)
    write(settings, "")
    assert last_good.find(settings, LOG) == last_good.UsableConfig(config, applied=True, read_again=False)


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
def test_damaged_copy(settings: DaemonSettings, text: str) -> None:
    """The file replaces a damaged copy, and the scheduler knows that it read the file again."""
    copy_of(settings).write_text(text)
    check_ignored(settings)


def test_copy_with_a_damaged_byte(settings: DaemonSettings) -> None:
    """A copy with a byte that is not UTF-8 is ignored, as any damaged copy is."""
    start(settings)
    copy = copy_of(settings).read_bytes()
    for place in (settings.data_dir, settings.runtime_dir):
        (Path(place) / "config.last").write_bytes(copy.replace(b'"one"', b'"\xffne"'))
    check_ignored(settings)


def check_ignored(settings: DaemonSettings) -> None:
    loaded = last_good.find(settings, LOG)
    assert (list(loaded.config.tasks), loaded.read_again) == (["one"], True)
    assert not last_good.find(settings, LOG).read_again


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("broken]", "expected"),
        ("", "is empty"),
        ('[tasks.one]\nrun = "true"\n[http]\nlisten = ["127.0.0.1:1"]\n', "cannot change while the daemon runs"),
    ],
)
def test_refused_file(settings: DaemonSettings, text: str, reason: str) -> None:
    """Without a copy, an empty file and a file that a reload would refuse are refused."""
    Path(settings.config_path).write_text(text)
    with pytest.raises(ConfigError, match=reason):
        last_good.find(settings, LOG)
    assert not copy_of(settings).exists()
