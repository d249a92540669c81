"""Files of the configuration: includes, their encoding, and who may write them."""

import errno
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.config.load import load
from supervisor.config.model import Config
from supervisor.config.problems import ConfigError
from tests.config.conftest import Write

Load = Callable[..., Config]


def test_includes(write: Write, tmp_path: Path) -> None:
    """Globs are read in order, each file once without the main file, and paths start from the included file."""
    write('[tasks.one]\nrun = "x"\nworking_dir = "w"\n', "conf.d/1.toml")
    write('[services.two]\nrun = "x"\n', "conf.d/2.toml")
    main = write(
        """
        [daemon]
        include = ["conf.d/*.toml", "conf.d/1.toml", "*.toml", "none/*.toml"]
        [defaults]
        group = "g"
        """
    )
    loaded = load(str(main), {})
    assert (list(loaded.tasks), list(loaded.services)) == (["one"], ["two"])
    assert loaded.tasks["one"].working_dir == str(tmp_path / "conf.d" / "w")
    assert loaded.tasks["one"].group == "g"
    assert loaded.files == (str(main), str(tmp_path / "conf.d/1.toml"), str(tmp_path / "conf.d/2.toml"))


def test_unreadable_directory_of_a_glob(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A glob in a directory that cannot be read is an error: a reload would remove the tasks of its files."""
    write('[tasks.one]\nrun = "x"\n', "conf.d/1.toml")
    main = write('[daemon]\ninclude = ["conf.d/*.toml", "*/none/*.toml"]\n')
    scandir = os.scandir

    def refuse(path: str | int) -> object:
        if isinstance(path, int) or os.path.basename(os.path.normpath(path)) == "conf.d":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(ConfigError) as caught:
        load(str(main), {})
    (problem,) = caught.value.problems
    assert "daemon.include[0]: cannot list the directory (Permission denied): " in str(problem)


def test_unreadable_link_of_a_glob(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A symbolic link that a glob matches and that cannot be read, as in /proc, is an error with the path."""
    main = write('[daemon]\ninclude = ["conf.d/*"]\n[tasks.one]\nrun = "x"\n')
    (tmp_path / "conf.d").mkdir()
    link = tmp_path / "conf.d" / "cwd"
    link.symlink_to(tmp_path / "nowhere")
    readlink = os.readlink

    def refuse(path: str) -> str:
        if path == str(link):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return readlink(path)

    monkeypatch.setattr(os, "readlink", refuse)
    with pytest.raises(ConfigError) as caught:
        load(str(main), {})
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"{link}: cannot be read")


def test_errors_of_all_files(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The errors of all files are reported at once, in order of files and lines, with each file's path as given."""
    main = write(
        """\
[daemon]
include = ["conf.d/*.toml", "missing.toml"]
[tasks.a]
timeout = 5
run = "x"
"""
    )
    write('[tasks.a]\nrun = "x"\n[daemon]\nlog_level = "info"\n', "conf.d/1.toml")
    write("[tasks", "conf.d/2.toml")
    monkeypatch.chdir(main.parent)
    with pytest.raises(ConfigError) as caught:
        load("ringward.toml", {})
    shown = [str(problem).split("\n")[0] for problem in caught.value.problems]
    assert shown == [
        "ringward.toml:2: daemon.include[1]: no such file: missing.toml",
        'ringward.toml:4: tasks.a.timeout: must be a duration such as "30s" or "1h30m", not 5',
        "conf.d/1.toml:1: tasks.a: the name is already defined at ringward.toml:3",
        "conf.d/1.toml:3: daemon: is not allowed in an included file",
        "conf.d/2.toml:1:7: expected ']' at the end of a table declaration",
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"[tasks.a]\nrun = '\xff'\n", ":2: is not UTF-8"),
        (b"a = " + b"[" * 100_000, ""),
        (b"a" + b".a" * 5000 + b" = 1", "nested too deeply"),
        (b"x" * (4 * 1024 * 1024 + 1), "larger than"),
    ],
)
def test_unreadable_content(write: Write, data: bytes, expected: str) -> None:
    """Wrong encodings, deep nesting and huge files are reported like all other errors."""
    path = write("")
    path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load(str(path), {})
    assert expected in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    """A missing file, a directory or a FIFO is an error, and the loader does not wait."""
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", "pipe", "."):
        with pytest.raises(ConfigError, match="cannot be read"):
            load(str(tmp_path / name), {})


def test_byte_order_mark(write: Write) -> None:
    """A file that begins with a byte order mark is read."""
    path = write("")
    path.write_bytes(b"\xef\xbb\xbf[tasks.a]\nrun = 'x'\n")
    assert list(load(str(path), {}).tasks) == ["a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root trusts no other user")
def test_root_follows_only_its_own_files(write: Write) -> None:
    """A file that another user can change is refused with the command that corrects it, included files too."""
    main = write("[daemon]\ninclude = ['sub/*.toml']\n")
    extra = write("", "sub/extra.toml")
    main.chmod(0o664)
    with pytest.raises(ConfigError, match=f"writable by its group .*\n.*chmod go-w {main}"):
        load(str(main), {})
    main.chmod(0o646)
    with pytest.raises(ConfigError, match=f"writable by everybody .*\n.*chmod go-w {main}"):
        load(str(main), {})
    main.chmod(0o644)
    os.chown(extra, 12345, 0)
    with pytest.raises(ConfigError, match=f"belongs to user 12345.*\n.*chown root {extra}"):
        load(str(main), {})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
@pytest.mark.parametrize("key", ["env_file", "secrets_file"])
@pytest.mark.parametrize(
    ("owner", "mode", "user", "who"),
    [
        (0, 0o600, "", None),
        (0, 0o666, "", "everybody"),
        (65534, 0o600, "", "user 65534"),
        (65534, 0o600, "nobody", None),
        (65534, 0o664, "nobody", None),
        (65534, 0o600, "65534:1", None),
        (65534, 0o600, "daemon", "user 65534"),
        (1, 0o620, "nobody", "user 1"),
    ],
)
def test_writable_file_of_variables(config: Load, key: str, owner: int, mode: int, user: str, who: str | None) -> None:
    """A file of variables that another user than root and the unit's can change is a warning, also in [defaults]."""
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/variables"
        Path(path).write_text("NAME=long enough\n")
        os.chown(path, owner, owner)
        os.chmod(path, mode)
        keys = f"{key} = {json.dumps(path)}\n" + (f'user = "{user}"\n' if user else "")
        for text in (f'[tasks.a]\nrun = "true"\n{keys}', f'[defaults]\n{keys}[services.a]\nrun = "true"\n'):
            found = [warning.message for warning in config(text).warnings]
            assert found == ([] if who is None else [f"{path} can be changed by {who}"])


def test_file_of_variables_in_a_shared_directory(config: Load, tmp_path: Path) -> None:
    """A directory in which everybody can replace the file of variables is a warning, unless it is sticky."""
    path = tmp_path / "shared" / "variables"
    path.parent.mkdir()
    path.write_text("NAME=1\n")
    path.chmod(0o600)
    text = f'[tasks.a]\nrun = "true"\nenv_file = "{path}"\n'
    path.parent.chmod(0o777)
    (warning,) = config(text).warnings
    assert (warning.key, warning.message) == ("tasks.a.env_file", f"{path.parent} can be changed by everybody")
    path.parent.chmod(0o1777)
    assert config(text).warnings == ()
