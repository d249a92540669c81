"""Finding the configuration, the data directory and the socket."""

import os
from pathlib import Path

import pytest

from supervisor.config.files.lookup import (
    SYSTEM_FILE,
    candidates,
    data_dir,
    default_data_dir,
    find_config,
    find_data_dir,
    find_socket,
    require_config,
)
from supervisor.config.problems import ConfigError


def test_configuration_search_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration is the option's, else that of RINGWARD_CONFIG, else ./ringward.toml, else the system's."""
    monkeypatch.chdir(tmp_path)
    assert candidates({}) == ["ringward.toml", SYSTEM_FILE]
    (tmp_path / "ringward.toml").touch()
    assert find_config("x.toml", {"RINGWARD_CONFIG": "y.toml"}) == "x.toml"
    assert find_config(None, {"RINGWARD_CONFIG": "y.toml"}) == "y.toml"
    assert find_config(None, {}) == "ringward.toml"


def test_missing_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error for a missing configuration lists the searched places."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("supervisor.config.files.lookup.SYSTEM_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"no configuration found in ringward.toml and .*\n.*--config"):
        require_config(None, {})


def test_default_data_directory() -> None:
    """Root's default is the system's directory; others have one in XDG_STATE_HOME, unless that is a relative path."""
    home = os.path.expanduser("~")
    assert default_data_dir({}, 0) == "/var/lib/ringward"
    assert default_data_dir({"XDG_STATE_HOME": "/state"}, 1000) == "/state/ringward"
    assert default_data_dir({"XDG_STATE_HOME": "state"}, 1000) == f"{home}/.local/state/ringward"
    assert default_data_dir({}, 1000) == f"{home}/.local/state/ringward"


def test_data_option_overrides_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data directory is that of --data, else data_dir, else the default."""
    monkeypatch.chdir(tmp_path)
    assert data_dir("here", "/configured", {}) == str(tmp_path / "here")
    assert data_dir(None, "/configured", {}) == "/configured"


def test_socket_path(tmp_path: Path) -> None:
    """The socket is that of [http] socket, else ringward.sock in the data directory."""
    path = tmp_path / "r.toml"
    path.write_text("[daemon]\ndata_dir = 'd'\n")
    path.chmod(0o644)
    assert find_socket(str(path), None, {}) == str(tmp_path / "d" / "ringward.sock")
    assert find_socket(str(path), "/elsewhere", {}) == "/elsewhere/ringward.sock"
    path.write_text("[http]\nsocket = 'x.sock'\n")
    assert find_socket(str(path), "/elsewhere", {}) == str(tmp_path / "x.sock")


def test_broken_configuration_locates_the_daemon(tmp_path: Path) -> None:
    """A syntax error, an invalid key or bytes that are not UTF-8 do not hide `data_dir` and `socket`."""
    path = tmp_path / "r.toml"
    for text in (
        b"[daemon]\ndata_dir = 'd'\nshutdown_timeout = \n",
        b'[tasks.a\n[daemon] # where\ndata_dir = "d" # here\n',
        b"[tasks.a]\nrun = ['x',\n[daemon]\ndata_dir = 'd'\n",
        b"[tasks.a]\nrun = '''\n[daemon]\n  data_dir = 'd'\n",
        b"daemon.data_dir = 'd'\n[daemon\n",
        b"daemon = { data_dir = 'd' }\n[[[\n",
        b"[daemon]\n# data_dir = 'e'\ndata_dir = 'd'\ndata_dir = 'd'\n",
        b"[daemon]\ndata_dir = 'd'\n[tasks.a]\nrun = '\xff'\n",
        b"[daemon]\ndata_dir = 'd'\nport = 1\n[http]\nlisten = 3\nnonsense = true\n",
        b"[daemon]\ndata_dir = 'd'\n[http]\nsessions = " + b"9" * 5000 + b"\n",
        b"[daemon]\ndata_dir = 'd'\nnote = " + b"[" * 1000 + b" # data_dir\n",
    ):
        path.write_bytes(text)
        path.chmod(0o644)
        assert find_socket(str(path), None, {}) == str(tmp_path / "d" / "ringward.sock"), text
        assert find_data_dir(str(path), None, {}) == str(tmp_path / "d"), text
    path.write_bytes(b"[http]\nsocket = '${HERE}/x.sock'\n[tasks\n")
    assert find_socket(str(path), "/elsewhere", {"HERE": "/run"}) == "/run/x.sock"


def test_broken_configuration_without_data_dir(tmp_path: Path) -> None:
    """A broken configuration without `data_dir` gives the default, as it does for the daemon."""
    path = tmp_path / "r.toml"
    path.write_text("[tasks.a]\ndata_dir = 'x'\n[daemon\n")
    path.chmod(0o644)
    assert find_data_dir(str(path), None, {}) == default_data_dir({}, os.geteuid())


def test_unreadable_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable data_dir is an error, so no client asks the wrong daemon; --data replaces the file."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "ringward.toml"
    for text in ("[daemon]\ndata_dir = /srv\n", "[daemon]\ndata_dir = 3\n", "[daemon]\ndata_dir = '${NONE}'\n"):
        path.write_text(text)
        path.chmod(0o644)
        assert find_socket(None, "/elsewhere", {}) == "/elsewhere/ringward.sock"
        for config, data in ((None, None), (str(path), "/elsewhere")):
            with pytest.raises(ConfigError, match=r"toml:2:.*daemon\.data_dir: "):
                find_socket(config, data, {})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root distrusts files")
def test_root_distrusts_writable_files(tmp_path: Path) -> None:
    """Root's clients follow a file that others can write only to paths that belong to root."""
    path, place = tmp_path / "r.toml", tmp_path / "d"
    place.mkdir()
    path.write_text("[daemon]\ndata_dir = 'd'\n")
    path.chmod(0o666)
    assert find_data_dir(str(path), None, {}) == str(place)
    os.chown(place, 12345, 12345)
    with pytest.raises(ConfigError, match="writable by everybody"):
        find_data_dir(str(path), None, {})
