"""The bill of materials of a package: exactly the distributions that its environment contains."""

import json
from pathlib import Path
from typing import Any

from deploy.release.materials import bill, installed, licences, needs

REQUIRES = {
    "ringward": ["Web_Server[fast]>=1", 'driver ; extra == "postgresql"', 'tomli ; python_version < "3.11"'],
    "web.server": ['loop; extra == "fast"', 'docs; extra == "docs"'],
    "loop": [],
    "docs": [],
    "driver": ["loop (>=2)"],
    "setuptools": [],
}


def environment(place: Path) -> str:
    """Make an environment of these distributions."""
    for name, requires in REQUIRES.items():
        about = place / f"{name}-1.0.dist-info"
        about.mkdir()
        lines = [
            f"Name: {name}",
            "Version: 1.0",
            "License-Expression: MIT",
            *(f"Requires-Dist: {one}" for one in requires),
        ]
        (about / "METADATA").write_text("Metadata-Version: 2.4\n" + "\n".join(lines) + "\n")
    return str(place)


def read(place: Path) -> Any:
    return json.loads(bill(installed(environment(place)), "0.3.0", 0))


def test_each_installed_distribution_is_listed(tmp_path: Path) -> None:
    """The bill has all distributions; those that only an extra or nothing needs are optional."""
    document = read(tmp_path)
    scopes = {one["name"]: one["scope"] for one in document["components"] if one["purl"].startswith("pkg:pypi/")}
    assert scopes == {
        "web-server": "required",
        "loop": "required",
        "docs": "optional",
        "driver": "optional",
        "setuptools": "optional",
    }
    application = document["metadata"]["component"]
    assert (application["name"], application["version"]) == ("ringward", "0.3.0")
    assert document["metadata"]["timestamp"] == "1970-01-01T00:00:00Z"


def test_dependencies(tmp_path: Path) -> None:
    """Dependencies of extras count where the extra is wanted; missing distributions do not."""
    depends = {one["ref"]: one["dependsOn"] for one in read(tmp_path)["dependencies"]}
    ours = [name for name in depends["pkg:pypi/ringward@0.3.0"] if name.startswith("pkg:pypi/")]
    assert ours == ["pkg:pypi/driver@1.0", "pkg:pypi/web-server@1.0"]
    assert depends["pkg:pypi/driver@1.0"] == ["pkg:pypi/loop@1.0"]


def test_same_environment_gives_the_same_bill(tmp_path: Path) -> None:
    """The bill of an environment is the same, byte for byte, each time."""
    packages = installed(environment(tmp_path))
    assert bill(packages, "0.3.0", 0) == bill(dict(sorted(packages.items(), reverse=True)), "0.3.0", 0)
    assert licences(packages, "0.3.0").startswith("NAME")


def test_needs_of_an_extra() -> None:
    """An extra adds its packages, and the extras that they want of others."""
    assert "psycopg-binary" in needs("postgresql")
    assert "psycopg" not in needs("")
    assert {"gunicorn", "gevent", "ringward"} <= needs("").keys()
