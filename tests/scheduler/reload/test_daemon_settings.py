from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.config.load import load
from supervisor.config.model import Config
from supervisor.config.problems import ConfigError
from supervisor.ipc.messages import DaemonSettings
from supervisor.scheduler.reload.daemon_settings import feasible, follow, for_the_api, resolve, unchangeable
from tests.root.loop.test_shortage import BOOT

Load = Callable[[str], Config]

NEVER = {
    "daemon_id",
    "runtime_dir",
    "config_path",
    "token",
    "run_token_key",
    "runtime_bases",
    "started_at",
    "overridden",
    "private_variables",
    "api_account",
    "api_groups",
}
"""Settings that stay for the life of the daemon in spite of reloads."""


@pytest.fixture
def config(tmp_path: Path) -> Load:
    def written(text: str) -> Config:
        path = tmp_path / "ringward.toml"
        path.write_text(text)
        path.chmod(0o600)
        return load(str(path), {})

    return written


@pytest.fixture
def settings(tmp_path: Path, config: Load) -> DaemonSettings:
    """The settings of a daemon with an empty configuration."""
    settings = replace(BOOT, data_dir=str(tmp_path), overridden=["data_dir"], password_ephemeral=True)
    return resolve(config(""), settings)


def test_boot_settings_come_from_the_configuration(config: Load, settings: DaemonSettings) -> None:
    """A new boot setting cannot be forgotten: the settings come from the configuration model."""
    others: dict[str, Any] = {
        field.name: object() for field in fields(DaemonSettings) if field.name not in NEVER | {"data_dir"}
    }
    odd = replace(settings, **others)
    resolved = resolve(config(""), odd)
    unchanged = {
        field.name for field in fields(DaemonSettings) if getattr(resolved, field.name) is getattr(odd, field.name)
    }
    assert unchanged - {"data_dir"} == NEVER | {"password", "password_ephemeral"}


def test_unchanged_file(config: Load, settings: DaemonSettings) -> None:
    """An unchanged file gives the same settings, so that nothing is replaced."""
    assert resolve(config(""), settings) == settings
    assert not for_the_api(settings, settings)


@pytest.mark.parametrize(
    ("text", "api"),
    [
        ("[http]\nworkers = 3\n", True),
        ('[http]\nhosts = ["example.com"]\n', True),
        ('[daemon]\nlog_level = "debug"\n', True),
        ('[daemon]\nshutdown_timeout = "1s"\n', False),
        ('[storage]\nmin_free_space = "1mb"\n', False),
        ('[storage]\nundo_window = "1s"\n', False),
    ],
)
def test_api_server_is_replaced_for_its_settings(config: Load, settings: DaemonSettings, text: str, api: bool) -> None:
    """The API server is replaced only if a setting that it reads changes."""
    assert for_the_api(settings, resolve(config(text), settings)) is api


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ('[http]\nlisten = ["127.0.0.1:1"]\n', "http.listen", 2),
        ('[http]\nsocket = "/tmp/x.sock"\n', "http.socket", 2),
        ('[http]\nproxy_socket = "/tmp/x.sock"\n', "http.proxy_socket", 2),
        ('[http]\nsocket = "ringward.sock"\nsocket_group = "root"\n', "http.socket_group", 3),
        ('[storage]\ndatabase = "postgresql://me@/runs"\n', "storage.database", 2),
        ('[storage]\ndatabase = "postgresql://localhost/x"\n', "storage.database", 2),
    ],
)
def test_unchangeable_settings(config: Load, settings: DaemonSettings, text: str, key: str, line: int) -> None:
    """A setting that cannot change is reported with its place, and keeps its old value."""
    other = config(text)
    desired = resolve(other, settings)
    assert [(problem.key, problem.line) for problem in unchangeable(other, settings, desired)] == [(key, line)]
    assert feasible(settings, desired) == settings


def test_command_line_overrides_the_file(config: Load, settings: DaemonSettings) -> None:
    """Command-line options override the file."""
    settings = replace(settings, overridden=["data_dir", "listen"], listen=[("127.0.0.1", 5)])
    other = config('[daemon]\ndata_dir = "/elsewhere"\n[http]\nlisten = ["127.0.0.1:1"]\n')
    assert resolve(other, settings) == settings


def test_data_directory(config: Load, settings: DaemonSettings) -> None:
    """Without a command-line option, a changed data directory in the file is reported as unchangeable."""
    settings = replace(settings, overridden=[])
    other = config('[daemon]\ndata_dir = "/elsewhere"\n')
    assert [problem.key for problem in unchangeable(other, settings, resolve(other, settings))] == ["daemon.data_dir"]


def test_command_line_address_stays_protected(config: Load, settings: DaemonSettings) -> None:
    """A reload that removes the protection of a command-line address is refused."""
    settings = replace(settings, overridden=["data_dir", "listen"], listen=[("192.0.2.1", 7464)])
    resolve(config('[http]\nbehind_proxy = ["192.0.2.0/24"]\n'), settings)
    with pytest.raises(ConfigError, match=r"--listen 192\.0\.2\.1:7464 is not a loopback address"):
        resolve(config(""), settings)


def test_password_file(config: Load, settings: DaemonSettings, tmp_path: Path) -> None:
    """A password file is read again.

    Without one, a generated password stays, and a password from a file is replaced by a generated one.
    """
    (tmp_path / "password").write_text("first password\n")
    text = '[http]\npassword_file = "password"\n'
    resolved = resolve(config(text), settings)
    assert (resolved.password, resolved.password_ephemeral) == ("first password", False)
    (tmp_path / "password").write_text("another password\n")
    assert resolve(config(text), resolved).password == "another password"
    assert resolve(config(""), resolved).password_ephemeral
    assert resolve(config(""), settings).password == settings.password
    (tmp_path / "password").write_text("short\n")
    with pytest.raises(ConfigError, match="shorter than"):
        resolve(config(text), resolved)
    assert (
        resolve(config(text), replace(settings, overridden=["data_dir", "password_file"])).password == settings.password
    )


def test_restarted_scheduler_follows_the_file(config: Load, settings: DaemonSettings) -> None:
    """A restarted scheduler applies the settings that it can, and warns about the rest."""
    replaced, warnings = follow(config('[http]\nworkers = 3\nlisten = ["127.0.0.1:1"]\n'), settings)
    assert (replaced.workers, replaced.listen) == (3, settings.listen)
    assert "http.listen: cannot change" in warnings[0]
    replaced, warnings = follow(config('[http]\npassword_file = "missing"\n'), settings)
    assert replaced == settings
    assert "No such file or directory" in warnings[0]
