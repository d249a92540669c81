"""Fixtures that call the command line in this process, with a fake daemon."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from supervisor.cli.main import cli
from tests.support.fake_daemon import FakeDaemon, serving

Ringward = Callable[..., Result]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the configuration, environment and daemon of this machine from the test."""
    for name in list(os.environ):
        if name.startswith("RINGWARD_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("supervisor.config.files.lookup.SYSTEM_FILE", str(tmp_path / "none.toml"))
    default = str(tmp_path / "data")
    monkeypatch.setattr("supervisor.config.files.lookup.SYSTEM_DATA", default)
    monkeypatch.setattr("supervisor.config.files.lookup.default_data_dir", lambda _environ, _euid: default)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def daemon(data: Path) -> Iterator[FakeDaemon]:
    with serving(data / "ringward.sock") as fake:
        yield fake


@pytest.fixture
def ringward(data: Path) -> Ringward:
    """Call the command line with this test's data directory."""

    def call(*args: str, plain: bool = False) -> Result:
        arguments = list(args) if plain else ["--data", str(data), *args]
        return CliRunner().invoke(cli, arguments, prog_name="ringward")

    return call
