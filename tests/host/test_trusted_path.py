"""Users who can change the target of a path."""

import errno
import os
from pathlib import Path

import pytest

from supervisor.host.files import exposed

OWNERS = {0, os.geteuid()}
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "environment" / "bin" / "python"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def test_path_of_the_owner(program: Path) -> None:
    """A path below a sticky directory is accepted, as long as each of its components belongs to the owners."""
    assert exposed(str(program), OWNERS) is None
    shared = program.parent.parent
    shared.chmod(0o1777)
    assert exposed(str(program), OWNERS) is None


@pytest.mark.parametrize(
    ("mode", "reason", "remedy"),
    [
        (0o777, "is writable by everyone (mode 0777)", "chmod go-w {path}"),
        (0o775, f"is writable by group {os.getegid()} (mode 0775)", "chmod g-w {path}"),
    ],
)
def test_writable_parent(program: Path, mode: int, reason: str, remedy: str) -> None:
    """The first directory on the path that others can write to is named, with the command that changes it."""
    above = program.parent.parent
    above.chmod(mode)
    exposed_path = exposed(str(program), OWNERS)
    assert exposed_path is not None
    assert str(exposed_path) == f"{above} {reason}; run: {remedy.format(path=above)}"


@AS_ROOT
def test_component_of_another_user(program: Path) -> None:
    """A file, a directory or a link of a user who is not among the owners is named; for a link, with chown -h."""
    os.chown(program.parent, 65534, 65534)
    exposed_path = exposed(str(program), {0})
    assert exposed_path is not None
    assert str(exposed_path) == f"{program.parent} belongs to user 65534; run: chown root {program.parent}"
    assert exposed(str(program), {0, 65534}) is None
    os.chown(program.parent, 0, 0)
    link = program.with_name("link")
    link.symlink_to("python")
    os.chown(link, 65534, 65534, follow_symlinks=False)
    exposed_path = exposed(str(link), {0})
    assert exposed_path is not None
    assert (exposed_path.path, exposed_path.remedy) == (str(link), f"chown -h root {link}")


@pytest.mark.parametrize("target", ["{}/open/real", "../open/real", "two"])
@pytest.mark.usefixtures("program")
def test_links_are_followed(tmp_path: Path, target: str) -> None:
    """The directories on the way of each link count, whether it is absolute, relative, or leads to another link."""
    real = tmp_path / "open" / "real"
    real.parent.mkdir()
    real.touch()
    places = tmp_path / "environment"
    (places / "two").symlink_to(real)
    (places / "one").symlink_to(target.format(tmp_path))
    assert exposed(str(places / "one"), OWNERS) is None
    real.parent.chmod(0o777)
    exposed_path = exposed(str(places / "one"), OWNERS)
    assert exposed_path is not None
    assert exposed_path.path == str(real.parent)


def test_missing_file(program: Path) -> None:
    """A file that does not exist is exposed where others can create it, even below the sticky bit."""
    missing = program.parent / "missing" / "below"
    assert exposed(str(missing), OWNERS) is None
    program.parent.chmod(0o1777)
    exposed_path = exposed(str(missing), OWNERS)
    assert exposed_path is not None
    assert exposed_path.path == str(program.parent)


def test_circular_links(program: Path) -> None:
    """Links that lead to each other are an error, as for the kernel."""
    loop = program.with_name("loop")
    loop.symlink_to("loop")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        exposed(str(loop), OWNERS)
