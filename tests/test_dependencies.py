"""The packages that an installation requires."""

import ast
import configparser
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.lowest_versions import lowest, requirements
from tests.test_architecture import FILES

SETUP = Path(__file__).parent.parent / "setup.cfg"
OURS = {"api", "logring", "store", "supervisor"}
LATER_PYTHON = {"compression"}
DISTRIBUTIONS = {
    "backports": ["backports.zstd"],
    "google": ["protobuf"],
    "opentelemetry": ["opentelemetry-exporter-otlp-proto-http"],
    "re2": ["google-re2"],
}
"""Distributions of packages that may be missing here, or that other distributions can have parts of."""


def imported(path: Path) -> set[str]:
    """Return the packages that a file imports, by the first part of their names."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names |= {str(constant.value) for constant in node.args if isinstance(constant, ast.Constant)}
    return {name.partition(".")[0] for name in names}


def optional() -> list[str]:
    """Return the requirements of the extras that add features to an installation."""
    config = configparser.ConfigParser()
    config.read(SETUP)
    extras = config["options.extras_require"]
    return [line for name in extras.keys() - {"dev", "docs"} for line in extras[name].splitlines() if line]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_each_imported_package_is_required() -> None:
    """Each package that our code imports is a direct requirement."""
    distributions = {**packages_distributions(), **DISTRIBUTIONS}
    required = {normal(re.split(r"[^\w.-]", line)[0]) for line in [*requirements(SETUP), *optional()]}
    packages = set().union(*map(imported, FILES)) - OURS - LATER_PYTHON - set(sys.stdlib_module_names)
    missing = {name for name in packages if not required & {normal(extra) for extra in distributions.get(name, [name])}}
    assert missing == set()


def test_each_requirement_has_a_lowest_version() -> None:
    """Each requirement names the lowest version with which it is tested, except tzdata, whose age does not matter."""
    assert [requirement for requirement in requirements(SETUP) if lowest(requirement) is None] == ["tzdata"]


@pytest.mark.parametrize(
    ("requirement", "constraint"),
    [
        ("click >=8.1", "click ==8.1"),
        ("gunicorn[gevent] >=27.0.1,<28", "gunicorn ==27.0.1"),
        ('backports.zstd >=1.8; python_version < "3.14"', 'backports.zstd ==1.8; python_version < "3.14"'),
        ("tzdata", None),
        ("x <3", None),
    ],
)
def test_lowest_version(requirement: str, constraint: str | None) -> None:
    """The constraint keeps the name and the marker of the requirement, without its extras."""
    assert lowest(requirement) == constraint
