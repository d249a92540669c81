"""The structure: which room may import which, circles, full folders, and names that several modules share.

Arrows are read from all imports: at the top, within functions, under TYPE_CHECKING, and by ``import_module`` of a
constant.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.support.paths import ROOT
from tests.test_architecture import FILES, module_of, within

MOST_FILES = 20
"""The limit of files in a folder."""

ROOMS = (
    "api",
    "logring",
    "store",
    "supervisor.cli",
    "supervisor.config",
    "supervisor.helpers",
    "supervisor.helpers.exporter",
    "supervisor.helpers.filewatcher",
    "supervisor.helpers.janitor",
    "supervisor.helpers.notifier",
    "supervisor.helpers.watcher",
    "supervisor.host",
    "supervisor.ipc",
    "supervisor.root",
    "supervisor.schedule",
    "supervisor.scheduler",
    "supervisor.startup",
    "supervisor.tools",
    "supervisor",
)
"""The longest name that fits is the room of a module. The last one has the entries of helpers, and the version."""

LONE_IMPORTERS = 14

LAYERS = ("api.resources", "store", "supervisor.cli.commands", "supervisor.scheduler.control")
"""The rooms that have a module for each noun: in the API, the database, the command line and ``control.sock``."""

SHARED_NAMES: Mapping[str, set[str]] = {
    "access": {"api.resources.access", "api.schemas.access"},
    "backup": {"supervisor.cli.commands.daemon.backup", "supervisor.tools.backup"},
    "errors": {"api.errors", "logring.errors", "store.errors"},
    "notifications": {
        "api.resources.notifications",
        "store.notifications",
        "supervisor.scheduler.notifications.notifications",
    },
    "openapi": {"api.openapi", "supervisor.cli.commands.daemon.openapi"},
    "upgrade": {"supervisor.cli.commands.daemon.upgrade", "supervisor.root.handover.upgrade"},
}
"""Names shared by modules about one noun that are not all in layers."""

MOST_SHARED_NAMES = 10

_SMALL_LINES = 120
_GENERATED = re.compile(r"/__pycache__/|/static/bundle/|\.egg-info/")
_GROUND = {"logring", "store", "supervisor", "supervisor.host", "supervisor.ipc"}
_CONFIGURED = {*_GROUND, "supervisor.config", "supervisor.schedule"}
_HELPER = {*_GROUND, "supervisor.helpers"} - {"store"}
LAW: Mapping[str, set[str]] = {
    "logring": set(),
    "store": set(),
    "supervisor": {"supervisor.helpers.janitor", "supervisor.helpers.notifier", "supervisor.helpers.watcher"},
    "supervisor.host": {"supervisor"},
    "supervisor.ipc": {"logring", "supervisor", "supervisor.host"},
    "supervisor.schedule": {"supervisor", "supervisor.host"},
    "supervisor.config": {*_GROUND, "supervisor.schedule"},
    "supervisor.startup": _CONFIGURED,
    "supervisor.root": {"logring", "supervisor", "supervisor.host", "supervisor.ipc"},
    "supervisor.helpers": {"supervisor.host"},
    "supervisor.helpers.exporter": {*_GROUND, "supervisor.helpers"},
    "supervisor.helpers.janitor": {*_GROUND, "supervisor.helpers"},
    "supervisor.helpers.notifier": _HELPER,
    "supervisor.helpers.filewatcher": _HELPER,
    "supervisor.helpers.watcher": _HELPER,
    "supervisor.scheduler": {*_CONFIGURED, "supervisor.startup"},
    "supervisor.tools": {*_CONFIGURED, "supervisor.startup"},
    "supervisor.cli": {*_CONFIGURED, "supervisor.startup", "supervisor.tools"},
    "api": _GROUND,
}
"""The rooms that each room may import, besides itself."""


@cache
def arrows() -> frozenset[tuple[str, str]]:
    """Return each of our modules with our modules that it imports, at any place."""
    modules = {module_of(path) for path in FILES}
    return frozenset(
        (module, target)
        for path in FILES
        for module in (module_of(path),)
        for name in _named(path)
        if (target := _known(name, modules)) not in (None, module)
    )


def _named(path: Path) -> Iterator[str]:
    """Return the names that a file imports; for ``from a import b`` both a.b and a."""
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
    """Return our module that a name refers to: itself, or the module that defines it."""
    return name if name in modules else parent if (parent := name.rpartition(".")[0]) in modules else None


def room_of(module: str) -> str:
    return max((room for room in ROOMS if within(module, room)), key=len)


def circles() -> set[frozenset[str]]:
    """Return sets of modules that import each other, directly or not (Tarjan's algorithm)."""
    following: dict[str, set[str]] = {}
    for module, target in arrows():
        following.setdefault(module, set()).add(target)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    all_circles: set[frozenset[str]] = set()

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
                all_circles.add(frozenset(members))

    for module in sorted(following):
        if module not in index:
            visit(module)
    return all_circles


def forbidden_imports() -> set[tuple[str, str]]:
    """Return modules, and what each imports from a room that its own room may not import."""
    rooms = {module: room_of(module) for arrow in arrows() for module in arrow}
    return {(a, b) for a, b in arrows() if rooms[a] != rooms[b] and rooms[b] not in LAW[rooms[a]]}


def folders() -> dict[str, int]:
    """Return the number of files of each folder beyond the limit."""
    counts = Counter(
        str(path.parent.relative_to(ROOT))
        for top in ("api", "bench", "deploy", "docs", "logring", "store", "supervisor", "tests")
        for path in (ROOT / top).rglob("*.*")
        if path.is_file() and not _GENERATED.search(str(path))
    )
    return {folder: count for folder, count in counts.items() if count > MOST_FILES}


def lone_importers() -> list[str]:
    """Return modules of at most 120 lines that only one module of the same room imports: candidates for a merge."""
    importers: dict[str, set[str]] = {}
    for module, target in arrows():
        importers.setdefault(target, set()).add(module)
    lines = {module_of(path): len(path.read_text().splitlines()) for path in FILES if path.stem != "__init__"}
    return sorted(
        module
        for module, by in importers.items()
        if len(by) == 1 and lines.get(module, _SMALL_LINES + 1) <= _SMALL_LINES and room_of(*by) == room_of(module)
    )


def shared_names() -> dict[str, set[str]]:
    """Return names of several modules, with the modules, except for those with one module in each of several layers."""
    modules: dict[str, set[str]] = {}
    for path in FILES:
        if not path.stem.startswith("__"):
            modules.setdefault(path.stem, set()).add(module_of(path))
    return {name: same for name, same in modules.items() if len(same) > 1 and not _in_different_layers(same)}


def _in_different_layers(modules: set[str]) -> bool:
    layers = [layer for module in modules for layer in LAYERS if within(module, layer)]
    return len(layers) == len(modules) == len(set(layers))


def test_no_circular_imports() -> None:
    """No modules import each other, directly or through others."""
    assert circles() == set()


def test_imports_go_one_way() -> None:
    """No room imports a room that it may not import, even within a function or for types."""
    assert forbidden_imports() == set()


def test_folder_size() -> None:
    """A folder has at most twenty files."""
    assert folders() == {}


def test_small_modules_with_one_importer() -> None:
    """The number of small modules with a single importer does not grow."""
    assert len(lone_importers()) <= LONE_IMPORTERS, lone_importers()


def test_names_of_modules_are_unique() -> None:
    """Modules share a name only in different layers, or as one of a few listed exceptions."""
    assert shared_names() == SHARED_NAMES
    assert len(SHARED_NAMES) <= MOST_SHARED_NAMES
