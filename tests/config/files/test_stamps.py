import os
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.config.files.stamps import has_same_zone, is_current
from supervisor.config.load import load

MAIN = '[daemon]\ninclude = ["conf.d/*.toml"]\n[tasks.t]\nrun = "true"\nsecrets = { TOKEN = "${file:token}" }\n'


def secure(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


@pytest.fixture
def main(tmp_path: Path) -> Path:
    (tmp_path / "conf.d").mkdir()
    secure(tmp_path / "conf.d" / "a.toml", '[tasks.a]\nrun = "true"\n')
    secure(tmp_path / "token", "secret-secret\n")
    secure(tmp_path / "ringward.toml", MAIN)
    return tmp_path / "ringward.toml"


def other_time(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def replaced(path: Path) -> None:
    new = path.parent / "new"
    new.write_bytes(path.read_bytes())
    new.replace(path)


CHANGES: dict[str, Callable[[Path], None]] = {
    "the main file": other_time,
    "an included file": lambda main: other_time(main.parent / "conf.d/a.toml"),
    "a substituted file": lambda main: other_time(main.parent / "token"),
    "one file more": lambda main: secure(main.parent / "conf.d/b.toml", ""),
    "one file less": lambda main: (main.parent / "conf.d/a.toml").unlink(),
    "the main file is gone": lambda main: main.unlink(),
    "another file in its place": replaced,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_files(main: Path, change: Callable[[Path], None]) -> None:
    """Any change of the files that a configuration was read from makes it stale."""
    config = load(str(main), os.environ)
    assert is_current(config)
    change(main)
    assert not is_current(config)


@pytest.mark.parametrize(("daemon", "stays"), [("", False), ('timezone = "UTC"\n', True)])
def test_changed_host_zone(main: Path, monkeypatch: pytest.MonkeyPatch, daemon: str, stays: bool) -> None:
    """A changed time zone of the host makes the configuration stale unless the daemon's zone is set."""
    secure(main, f'[daemon]\n{daemon}[tasks.t]\nrun = "true"\n')
    monkeypatch.setenv("TZ", "Europe/Prague")
    config = load(str(main))
    assert is_current(config)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert is_current(config) is has_same_zone(config) is stays


def test_unrelated_files(main: Path) -> None:
    """Files that the configuration does not read do not make it stale."""
    config = load(str(main), os.environ)
    secure(main.parent / "conf.d" / "notes.txt", "hello")
    secure(main.parent / "other.toml", "")
    assert is_current(config)


def test_file_that_includes_itself(main: Path) -> None:
    """A main file that matches its own globs is not included, and not missed."""
    secure(main, '[daemon]\ninclude = ["*.toml"]\n[tasks.t]\nrun = "true"\n')
    config = load(str(main), os.environ)
    assert config.files == (str(main),)
    assert is_current(config)
