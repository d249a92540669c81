"""``python -m deploy.release.materials OUTPUT``: write the bill of materials (CycloneDX) of this Python's environment.

The bill lists the distributions that are installed there, and the libraries in the dashboard. The packages that only
extras of Ringward need, or nothing at all, are optional. This needs only the standard library, because it also runs in
the environments of packages.
"""

import json
import os
import re
import sys
import uuid
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from deploy.version import ROOT, version

VENDORED = ROOT / "api/static/vendor/LICENSES.txt"
_LIBRARY = re.compile(r"(?P<name>@?[\w/-]+) (?P<version>\d+\.\d+\.\d+) \((?P<licence>[\w.-]+)\)")
_REQUIREMENT = re.compile(r"([\w.-]+)\s*(?:\[([^]]*)])?[^;]*(.*)")
_EXTRA = re.compile(r"""extra\s*==\s*["']([\w.-]+)["']""")
_OURS = "ringward"
EXTRAS = "calendars,mcp,otlp,postgresql"
"""The extras for users: all but those for developers."""
_UNSAID = {"peewee": "MIT"}
"""Licences that a package has in a file, but not in its metadata."""
_NAMESPACE = uuid.UUID("6f1c0c0e-4d3c-4c5e-9d3e-7a0f3b6f5a11")

Installed = Mapping[str, Distribution]
"""Distributions by their normalised names."""


class Material(NamedTuple):
    """A package that Ringward needs or contains."""

    name: str
    version: str
    licence: str
    purl: str


def installed(*path: str) -> Installed:
    """Return the distributions in these directories, by default in all directories of this Python."""
    found = Distribution.discover(path=list(path or sys.path))
    return {_normalised(one.metadata["Name"]): one for one in reversed([*found])}


def needs(extras: str) -> Installed:
    """Return what Ringward needs in this environment with these extras, with commas between them; Ringward, too.

    Raises:
        KeyError: a dependency is not installed.
    """
    from packaging.requirements import Requirement  # the environments of packages lack it

    packages = installed()
    seen = set()
    waiting = [Requirement(f"{_OURS}[{extras}]")]
    while waiting:
        wanted = waiting.pop()
        name = _normalised(wanted.name)
        if (name, *sorted(wanted.extras)) not in seen:
            seen.add((name, *sorted(wanted.extras)))
            for one in map(Requirement, packages[name].requires or ()):
                marker = one.marker
                if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)):
                    waiting.append(one)
    return {name: packages[name] for name in sorted({name for name, *_ in seen})}


def _always(packages: Installed) -> set[str]:
    """Return the names of Ringward and everything that it needs without its extras."""
    found = set()
    waiting = [(_OURS, frozenset[str]())]
    while waiting:
        name, extras = one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += _direct(packages, name, extras)
    return {name for name, _ in found}


def _direct(packages: Installed, name: str, extras: Collection[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the installed requirements of a package with these extras, and the extras that it wants of them.

    Other markers, such as the version of Python, decided at the installation.
    """
    for text in packages[name].requires or ():
        required, wanted, marker = _REQUIREMENT.findall(text)[0]
        of_extras = _EXTRA.findall(marker)
        if _normalised(required) in packages and (not of_extras or set(of_extras) & set(extras)):
            yield _normalised(required), frozenset(re.split(r",\s*", wanted))


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _licence(name: str, package: Distribution) -> str:
    """Return the licence that a package of Python declares: an SPDX expression, or else words."""
    about = package.metadata
    words = about["License-Expression"] or (about["License"] or "").strip().partition("\n")[0]
    classifiers = [one.rpartition(" :: ")[2] for one in about.get_all("Classifier", ()) if one.startswith("License ::")]
    return words or " or ".join(classifiers) or _UNSAID.get(name, "see the package")


def _materials(packages: Installed, ours: str) -> dict[str, Material]:
    """Return the packages of Python by their names; Ringward has the version `ours`."""
    numbers = {name: ours if name == _OURS else package.version for name, package in sorted(packages.items())}
    return {
        name: Material(name, number, _licence(name, packages[name]), f"pkg:pypi/{name}@{number}")
        for name, number in numbers.items()
    }


def _libraries() -> Iterator[Material]:
    """Yield the libraries in the dashboard."""
    for found in _LIBRARY.finditer(VENDORED.read_text(encoding="utf-8")):
        name, number = found["name"], found["version"]
        yield Material(name, number, found["licence"], f"pkg:npm/{quote(name)}@{number}")


def _component(one: Material, kind: str, scope: str = "required") -> dict[str, Any]:
    return {
        "type": kind,
        "bom-ref": one.purl,
        "name": one.name,
        "version": one.version,
        "scope": scope,
        "licenses": [{"license": {"name": one.licence}}],
        "purl": one.purl,
    }


def bill(packages: Installed, ours: str, seconds: int) -> str:
    """Return the bill of materials of these packages in the format CycloneDX 1.6.

    Ringward has the version `ours`, and the bill the time `seconds`.
    """
    materials, libraries = _materials(packages, ours), list(_libraries())
    always = _always(packages) | {library.name for library in libraries}
    depends = {
        materials[name].purl: {materials[one].purl for one, _ in _direct(packages, name, EXTRAS.split(","))}
        | {library.purl for library in libraries if name == _OURS}
        for name in packages
    }
    application = materials.pop(_OURS)
    components = [
        _component(package, "library", "required" if package.name in always else "optional")
        for package in (*materials.values(), *libraries)
    ]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(_NAMESPACE, json.dumps(components)).urn,
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": _component(application, "application"),
        },
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": sorted(on)} for ref, on in sorted(depends.items())],
    }
    return json.dumps(document, indent=2) + "\n"


def licences(packages: Installed, ours: str) -> str:
    """Return a table of the licences of these packages, and of the dashboard's libraries."""
    listed = (*_materials(packages, ours).values(), *_libraries())
    rows = [("NAME", "VERSION", "LICENCE"), *(package[:3] for package in listed)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join("  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in rows)


def write_lists(output: Path, seconds: int) -> None:
    """Write both lists for the sdist and the wheel: with everything that Ringward and its extras for users need."""
    packages, ours = needs(EXTRAS), version()
    (output / f"{_OURS}-{ours}.cdx.json").write_text(bill(packages, ours, seconds))
    (output / f"{_OURS}-{ours}.licences.txt").write_text(licences(packages, ours))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(bill(installed(), version(), int(os.environ.get("SOURCE_DATE_EPOCH", "0"))))
