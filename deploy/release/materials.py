"""The bill of materials (CycloneDX) and the list of licences.

They list the packages in the environment of the Python that runs this, and the libraries in the dashboard. The packages
that only extras of Ringward need are optional.
"""

import json
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from deploy.zipapp.build import ROOT, needs, version

VENDORED = ROOT / "api/static/vendor/LICENSES.txt"
_LIBRARY = re.compile(r"(?P<name>@?[\w/-]+) (?P<version>\d+\.\d+\.\d+) \((?P<licence>[\w.-]+)\)")
_OURS = "ringward"
EXTRAS = "mcp,otlp,postgresql"
"""The extras for users: all but those for developers."""
_UNSAID = {"peewee": "MIT"}
"""Licences that a package has in a file, but not in its metadata."""
_NAMESPACE = uuid.UUID("6f1c0c0e-4d3c-4c5e-9d3e-7a0f3b6f5a11")


class Material(NamedTuple):
    """A package that Ringward needs or contains."""

    name: str
    version: str
    licence: str
    purl: str


def _licence(name: str) -> str:
    """Return the licence that a package of Python declares: an SPDX expression, or else words."""
    about = distribution(name).metadata
    words = about["License-Expression"] or (about["License"] or "").strip().partition("\n")[0]
    classifiers = [one.rpartition(" :: ")[2] for one in about.get_all("Classifier", ()) if one.startswith("License ::")]
    return words or " or ".join(classifiers) or _UNSAID[name]


def _packages(extras: str) -> dict[str, Material]:
    """Return the packages of Python by their names, Ringward among them."""
    found = {}
    for name in sorted(needs(extras)):
        number = version() if name == _OURS else distribution(name).version
        found[name] = Material(name, number, _licence(name), f"pkg:pypi/{name}@{number}")
    return found


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


def bill(seconds: int) -> dict[str, Any]:
    """Return the bill of materials in the format CycloneDX 1.6, with this time."""
    packages, libraries = _packages(EXTRAS), list(_libraries())
    always = needs(extras="").keys() | {library.name for library in libraries}
    needed = {
        packages[name].purl: {packages[one].purl for one in direct}
        | {library.purl for library in libraries if name == _OURS}
        for name, direct in needs(EXTRAS).items()
    }
    ours = packages.pop(_OURS)
    components = [
        _component(package, "library", "required" if package.name in always else "optional")
        for package in (*packages.values(), *libraries)
    ]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(_NAMESPACE, json.dumps(components)).urn,
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": _component(ours, "application"),
        },
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": sorted(on)} for ref, on in sorted(needed.items())],
    }


def licences(extras: str) -> str:
    """Return a table of the licences of Ringward, its dependencies, these extras, and the dashboard's libraries."""
    rows = [("NAME", "VERSION", "LICENCE"), *(package[:3] for package in (*_packages(extras).values(), *_libraries()))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join("  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in rows)


def write_lists(output: Path, seconds: int) -> None:
    """Write both lists."""
    name = f"{_OURS}-{version()}"
    (output / f"{name}.cdx.json").write_text(json.dumps(bill(seconds), indent=2) + "\n")
    (output / f"{name}.licences.txt").write_text(licences(EXTRAS))
