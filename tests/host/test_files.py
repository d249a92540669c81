"""Private files, their replacement, and parents that exist."""

import errno
import os
import stat
from pathlib import Path

import pytest

from supervisor.host.files import nearest_existing, replace_file


@pytest.mark.parametrize("durable", [False, True])
def test_replaced_file_is_private(tmp_path: Path, durable: bool) -> None:
    """A file is replaced as a whole, is readable only by its owner, and can contain names that are not UTF-8."""
    path = tmp_path / "state"
    path.write_text("a longer text than the new one")
    replace_file(str(path), "name \udcff", durable=durable)
    assert path.read_bytes() == b"name \xff"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["state"]


def test_link_is_not_followed(tmp_path: Path) -> None:
    """A link in place of the new content is an error, and its target keeps its content."""
    target = tmp_path / "target"
    target.write_text("own")
    (tmp_path / "state.new").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links") as caught:
        replace_file(str(tmp_path / "state"), "content")
    assert caught.value.errno == errno.ELOOP
    assert target.read_text() == "own"


def test_relative_paths_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is in the working directory, which is also its nearest existing parent."""
    monkeypatch.chdir(tmp_path)
    replace_file("state", b"content", durable=True)
    assert (tmp_path / "state").read_bytes() == b"content"
    assert nearest_existing("absent/file") == "."


def test_mode_of_a_replaced_file(tmp_path: Path) -> None:
    """The file has exactly the given mode, whatever the umask and a leftover of an earlier attempt."""
    (tmp_path / "state.new").touch(0o600)
    before = os.umask(0o077)
    try:
        replace_file(str(tmp_path / "state"), "content", mode=0o644)
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(tmp_path / "state").st_mode) == 0o644


def test_nearest_existing_parent(tmp_path: Path) -> None:
    """The nearest existing parent of a path is found; a path that exists is its own."""
    path = tmp_path / "absent" / "file"
    assert nearest_existing(str(path)) == str(tmp_path)
    assert nearest_existing(str(tmp_path)) == str(tmp_path)
