"""Parent directories that the daemon creates."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.startup import data_directory
from supervisor.startup.refusal import NotStarted
from supervisor.tools.service import plan_files
from supervisor.tools.service.plan import File


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize(
    "make",
    [lambda path: data_directory.prepare(str(path)), lambda path: plan_files.put(str(path), File(str(path), "text"))],
    ids=["data", "service"],
)
def test_parents_are_not_writable(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Only the owner can write into created parent directories, under any umask, or others could rename entries."""
    make(tmp_path / "a" / "b" / "c")
    for parent in (tmp_path / "a", tmp_path / "a" / "b"):
        assert parent.stat().st_mode & 0o022 == 0, parent


def test_dangling_link(tmp_path: Path) -> None:
    """The error for a dangling link on the path names the link."""
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(NotStarted, match="link"):
        data_directory.prepare(str(tmp_path / "link" / "below" / "data"))
