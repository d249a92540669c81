"""Directories above a path to be made."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.startup import data_directory
from supervisor.startup.refusal import NotStarted
from supervisor.tools.service import placing
from supervisor.tools.service.plan import File


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize(
    "make",
    [lambda path: data_directory.prepare(str(path)), lambda path: placing.put(str(path), File(str(path), "text"))],
    ids=["data", "service"],
)
def test_no_other_user_can_replace_it(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Whatever the umask: a user who can write into a parent directory could rename its entries."""
    make(tmp_path / "a" / "b" / "c")
    for parent in (tmp_path / "a", tmp_path / "a" / "b"):
        assert parent.stat().st_mode & 0o022 == 0, parent


def test_what_is_no_directory(tmp_path: Path) -> None:
    """It is named."""
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(NotStarted, match="link"):
        data_directory.prepare(str(tmp_path / "link" / "below" / "data"))
