"""The version of what is built, and its order in packages."""

import subprocess
from pathlib import Path

import pytest
from packaging.version import Version

from deploy.version import SOURCE, next_version, package_version, source, version
from tests.support.host_features import require

GIT = ("git", "-c", "user.name=A", "-c", "user.email=a@example.org")
BETWEEN = "0.3.0.dev4+gabc1234"


def git(place: Path, *arguments: str) -> str:
    return subprocess.run([*GIT, "-C", place, *arguments], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone just after the release of 0.2.0."""
    (tmp_path / "supervisor").mkdir()
    git(tmp_path, "init", "--quiet")
    write(tmp_path, "0.2.0")
    git(tmp_path, "tag", "v0.2.0")
    write(tmp_path, next_version("0.2.0"))
    return tmp_path


def write(place: Path, text: str) -> None:
    (place / SOURCE).write_text(source(text))
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--message", text)


def test_version_between_releases(clone: Path) -> None:
    """Between releases, the version counts the commits since the release's tag and names the commit."""
    git(clone, "commit", "--quiet", "--allow-empty", "--message", "One more")
    commit = git(clone, "rev-parse", "--short=7", "HEAD")
    assert version(clone) == f"0.3.0.dev2+g{commit}"
    (clone / SOURCE).write_text(source("0.3.0.dev0") + "# an edit\n")
    assert version(clone) == f"0.3.0.dev2+g{commit}.dirty"


def test_version_without_a_tag(clone: Path) -> None:
    """Before the first tag, all commits count."""
    git(clone, "tag", "--delete", "v0.2.0")
    assert version(clone).startswith("0.3.0.dev2+g")


def test_version_of_a_release(clone: Path) -> None:
    """A release has exactly its version."""
    git(clone, "checkout", "--quiet", "v0.2.0")
    assert version(clone) == "0.2.0"


def test_version_without_git(clone: Path) -> None:
    """Sources without a repository, or with a damaged one, have the version that is written in them."""
    (clone / ".git/HEAD").unlink()
    assert version(clone) == "0.3.0.dev0"
    (clone / ".git").rename(clone / "git")
    assert version(clone) == "0.3.0.dev0"


def test_order_in_python() -> None:
    """In Python, a version between releases is after the former release and before the next one."""
    assert Version("0.2.0") < Version(BETWEEN) < Version("0.3.0")


def test_order_in_packages() -> None:
    """For dpkg and rpm, a version between releases is after the former release and before the next one."""
    assert package_version("0.3.0") == "0.3.0"
    assert package_version(BETWEEN) == "0.3.0~dev4"
    require("dpkg", "rpm")
    for older, newer in (("0.2.0", "0.3.0~dev4"), ("0.3.0~dev4", "0.3.0~dev10"), ("0.3.0~dev10", "0.3.0")):
        assert subprocess.run(["dpkg", "--compare-versions", f"{older}-1", "lt", f"{newer}-1"]).returncode == 0
        compared = ["rpm", "--eval", f'%{{lua:print(rpm.vercmp("{older}", "{newer}"))}}']
        assert subprocess.run(compared, capture_output=True, text=True).stdout == "-1\n"
