"""List what tests promise: python -m tests.promises [FOLDER ...]; without a folder, write tests/promises.txt.

The docstring of a test is its promise. ``promises.txt`` has those about survival, upgrades and formats, so that a
review shows each change and removal; a test that only moves changes nothing there.
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support.paths import ROOT

TESTS = ROOT / "tests"
LIST = TESTS / "promises.txt"
LISTED = ("crash", "e2e/survival", "e2e/upgrade", "golden", "root/handover")
"""Folders of tests."""


def each_test(folders: Iterable[str]) -> Iterator[tuple[Path, ast.FunctionDef]]:
    """Yield all tests below these folders, with the file of each."""
    for path in sorted({path for folder in folders for path in (TESTS / folder).rglob("test_*.py")}):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield path, node


def promise(test: ast.FunctionDef) -> str:
    """Return the docstring of a test on one line, or "" without one."""
    return " ".join((ast.get_docstring(test) or "").split())


def listed() -> list[str]:
    """Return the lines of the list."""
    return sorted({promise(test) for _, test in each_test(LISTED)})


if __name__ == "__main__":
    if folders := sys.argv[1:]:
        for path, test in each_test(folders):
            print(f"{path.relative_to(ROOT)}::{test.name}: {promise(test)}")
    else:
        LIST.write_text("".join(f"{line}\n" for line in listed()))
