"""``python -m tests.pythons [VERSION…]``: run ``make test-quick`` with each CPython that ``deploy/locked`` supports.

An interpreter is in PATH, or a version of pyenv, or the one of another Debian suite. mmdebstrap makes a root of that
suite in ``build/pythons``, and the tests run there. The last lines name the versions that passed, failed, or are
missing; the exit status is 1 if the tests of one failed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from deploy.release.lock import PYTHONS
from tests.support.paths import ROOT

SUITES = {"3.13": "trixie", "3.14": "forky", "3.15": "forky"}
"""Debian suites that have this version."""
_TOLD = "import sys; print(sys.implementation.name, '.'.join(map(str, sys.version_info[:2])))"
_PACKAGES = "ca-certificates,git,make"
_ENTER = """
set -e
root=$1 top=$2
shift 2
for place in "$top" /dev /proc /sys; do
    mkdir -p "$root$place"
    mount --rbind "$place" "$root$place"
done
for path in /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt; do
    mount --bind "$(readlink -f "$path")" "$(readlink -f "$root$path")"
done
exec chroot "$root" env --chdir="$top" "$@"
"""


class Missing(Exception):
    """This host cannot get an interpreter; the message says why."""


def directories() -> list[Path]:
    """Directories that can have interpreters."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    installed = sorted(pyenv.glob("versions/*/bin"), reverse=True)
    return [Path(name) for name in os.environ["PATH"].split(":") if name] + installed


def find(version: str, places: list[Path]) -> Path | None:
    """Return the first interpreter of this version that works: pyenv puts programs into PATH that only say an error."""
    for place in places:
        for path in (place / f"python{version}", place / "python3"):
            if not os.access(path, os.X_OK):
                continue
            result = subprocess.run([path, "-c", _TOLD], capture_output=True, text=True)
            if result.stdout == f"cpython {version}\n":
                return path
    return None


def suite_root(version: str) -> Path:
    """Return a root of the suite that has this version; make it unless it exists.

    Raises:
        Missing: there is none.
    """
    if (suite := SUITES.get(version)) is None:
        raise Missing("PATH and pyenv do not have it, nor does a Debian suite")
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        raise Missing(f"PATH and pyenv do not have it; to get it from Debian {suite}, install mmdebstrap and be root")
    root = ROOT / "build/pythons" / f"{suite}-{version}"
    if not root.exists():
        unfinished = root.with_name(f"{root.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        print(f"Making a root of Debian {suite} ...", flush=True)
        options = [
            "--quiet",
            "--variant=minbase",
            f"--include={_PACKAGES},python{version}-venv",
            "--dpkgopt=force-unsafe-io",
        ]
        options.append('--aptopt=Acquire::Check-Valid-Until "false"')  # the mirror can be an old copy; it is signed
        done = subprocess.run(["mmdebstrap", *options, suite, str(unfinished)], capture_output=True, text=True)
        if done.returncode != 0:
            raise Missing(
                f"PATH and pyenv do not have it, and mmdebstrap failed for Debian {suite}: {done.stderr.strip()}"
            )
        unfinished.rename(root)
    return root


def command(version: str, places: list[Path]) -> tuple[str, list[str]]:
    """Return where the interpreter is, and the command that tests with it.

    Raises:
        Missing: there is none.
    """
    make = ["make", "test-quick", f"VENV=.venv-{version}"]
    if (python := find(version, places)) is not None:
        return str(python), [*make, f"PYTHON={python}"]
    root = suite_root(version)
    environ = ["-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"]
    enter = ["unshare", "--mount", "sh", "-c", _ENTER, "enter", str(root), str(ROOT)]
    return f"Debian {SUITES[version]}", [*enter, *environ, *make, f"PYTHON=/usr/bin/python{version}"]


def main(expected: list[str]) -> int:
    """Run the tests with these versions, such as 3.12; without any, with all."""
    places = directories()
    results = {}
    for version in expected or PYTHONS:
        try:
            place, words = command(version, places)
        except Missing as err:
            results[version] = f"missing: {err}"
            continue
        print(f"Python {version}: {place}", flush=True)
        status = subprocess.run(words, cwd=ROOT).returncode
        results[version] = f"{'passed' if status == 0 else 'FAILED'}, with {place}"
    failed = any(result.startswith("FAILED") for result in results.values())
    for version, result in results.items():
        print(f"Python {version}: {result}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
