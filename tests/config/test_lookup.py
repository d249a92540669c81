"""Finding the configuration, the data directory and the socket."""

import os
from pathlib import Path

import pytest

from supervisor.config.lookup import (
    SYSTEM_FILE,
    candidates,
    data_dir,
    default_data_dir,
    find_config,
    find_socket,
    require_config,
)
from supervisor.config.problems import ConfigError


def test_the_configuration_is_looked_for_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option, else RINGWARD_CONFIG, else ./ringward.toml, else the system's."""
    monkeypatch.chdir(tmp_path)
    assert candidates({}) == ["ringward.toml", SYSTEM_FILE]
    (tmp_path / "ringward.toml").touch()
    assert find_config("x.toml", {"RINGWARD_CONFIG": "y.toml"}) == "x.toml"
    assert find_config(None, {"RINGWARD_CONFIG": "y.toml"}) == "y.toml"
    assert find_config(None, {}) == "ringward.toml"


def test_a_missing_configuration_is_told_with_the_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts the daemon without one learns where one is expected."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("supervisor.config.lookup.SYSTEM_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"looked for ringward.toml and .*\n.*--config"):
        require_config(None, {})


def test_the_data_directory_defaults_by_user() -> None:
    """Root has the system's, others one below XDG_STATE_HOME, relative values of which are ignored."""
    home = os.path.expanduser("~")
    assert default_data_dir({}, 0) == "/var/lib/ringward"
    assert default_data_dir({"XDG_STATE_HOME": "/state"}, 1000) == "/state/ringward"
    assert default_data_dir({"XDG_STATE_HOME": "state"}, 1000) == f"{home}/.local/state/ringward"
    assert default_data_dir({}, 1000) == f"{home}/.local/state/ringward"


def test_the_option_wins_over_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--data, else data_dir, else the default."""
    monkeypatch.chdir(tmp_path)
    assert data_dir("here", "/configured", {}) == str(tmp_path / "here")
    assert data_dir(None, "/configured", {}) == "/configured"


def test_the_socket_follows_configuration_and_data_directory(tmp_path: Path) -> None:
    """[http] socket, else ringward.sock in the data directory."""
    path = tmp_path / "r.toml"
    path.write_text("[daemon]\ndata_dir = 'd'\n")
    path.chmod(0o644)
    assert find_socket(str(path), None, {}) == str(tmp_path / "d" / "ringward.sock")
    assert find_socket(str(path), "/elsewhere", {}) == "/elsewhere/ringward.sock"
    path.write_text("[http]\nsocket = 'x.sock'\n")
    assert find_socket(str(path), "/elsewhere", {}) == str(tmp_path / "x.sock")


def test_who_names_the_data_directory_needs_no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is being edited keeps nobody from stopping what runs, unless it was named itself."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "ringward.toml"
    path.write_text("[daemon\n")
    path.chmod(0o644)
    assert find_socket(None, "/elsewhere", {}) == "/elsewhere/ringward.sock"
    for config, data in ((None, None), (str(path), "/elsewhere")):
        with pytest.raises(ConfigError):
            find_socket(config, data, {})
