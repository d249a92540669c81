"""``python -m deploy.release.release VERSION [--dry-run]``: release a version; ``make release VERSION=…`` calls it.

1. Check that the version follows the last one, the clone has no changes, and the change log has an entry for it.
2. Write the version and the date into ``supervisor/version.py`` and ``CHANGELOG.rst``, and commit.
3. Run the checks, bundle the dashboard, and build all artefacts into ``dist/``, with their SHA-256 in ``SHA256SUMS``.
   The committer is the maintainer of the packages, unless ``DEBFULLNAME``, ``DEBEMAIL`` or ``RPM_PACKAGER`` say
   otherwise: users report vulnerabilities to that address.
4. Tag the commit. Nothing is pushed or uploaded.
5. Write the version of the next minor release with ``.dev0`` into ``supervisor/version.py``, and commit.

With ``--dry-run``, it checks the first step and prints the others. If a check fails after the commit, there is no tag:
correct the cause and amend the commit, or remove it with ``git reset --keep HEAD~1``.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from packaging.version import InvalidVersion, Version

from deploy.release.lock import ROOT
from deploy.version import SOURCE, next_version, source

CHECKS = ("lint", "test", "test-packages", "audit")
ARTEFACTS = ("bundle", "dist", "deb", "rpm", "zipapp")
_UNRELEASED = "(unreleased)"
_SEMVER = re.compile(r"(?:0|[1-9]\d*)(?:\.(?:0|[1-9]\d*)){2}")


class Refused(Exception):
    """The release cannot be made."""


def git(*arguments: str) -> str:
    """Run git in the repository; return its output."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def check(version: str) -> None:
    """Check that this version can be released.

    Raises:
        Refused: it cannot; the message has the cause and the remedy.
    """
    if not _SEMVER.fullmatch(version):
        raise Refused(f"{version!r} is no version: write three numbers, such as 0.2.0")
    if git("status", "--porcelain"):
        raise Refused("the clone has changes: commit them, or remove them")
    tags = git("tag", "--list", "v*").split()
    if f"v{version}" in tags:
        raise Refused(f"version {version} has a tag: choose a later version")
    for tag in tags:
        try:
            later = Version(version) > Version(tag)
        except InvalidVersion:
            continue
        if not later:
            raise Refused(f"version {version} is not later than {tag[1:]}: choose a later version")
    if f"\n{version} {_UNRELEASED}\n" not in change_log().read_text(encoding="utf-8"):
        raise Refused(f"CHANGELOG.rst has no entry {version} {_UNRELEASED}: write it")


def change_log() -> Path:
    """Return the path of the change log."""
    return ROOT / "CHANGELOG.rst"


def write(version: str, date: str) -> None:
    """Write the version and the date into the sources."""
    (ROOT / SOURCE).write_text(source(version), encoding="utf-8")
    log = change_log()
    title = f"{version} ({date})"
    text = re.sub(
        rf"^{re.escape(version)} \(unreleased\)\n-+$",
        f"{title}\n{'-' * len(title)}",
        log.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    log.write_text(text, encoding="utf-8")


def sums(place: Path) -> None:
    """Write ``SHA256SUMS``, which ``sha256sum --check`` reads."""
    files = sorted(path for path in place.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (place / "SHA256SUMS").write_text("".join(lines))


def maintainer() -> dict[str, str]:
    """Return the variables that name the maintainer of the packages."""
    name, _, address = git("var", "GIT_COMMITTER_IDENT").rpartition(">")[0].partition(" <")
    chosen = {"DEBFULLNAME": name, "DEBEMAIL": address, "RPM_PACKAGER": f"{name} <{address}>"}
    return {variable: os.environ.get(variable, text) for variable, text in chosen.items()}


def release(version: str, checks: tuple[str, ...] = CHECKS, artefacts: tuple[str, ...] = ARTEFACTS) -> None:
    """Release the version."""
    check(version)
    write(version, f"{datetime.now(UTC):%Y-%m-%d}")
    git("commit", "--all", "--quiet", "--message", f"Release {version}")
    for target in (*checks, "clean-dist", *artefacts):
        subprocess.run(["make", target], cwd=ROOT, env={**os.environ, **maintainer()}, check=True)  # noqa: S607
    sums(ROOT / "dist")
    git("tag", "--annotate", f"v{version}", "--message", f"Ringward {version}")
    (ROOT / SOURCE).write_text(source(next_version(version)), encoding="utf-8")
    git("commit", "--all", "--quiet", "--message", f"Begin {next_version(version)}")
    print(f"Released {version}: tag v{version}, files in dist/. To publish: git push --follow-tags")


def main() -> int:
    """Read the arguments; return the exit status."""
    parser = argparse.ArgumentParser(prog="make release")
    parser.add_argument("version")
    parser.add_argument("--dry-run", action="store_true", help="check whether the release is possible")
    told = parser.parse_args()
    try:
        if told.dry_run:
            check(told.version)
            print(f"write {told.version} to supervisor/version.py and CHANGELOG.rst, and commit")
            print(f"make {' '.join((*CHECKS, *ARTEFACTS))}")
            print(f"git tag --annotate v{told.version}")
            print(f"write {next_version(told.version)} to supervisor/version.py, and commit")
        else:
            release(told.version)
    except Refused as err:
        print(f"release: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
