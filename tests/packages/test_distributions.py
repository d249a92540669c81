"""The distributions: their contents, their metadata, and the lists beside them."""

import email.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.release.materials import EXTRAS
from supervisor.version import VERSION
from tests.packages.environment import EPOCH, Environment, sources
from tests.support.installation import extract
from tests.support.paths import ROOT

pytestmark = pytest.mark.packages
NAMES = {
    f"ringward-{VERSION}-py3-none-any.whl",
    f"ringward-{VERSION}.tar.gz",
    f"ringward-{VERSION}.cdx.json",
    f"ringward-{VERSION}.licences.txt",
}


def release(directory: Path, output: Path, umask: int = 0o022) -> Path:
    """Build a whole release from the sources in this directory."""
    done = subprocess.run(
        [sys.executable, "-m", "deploy.release.build", str(output)],
        cwd=directory,
        capture_output=True,
        text=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
        umask=umask,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return output


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All files of a release of the working tree."""
    place = tmp_path_factory.mktemp("release")
    return release(sources(place / "sources"), place / "dist")


@pytest.fixture(scope="module")
def unpacked(released: Path) -> Path:
    """The sources in the sdist."""
    with tarfile.open(released / f"ringward-{VERSION}.tar.gz") as archive:
        extract(archive, released.parent / "unpacked")
    return released.parent / "unpacked" / f"ringward-{VERSION}"


def about(released: Path) -> Any:
    """Return the metadata of the wheel."""
    with zipfile.ZipFile(released / f"ringward-{VERSION}-py3-none-any.whl") as wheel:
        return email.parser.BytesParser().parsebytes(wheel.read(f"ringward-{VERSION}.dist-info/METADATA"))


def test_reproducible_builds(released: Path, unpacked: Path, tmp_path: Path) -> None:
    """Builds from two copies, by a user with another umask, and from the sdist itself are equal byte for byte."""
    assert {path.name for path in released.iterdir()} == NAMES
    copy = sources(tmp_path / "sources")
    for path in copy.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    for place in (copy, shutil.copytree(unpacked, tmp_path / "again")):
        again = release(place, tmp_path / f"dist-{place.name}", umask=0o077)
        assert {path.name: path.read_bytes() for path in again.iterdir()} == {
            path.name: path.read_bytes() for path in released.iterdir()
        }


def test_sdist_is_complete(unpacked: Path) -> None:
    """The sdist has every file of the repository."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("these sources are no clone")
    generated = set(unpacked.glob("ringward.egg-info/*")) | {unpacked / "PKG-INFO"}
    files_found = {
        str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file() and path not in generated
    }
    assert files_found == set(listed.stdout.splitlines())


def test_tests_of_the_sdist(unpacked: Path) -> None:
    """In the sdist, pytest finds all tests, and the tests of documents and imports pass."""
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider"]
    names = {}
    for place in (ROOT, unpacked):
        result = subprocess.run([*command, "--collect-only", "tests"], cwd=place, capture_output=True, text=True).stdout
        names[place] = {line.replace(str(place), "") for line in result.splitlines() if "::" in line}
    assert names[unpacked] == names[ROOT]
    assert names[ROOT]
    quick = [str(path.relative_to(unpacked)) for path in unpacked.glob("tests/test_*.py")]
    done = subprocess.run([*command, *quick], cwd=unpacked, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_index_accepts_the_metadata(released: Path) -> None:
    """The metadata is complete, and the description renders without warnings."""
    files = [str(path) for path in released.iterdir() if path.suffix in (".whl", ".gz")]
    done = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    metadata = about(released)
    assert metadata["Version"] == VERSION
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert all(metadata[name] for name in ("Author", "Summary", "Keywords"))
    assert any(classifier.startswith("Development Status ::") for classifier in metadata.get_all("Classifier"))


def test_description_has_no_broken_links(released: Path) -> None:
    """The description has neither pictures nor links that work only in the repository."""
    text = about(released).get_payload()
    assert "Ringward is a Linux daemon" in text
    assert "Learn: the tutorial, concepts and recipes" in text
    assert ".. image::" not in text
    assert ":alt:" not in text
    assert re.findall(r"<([^>]+)>`__", text) == []


def test_lists_are_complete(released: Path) -> None:
    """The bill of materials and the list of licences have each dependency and each library of the dashboard.

    They also have the dependencies of the extras for users, which the bill calls optional.
    """
    bill = json.loads((released / f"ringward-{VERSION}.cdx.json").read_text())
    names = {component["name"] for component in bill["components"]}
    declared = [Requirement(requirement_text) for requirement_text in about(released).get_all("Requires-Dist")]
    assert {
        canonicalize_name(requirement.name)
        for requirement in declared
        if requirement.marker is None or requirement.marker.evaluate()
    } <= names
    scopes = {component["name"]: component["scope"] for component in bill["components"]}
    assert [scopes[name] for name in ("falcon", "greenlet", "uplot")] == ["required"] * 3
    assert [scopes[name] for name in ("mcp", "protobuf", "psycopg")] == ["optional"] * 3
    extras = set(about(released).get_all("Provides-Extra")) - {"dev", "docs"}
    assert set(EXTRAS.split(",")) == extras
    assert {"preact", "uplot", "cronstrue", "psycopg-binary", "greenlet"} <= names
    assert all(component["licenses"] for component in bill["components"])
    places = {component["bom-ref"] for component in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert all({dependency["ref"], *dependency["dependsOn"]} <= places for dependency in bill["dependencies"])
    lines = (released / f"ringward-{VERSION}.licences.txt").read_text().splitlines()
    assert {line.split()[0] for line in lines[1:]} == names | {"ringward"}


def test_bill_of_materials_is_valid(released: Path, environment: Environment) -> None:
    """The bill of materials has the format CycloneDX."""
    environment.pip("install", "cyclonedx-python-lib[json-validation]")
    code = (
        "import sys\n"
        "from cyclonedx.schema import SchemaVersion\n"
        "from cyclonedx.validation.json import JsonStrictValidator\n"
        "found = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())\n"
        "sys.exit(found and str(found))\n"
    )
    environment.run("python", "-c", code, released / f"ringward-{VERSION}.cdx.json")
