"""The structure: which room may import which, circles, and full folders.

Arrows are read from all imports: at the top, within functions, under TYPE_CHECKING, and by ``import_module`` of a
constant. Known circles and full folders stand in tables here, which only become shorter.
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
    "supervisor.config",
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

UNTIL_MOVED = {
    "supervisor.tools.backup": "supervisor.tools",
    "supervisor.ipc.recent_starts": "supervisor.ipc",
    "supervisor.host.cgroup_names": "supervisor.host",
    "supervisor.startup": "supervisor.startup",
    "supervisor.startup.advice": "supervisor.startup",
    "supervisor.startup.api_ahead": "supervisor.startup",
    "supervisor.startup.api_user": "supervisor.startup",
    "supervisor.startup.cgroup_controllers": "supervisor.startup",
    "supervisor.startup.data_directory": "supervisor.startup",
    "supervisor.startup.descriptors": "supervisor.startup",
    "supervisor.startup.exposure": "supervisor.startup",
    "supervisor.startup.refusal": "supervisor.startup",
    "supervisor.startup.rival_package": "supervisor.startup",
    "supervisor.startup.runtime_directory": "supervisor.startup",
    "supervisor.startup.password": "supervisor.startup",
    "supervisor.startup.host_check": "supervisor.startup",
    "supervisor.startup.api_access": "supervisor.startup",
    "supervisor.startup.certificate": "supervisor.startup",
    "supervisor.ipc.control_client": "supervisor.ipc",
    "supervisor.ipc.counted": "supervisor.ipc",
    "supervisor.tools.demo": "supervisor.tools",
    "supervisor.tools.doctor": "supervisor.tools",
    "supervisor.ipc.doorbell": "supervisor.ipc",
    "supervisor.host.process_environ": "supervisor.host",
    "supervisor.ipc.msgspec_messages": "supervisor.ipc",
    "supervisor.tools.importers": "supervisor.tools",
    "supervisor.janitor": "supervisor.helpers.janitor",
    "supervisor.helpers.janitor.__main__": "supervisor.helpers.janitor",
    "supervisor.ipc.janitor_job": "supervisor.ipc",
    "supervisor.helpers.janitor.work": "supervisor.helpers.janitor",
    "supervisor.ipc.log_line": "supervisor.ipc",
    "supervisor.ipc.messages": "supervisor.ipc",
    "supervisor.host.cgroup_usage": "supervisor.host",
    "supervisor.host.host_usage": "supervisor.host",
    "supervisor.host.process_usage": "supervisor.host",
    "supervisor.host.run_usage": "supervisor.host",
    "supervisor.startup.new_history": "supervisor.startup",
    "supervisor.notifier": "supervisor.helpers.notifier",
    "supervisor.helpers.notifier.__main__": "supervisor.helpers.notifier",
    "supervisor.helpers.notifier.delivery": "supervisor.helpers.notifier",
    "supervisor.helpers.notifier.masking": "supervisor.helpers.notifier",
    "supervisor.ipc.delivery_request": "supervisor.ipc",
    "supervisor.helpers.notifier.redirects": "supervisor.helpers.notifier",
    "supervisor.helpers.notifier.work": "supervisor.helpers.notifier",
    "supervisor.config.notification_kinds": "supervisor.config",
    "supervisor.scheduler.notifications.routes": "supervisor.scheduler",
    "supervisor.scheduler.notifications.wording": "supervisor.scheduler",
    "supervisor.host.osport": "supervisor.host",
    "supervisor.startup.parent_directories": "supervisor.startup",
    "supervisor.host.prepared_command": "supervisor.host",
    "supervisor.host.cgroups": "supervisor.host",
    "supervisor.root.limits": "supervisor.host",
    "supervisor.ipc.listening_sockets": "supervisor.ipc",
    "supervisor.ipc.child_process": "supervisor.ipc",
    "supervisor.host.pidfds": "supervisor.host",
    "supervisor.host.procfs": "supervisor.host",
    "supervisor.ipc.stale_helpers": "supervisor.ipc",
    "supervisor.ipc.run_token": "supervisor.ipc",
    "supervisor.host.users": "supervisor.host",
    "supervisor.schedule.catchup": "supervisor.schedule",
    "supervisor.schedule.cron": "supervisor.schedule",
    "supervisor.schedule.crontext": "supervisor.schedule",
    "supervisor.schedule.cron_fields": "supervisor.schedule",
    "supervisor.schedule.instants": "supervisor.schedule",
    "supervisor.tools.service": "supervisor.tools",
    "supervisor.host.shared_memory": "supervisor.host",
    "supervisor.host.signal_sets": "supervisor.host",
    "supervisor.tools.simulation": "supervisor.tools",
    "supervisor.config.synonyms": "supervisor.config",
    "supervisor.watcher": "supervisor.helpers.watcher",
    "supervisor.helpers.watcher.__main__": "supervisor.helpers.watcher",
    "supervisor.helpers.watcher.attempts": "supervisor.helpers.watcher",
    "supervisor.helpers.watcher.command_probe": "supervisor.helpers.watcher",
    "supervisor.helpers.watcher.output_lines": "supervisor.helpers.watcher",
    "supervisor.helpers.watcher.name_lookup": "supervisor.helpers.watcher",
    "supervisor.ipc.probe_request": "supervisor.ipc",
    "supervisor.helpers.watcher.watch": "supervisor.helpers.watcher",
    "supervisor.host.zones": "supervisor.host",
}
"""Rooms of modules that do not stand there yet."""

CIRCLES = {
    frozenset({"supervisor.root.output.file_thread", "supervisor.root.output.pump_thread"}),
}
FULL_FOLDERS = {
    "api": 59,
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
LONE_IMPORTERS = 57

_SMALL_LINES = 120
_GROUND = {"logring", "store", "supervisor", "supervisor.host", "supervisor.ipc"}
_CONFIGURED = {*_GROUND, "supervisor.config", "supervisor.schedule"}
_HELPER = _GROUND - {"store"}
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
    "supervisor.helpers.janitor": _GROUND,
    "supervisor.helpers.notifier": _HELPER,
    "supervisor.helpers.watcher": _HELPER,
    "supervisor.scheduler": {*_CONFIGURED, "supervisor.startup"},
    "supervisor.tools": {*_CONFIGURED, "supervisor.startup"},
    "supervisor.cli": {*_CONFIGURED, "supervisor.startup", "supervisor.tools"},
    "api": _GROUND,
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
    name = max((name for name in (*ROOMS, *UNTIL_MOVED) if within(module, name)), key=len)
    return UNTIL_MOVED.get(name, name)


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


def against_the_law() -> set[tuple[str, str]]:
    """Return modules, and what each imports from a room that its own room may not import."""
    rooms = {module: room_of(module) for arrow in arrows() for module in arrow}
    return {(a, b) for a, b in arrows() if rooms[a] != rooms[b] and rooms[b] not in LAW[rooms[a]]}


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


def test_imports_go_one_way() -> None:
    """No room imports a room that it may not import, also not within a function or for types."""
    assert against_the_law() == set()


def test_no_folder_grows_beyond_its_bound() -> None:
    """A folder has at most twenty files of Python; the fuller ones do not grow."""
    found = folders()
    assert found.keys() <= FULL_FOLDERS.keys()
    assert all(count <= FULL_FOLDERS[folder] for folder, count in found.items()), found


def test_no_more_small_modules_with_one_importer() -> None:
    """What only one module needs and is small stands there, or is no more than it is today."""
    assert len(lone_importers()) <= LONE_IMPORTERS, lone_importers()
