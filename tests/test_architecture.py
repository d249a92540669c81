"""Names of modules, and the modules that the root loads, proved by reading every file."""

import ast
import sys
from pathlib import Path

from tests.support.paths import ROOT

PACKAGES = ("api", "logring", "store", "supervisor")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def test_names_differ_from_the_standard_library() -> None:
    """No module has the name of a standard library module."""
    for path in FILES:
        name = path.stem if path.stem != "__init__" else path.parent.name
        if not name.startswith("__"):
            assert name not in sys.stdlib_module_names, path


def test_root_is_standard_library_only() -> None:
    """The root needs no installed package, nor do the modules of ours that it imports."""
    files = {module_of(path): path for path in FILES}
    waiting = [name for name in files if within(name, "supervisor.root")]
    seen = set(waiting)
    while waiting:
        path = files[waiting.pop()]
        for name in imports_of(path):
            if name in files:
                if name not in seen:
                    seen.add(name)
                    waiting.append(name)
            elif name.rpartition(".")[0] not in files:
                assert name.split(".")[0] in sys.stdlib_module_names, f"{path}: {name}"
    assert "logring.ring.writer" in seen
