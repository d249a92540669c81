"""``python -m deploy.release.lock``: write the lock files in ``deploy/locked``, with exact versions and hashes.

pip resolves the newest allowed versions. The lock has the hashes of all files in the index that CPython 3.11 or
newer can use on Linux: wheels for both architectures, with glibc or musl, and sources. Run this with the lowest Python
that is supported, because it needs the most packages.
"""

import json
import os
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).parent.parent.parent
LOCKED = ROOT / "deploy/locked"
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
ARCHITECTURES = ("x86_64", "aarch64")
_OURS = "ringward"
_HEAD = "# Written by `make lock`, from setup.cfg and pyproject.toml. {}\n"
_ABOUT = {
    "run.txt": "Packages that Ringward and its calendars need.",
    "postgresql.txt": "Additional packages for PostgreSQL.",
    "build.txt": "Packages that build it from its sources.",
}


class Package(NamedTuple):
    """A package of the resolved set."""

    version: str
    requires: tuple[Requirement, ...]


def index() -> str:
    """Return the URL of the package index, without a slash at the end."""
    return os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")


def about(name: str) -> Any:
    """Return the files of a package in the index, by its JSON interface (PEP 691)."""
    request = urllib.request.Request(  # noqa: S310 - the index is https, unless someone chose another
        f"{index()}/{name}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.load(answer)


def resolve(*wanted: str) -> dict[str, Package]:
    """Let pip resolve these requirements; return the packages by their names."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    command = [*pip, "--dry-run", "--ignore-installed", "--report=-", *wanted]
    told = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    return {
        str(canonicalize_name(one["metadata"]["name"])): Package(
            one["metadata"]["version"], tuple(map(Requirement, one["metadata"].get("requires_dist", ())))
        )
        for one in json.loads(told)["install"]
    }


def closure(found: Mapping[str, Package], wanted: Requirement, environment: Mapping[str, str]) -> set[str]:
    """Return the names of all packages that a requirement needs in an environment, itself included.

    Raises:
        KeyError: one of them is not among the packages found.
    """
    seen: set[tuple[str, ...]] = set()
    waiting = [wanted]
    while waiting:
        one = waiting.pop()
        name = str(canonicalize_name(one.name))
        key = (name, *sorted(one.extras))
        if key in seen:
            continue
        seen.add(key)
        for needed in found[name].requires:
            marker = needed.marker
            extras = ("", *one.extras)
            if marker is None or any(marker.evaluate({**environment, "extra": extra}) for extra in extras):
                waiting.append(needed)
    return {key[0] for key in seen}


def environments() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each supported version of Python, with the variables of markers, for each architecture."""
    for version in PYTHONS:
        for architecture in ARCHITECTURES:
            yield (
                version,
                {
                    "python_version": version,
                    "python_full_version": f"{version}.0",
                    "platform_machine": architecture,
                    "sys_platform": "linux",
                    "platform_system": "Linux",
                    "implementation_name": "cpython",
                    "platform_python_implementation": "CPython",
                },
            )


def needed(found: Mapping[str, Package], wanted: str) -> dict[str, str]:
    """Return the names of all packages that a requirement needs, each with its marker, or without one (``""``).

    Raises:
        ValueError: a package is needed on some Pythons for which no marker is known here.
    """
    pythons: dict[str, set[str]] = {}
    for version, variables in environments():
        for name in closure(found, Requirement(wanted), variables):
            pythons.setdefault(name, set()).add(version)
    markers: dict[tuple[str, ...], str] = {PYTHONS: ""}
    markers |= {PYTHONS[:count]: f'python_version < "{after}"' for count, after in enumerate(PYTHONS[1:], start=1)}
    told = {name: markers.get(tuple(sorted(on, key=PYTHONS.index))) for name, on in sorted(pythons.items())}
    for name, marker in told.items():
        if marker is None:
            raise ValueError(f"{name}: needed on {sorted(pythons[name])}, which are not the first Pythons")
    return {name: marker or "" for name, marker in told.items()}


def _usable(tag: Tag) -> bool:
    """Return whether CPython 3.11 or newer may use a wheel with this tag on Linux."""
    place = tag.platform == "any" or ("linux" in tag.platform and tag.platform.endswith(ARCHITECTURES))
    if tag.interpreter == "py3":
        return place
    kind, number = tag.interpreter[:3], tag.interpreter[3:]
    return place and kind == "cp3" and number.isdigit() and (tag.abi == "abi3" or int(number) >= 11)


def hashes(name: str, version: str) -> list[str]:
    """Return the SHA-256 of each file of this version that is usable.

    Raises:
        ValueError: the index has no such file.
    """
    found = []
    for file in about(name)["files"]:
        called = file["filename"]
        if called.endswith(".whl"):
            _, number, _, tags = parse_wheel_filename(called)
            usable = str(number) == version and any(map(_usable, tags))
        else:
            usable = called.lower().replace("_", "-").replace(".", "-") == f"{name}-{version}-tar-gz".replace(".", "-")
        if usable:
            found.append(file["hashes"]["sha256"])
    if not found:
        raise ValueError(f"{name} {version}: the index has no file")
    return sorted(found)


def _entry(name: str, version: str, marker: str) -> str:
    condition = f" ; {marker}" if marker else ""
    lines = [f"{name}=={version}{condition}", *(f"    --hash=sha256:{one}" for one in hashes(name, version))]
    return " \\\n".join(lines) + "\n"


def write() -> None:
    """Write the lock files."""
    if sys.version_info[:2] != tuple(map(int, PYTHONS[0].split("."))):
        raise SystemExit(f"lock: run this with Python {PYTHONS[0]}, the lowest that is supported")
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    found = resolve(".[calendars,postgresql]", *tools)
    run, database = needed(found, f"{_OURS}[calendars]"), needed(found, f"{_OURS}[postgresql]")
    build = {name: marker for tool in tools for name, marker in needed(found, tool).items()}
    del run[_OURS]
    del database[_OURS]
    for file, names in {
        "run.txt": run,
        "postgresql.txt": {name: marker for name, marker in database.items() if name not in run},
        "build.txt": build,
    }.items():
        entries = (_entry(name, found[name].version, marker) for name, marker in names.items())
        (LOCKED / file).write_text(_HEAD.format(_ABOUT[file]) + "".join(entries), encoding="utf-8")
        print(LOCKED / file)


if __name__ == "__main__":
    write()
