"""``make release``, in a clone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.release import release
from tests.support.paths import ROOT

WHO = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}
LOG = """Changelog
=========

0.2.0 (unreleased)
------------------

* Something.

0.1.0 (2026-01-01)
------------------
"""
NEXT = "999.0.0"
TARGETS = "lint test:\n\t@echo $@ >> ran\nclean-dist:\n\t@rm -rf dist\ndist deb:\n\t@mkdir -p dist; echo $@ > dist/$@\n"


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository with a change log, a version and targets of make."""
    for name, value in WHO.items():
        monkeypatch.setenv(name, value)
    place = tmp_path / "clone"
    for name, text in {
        "CHANGELOG.rst": LOG,
        "Makefile": TARGETS,
        ".gitignore": "dist\nran\n",
        "supervisor/version.py": 'VERSION = "0.1.0"\n',
    }.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    monkeypatch.setattr(release, "ROOT", place)
    release.git("init", "--quiet")
    release.git("add", "--all")
    release.git("commit", "--quiet", "--message", "Begin")
    release.git("tag", "v0.1.0")
    return place


def test_release(clone: Path) -> None:
    """A release writes version and date, runs the checks, builds the artefacts with their sums, and tags the commit.

    The next commit begins the next minor release.
    """
    release.release("0.2.0", ("lint", "test"), ("dist", "deb"))
    assert 'VERSION = "0.2.0"' in release.git("show", "v0.2.0:supervisor/version.py")
    assert 'VERSION = "0.3.0.dev0"' in (clone / "supervisor/version.py").read_text()
    head = (clone / "CHANGELOG.rst").read_text().splitlines()[3:5]
    assert head[0].startswith("0.2.0 (20")
    assert head[1] == "-" * len(head[0])
    assert (clone / "ran").read_text() == "lint\ntest\n"
    result = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=clone / "dist", capture_output=True, text=True)
    assert result.stdout == "deb: OK\ndist: OK\n"
    assert release.git("log", "-1", "--format=%s", "v0.2.0") == "Release 0.2.0"
    assert release.git("status", "--porcelain") == ""


def test_committer_is_the_maintainer(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages name the committer as the maintainer who receives reports, unless a variable names another one."""
    (clone / "Makefile").write_text(
        'lint:\n\t@echo "$$DEBFULLNAME, $$DEBEMAIL, $$RPM_PACKAGER" >> ran\nclean-dist:\n\t@mkdir -p dist\n'
    )
    release.git("commit", "--all", "--quiet", "--message", "Tell the maintainer")
    monkeypatch.setenv("DEBFULLNAME", "B")
    release.release("0.2.0", ("lint",), ())
    assert (clone / "ran").read_text() == "B, a@example.org, A <a@example.org>\n"


def test_release_has_the_bundle() -> None:
    """The dashboard is bundled before the first artefact, which then contains the bundle."""
    assert release.ARTEFACTS[0] == "bundle"


def test_failed_check_leaves_no_tag(clone: Path) -> None:
    """A failed check leaves the commit without a tag."""
    (clone / "Makefile").write_text("lint:\n\t@false\n")
    release.git("commit", "--all", "--quiet", "--message", "Break")
    with pytest.raises(subprocess.CalledProcessError):
        release.release("0.2.0", ("lint",), ())
    assert release.git("tag", "--list") == "v0.1.0"


@pytest.mark.parametrize(
    ("version", "cause"),
    [
        ("0.2", "no version: write three numbers"),
        ("v0.2.0", "no version: write three numbers"),
        ("0.1.0", "has a tag"),
        ("0.0.9", "not later than 0.1.0"),
        ("0.3.0", r"no entry 0\.3\.0 \(unreleased\)"),
    ],
)
@pytest.mark.usefixtures("clone")
def test_refused_release(version: str, cause: str) -> None:
    """A version that is invalid, not the next one, or missing in the change log is refused with the remedy."""
    with pytest.raises(release.Refused, match=cause):
        release.check(version)


def test_uncommitted_changes_are_refused(clone: Path) -> None:
    """A clone with uncommitted changes is refused."""
    (clone / "new").touch()
    with pytest.raises(release.Refused, match="has changes: commit them"):
        release.check("0.2.0")


def test_dry_run_changes_nothing(tmp_path: Path) -> None:
    """In a clone, even of a release, a dry run lists the steps of the next release and changes nothing."""
    if not (ROOT / ".git").exists():
        pytest.skip("these sources are no clone")
    place = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--no-local", "--depth=1", f"file://{ROOT}", place], check=True)
    env = {**os.environ, **WHO}
    log = place / "CHANGELOG.rst"
    log.write_text(f"\n{NEXT} (unreleased)\n------------------\n\n{log.read_text()}")
    subprocess.run(["git", "commit", "--all", "--quiet", "--message", "Begin"], cwd=place, check=True, env=env)
    command = [sys.executable, "-m", "deploy.release.release", NEXT, "--dry-run"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert f"write {NEXT} to supervisor/version.py" in done.stdout
    status = ["git", "-C", str(place), "status", "--porcelain"]
    assert subprocess.run(status, capture_output=True, text=True).stdout == ""
