"""The structure as a ratchet: circles, arrows against the law of imports, and full folders may only become fewer.

Arrows are read from all imports: at the top, within functions, under TYPE_CHECKING, and by ``import_module`` of a
constant. What is known to be wrong stands in the tables here. A test fails when something new comes, and also when
something known has gone: then its line goes, too.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.support.paths import ROOT
from tests.test_architecture import FILES, module_of, within

MOST_FILES = 20
"""Of a folder."""

ROOMS = (
    "api",
    "logring",
    "store",
    "supervisor.cli",
    "supervisor.cli.boot",
    "supervisor.config",
    "supervisor.demo",
    "supervisor.doctor",
    "supervisor.importers",
    "supervisor.janitor",
    "supervisor.metrics",
    "supervisor.notifier",
    "supervisor.notify",
    "supervisor.root",
    "supervisor.scheduler",
    "supervisor.service",
    "supervisor.simulation",
    "supervisor.watcher",
    "supervisor",
)
"""The longest name that fits is the room of a module. The last one has the modules between the processes."""

CIRCLES = {
    frozenset({"supervisor.root.files", "supervisor.root.pump"}),
    frozenset({"api.auth", "api.context", "api.ends", "api.rawlog", "api.samples", "api.stream"}),
    frozenset({"api.operations", "api.openapi", "api.resources.meta"}),
    frozenset({"logring.packed", "logring.stored"}),
}
AGAINST_THE_LAW = {
    ("supervisor.cli", "supervisor.root"): 5,
    ("supervisor.cli.boot", "supervisor.cli"): 8,
    ("supervisor.cli.boot", "supervisor.root"): 2,
    ("supervisor.cli.boot", "supervisor.scheduler"): 2,
    ("supervisor.config", "supervisor.notify"): 1,
    ("supervisor.config", "supervisor.scheduler"): 1,
    ("supervisor.importers", "supervisor.scheduler"): 3,
    ("supervisor.notify", "supervisor.config"): 2,
    ("supervisor.scheduler", "supervisor.janitor"): 1,
    ("supervisor.scheduler", "supervisor.metrics"): 4,
    ("supervisor.scheduler", "supervisor.notifier"): 4,
    ("supervisor.scheduler", "supervisor.watcher"): 4,
    ("supervisor.simulation", "supervisor.scheduler"): 2,
    ("supervisor.watcher", "supervisor.root"): 1,
}
"""Arrows between two rooms that the law does not have, and how many."""
FULL_FOLDERS = {
    "api": 59,
    "api/resources": 30,
    "logring": 39,
    "store": 44,
    "supervisor": 23,
    "supervisor/cli/commands": 38,
    "supervisor/config": 34,
    "supervisor/root": 54,
    "supervisor/scheduler": 95,
    "tests/api": 66,
    "tests/cli": 38,
    "tests/e2e": 75,
    "tests/logring": 44,
    "tests/programs": 26,
    "tests/root": 32,
    "tests/scheduler": 60,
    "tests/store": 44,
}
"""Folders with more files than there should be, and how many at most."""
LONE_IMPORTERS = 110

_SMALL_LINES = 120
_BELOW = {"logring", "store", "supervisor"}
_TOOLS = {"supervisor.demo", "supervisor.doctor", "supervisor.importers", "supervisor.service", "supervisor.simulation"}
LAW: Mapping[str, set[str]] = {
    "logring": set(),
    "store": set(),
    "supervisor": {"store", "logring"},
    "supervisor.metrics": {"supervisor"},
    "supervisor.notify": _BELOW,
    "supervisor.config": _BELOW,
    "supervisor.root": {"logring", "supervisor"},
    "supervisor.janitor": _BELOW,
    "supervisor.watcher": {"logring", "supervisor"},
    "supervisor.notifier": {"logring", "supervisor"},
    "supervisor.scheduler": {*_BELOW, "supervisor.config", "supervisor.cli.boot", "supervisor.notify"},
    "supervisor.cli.boot": {*_BELOW, "supervisor.config"},
    **{tool: {*_BELOW, "supervisor.config", "supervisor.cli.boot"} for tool in _TOOLS},
    "supervisor.cli": {*_BELOW, *_TOOLS, "supervisor.config", "supervisor.cli.boot"},
    "api": {*_BELOW},
}
"""Whom each room may import, besides itself."""


@cache
def arrows() -> frozenset[tuple[str, str]]:
    """Every module of ours and every module of ours that it imports, wherever the import stands."""
    modules = {module_of(path) for path in FILES}
    return frozenset(
        (module, target)
        for path in FILES
        for module in (module_of(path),)
        for name in _named(path)
        if (target := _known(name, modules)) not in (None, module)
    )


def _named(path: Path) -> Iterator[str]:
    """Names that a file imports; of ``from a import b`` both a.b and a."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.args[0].value


def _known(name: str, modules: set[str]) -> str | None:
    """The module of ours that a name stands for: itself, or the one that defines it."""
    return name if name in modules else parent if (parent := name.rpartition(".")[0]) in modules else None


def room_of(module: str) -> str:
    return max((room for room in ROOMS if within(module, room)), key=len)


def circles() -> set[frozenset[str]]:
    """Sets of modules that import each other, directly or not (Tarjan's strongly connected components)."""
    following: dict[str, set[str]] = {}
    for module, target in arrows():
        following.setdefault(module, set()).add(target)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in following.get(module, ()):
            if target not in index:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            members = set()
            while module not in members:
                members.add(stack.pop())
            if len(members) > 1:
                found.add(frozenset(members))

    for module in sorted(following):
        if module not in index:
            visit(module)
    return found


def against_the_law() -> Counter[tuple[str, str]]:
    """How many arrows lead from one room to another one that it may not import."""
    pairs = ((room_of(module), room_of(target)) for module, target in arrows())
    return Counter((start, end) for start, end in pairs if start != end and end not in LAW[start])


def folders() -> dict[str, int]:
    """How many files of Python each folder has, where they are more than there should be."""
    counts = Counter(
        str(path.parent.relative_to(ROOT))
        for top in ("api", "logring", "store", "supervisor", "tests")
        for path in (ROOT / top).rglob("*.py")
    )
    return {folder: count for folder, count in counts.items() if count > MOST_FILES}


def lone_importers() -> list[str]:
    """Modules of at most 120 lines that exactly one module imports, out of the same room: candidates for a merge."""
    importers: dict[str, set[str]] = {}
    for module, target in arrows():
        importers.setdefault(target, set()).add(module)
    lines = {module_of(path): len(path.read_text().splitlines()) for path in FILES if path.stem != "__init__"}
    return sorted(
        module
        for module, by in importers.items()
        if len(by) == 1 and lines.get(module, _SMALL_LINES + 1) <= _SMALL_LINES and room_of(*by) == room_of(module)
    )


def test_no_new_circle() -> None:
    """No modules import each other, directly or through others, besides the known ones."""
    assert circles() == CIRCLES


def test_no_new_arrow_against_the_law() -> None:
    """No room imports a room that it may not import, besides the known arrows; their number only falls."""
    found = against_the_law()
    assert found.keys() == AGAINST_THE_LAW.keys()
    assert all(count <= AGAINST_THE_LAW[pair] for pair, count in found.items()), found


def test_no_folder_grows_beyond_its_bound() -> None:
    """A folder has at most twenty files of Python; the fuller ones do not grow."""
    found = folders()
    assert found.keys() <= FULL_FOLDERS.keys()
    assert all(count <= FULL_FOLDERS[folder] for folder, count in found.items()), found


def test_no_more_small_modules_with_one_importer() -> None:
    """What only one module needs and is small stands there, or is no more than it is today."""
    assert len(lone_importers()) <= LONE_IMPORTERS, lone_importers()
