"""``python -m deploy.version``: print the version of these sources.

``supervisor/version.py`` has the version of a release, or between releases that of the next one with ``.dev0``. A build
of a clone between releases gets the number of commits since the release's tag, and the commit:
``0.3.0.dev4+gabc1234``.
"""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = "supervisor/version.py"
_NEXT = ".dev0"


def source(version: str) -> str:
    """Return the contents of ``supervisor/version.py`` for a version."""
    return f'"""The product\'s version, the only place where it is written."""\n\nVERSION = "{version}"\n'


def version(root: Path = ROOT) -> str:
    """Return the version of the sources; it stays ``.dev0`` outside of a clone, and where git does not read it."""
    known: dict[str, str] = {}
    exec((root / SOURCE).read_text(encoding="utf-8"), known)  # noqa: S102 - our own file
    written = known["VERSION"]
    if not written.endswith(_NEXT) or not (root / ".git").exists():
        return written
    try:
        count = _git(root, "rev-list", "--count", "HEAD", "--not", "--tags=v*")
        commit = _git(root, "describe", "--always", "--abbrev=7", "--exclude=*", "--dirty=.dirty")
    except (OSError, subprocess.CalledProcessError):
        return written
    return f"{written.removesuffix(_NEXT)}.dev{count}+g{commit}"


def package_version(version: str) -> str:
    """Return the version for dpkg and rpm, where only ``~`` sorts before the release: ``0.3.0~dev4``."""
    return version.partition("+")[0].replace(".dev", "~dev")


def next_version(version: str) -> str:
    """Return the version after a release: that of the next minor release, with ``.dev0``."""
    major, minor, _ = version.split(".")
    return f"{major}.{int(minor) + 1}.0{_NEXT}"


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    print(version())
