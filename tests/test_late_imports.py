"""Long-lived processes import nothing of ours after their start: an installer can have replaced the files by then."""

import ast
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from tests.test_architecture import FILES, module_of

PATHS = {module_of(path): path for path in FILES}
PROCESSES = {
    "root": ("supervisor.root.__main__",),
    "spawner": ("supervisor.root.spawn.zygote",),
    "scheduler": ("supervisor.scheduler.__main__",),
    "watcher": ("supervisor.helpers.watcher.__main__",),
    "filewatcher": ("supervisor.helpers.filewatcher.__main__",),
    "janitor": ("supervisor.helpers.janitor.__main__",),
    "notifier": ("supervisor.helpers.notifier.__main__",),
    "exporter": ("supervisor.helpers.exporter.__main__",),
    "sinks": (
        "supervisor.helpers.exporter.file_sink",
        "supervisor.helpers.exporter.loki_sink",
        "supervisor.helpers.exporter.otlp_sink",
        "supervisor.helpers.exporter.socket_sinks",
    ),
    "gunicorn": ("api.serve", "api.server.arbiter", "api.server.worker"),
}
"""The first modules of each process; sinks: the modules that an exporter loads with its job."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_WHOLE = "a package of others, which is loaded whole, whichever release it is"
_DRIVER = "the driver of a database, which a process opens as the first thing that it does"
_SINK = "an exporter imports the one of its type as soon as it has its job: each type only its own libraries"
LATE = {
    ("logring.regex", "re2"): _WHOLE,
    ("logring.logfile.zstd", "backports.zstd"): _WHOLE,
    ("store.database", "store.backends.postgres"): _DRIVER,
    ("store.migrations.runner", "f'store.migrations.{name}'"): "called when the module is loaded",
    ("supervisor.startup.host_check", "psycopg"): _DRIVER,
    ("supervisor.helpers.exporter.__main__", "supervisor.helpers.exporter.file_sink"): _SINK,
    ("supervisor.helpers.exporter.__main__", "supervisor.helpers.exporter.loki_sink"): _SINK,
    ("supervisor.helpers.exporter.__main__", "supervisor.helpers.exporter.otlp_sink"): _SINK,
    ("supervisor.helpers.exporter.__main__", "supervisor.helpers.exporter.socket_sinks"): _SINK,
    ("supervisor.helpers.notifier.delivery", "apprise"): _WHOLE,
    ("supervisor.schedule.calendars", "holidays"): _WHOLE,
    ("supervisor.config.calendar_files", "holidays"): _WHOLE,
    ("supervisor.helpers.notifier.delivery", "requests.sessions"): _WHOLE,
}
"""Module, its import within a function, and the reason why that cannot break."""


def names_of(node: ast.AST) -> list[str]:
    """Return the names in an import; for ``from a import b`` both a and a.b."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        name = node.args[0]
        return [str(name.value) if isinstance(name, ast.Constant) else ast.unparse(name)]
    return []


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(node: ast.AST, *, late: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield all imports below a node, and whether each is within a function."""
    for child in ast.iter_child_nodes(node):
        if not is_for_types(child):
            for name in names_of(child):
                yield name, late
            yield from imports(child, late=late or isinstance(child, FUNCTIONS))


@cache
def imports_of(module: str) -> frozenset[tuple[str, bool]]:
    return frozenset(imports(ast.parse(PATHS[module].read_text())))


def with_parents(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts) + 1)} & PATHS.keys()


def loaded(entries: tuple[str, ...]) -> set[str]:
    """Return our modules that a process has in memory from its start."""
    assert set(entries) <= PATHS.keys()
    seen: set[str] = set()
    waiting = set().union(*(with_parents(entry) for entry in entries))
    while waiting:
        module = waiting.pop()
        seen.add(module)
        for name, late in imports_of(module):
            if not late:
                waiting |= with_parents(name) - seen
    return seen


def late_imports(entries: tuple[str, ...]) -> set[tuple[str, str]]:
    """Yield modules and their imports within functions, except modules loaded at the start or part of Python."""
    there = loaded(entries)
    named = {module: {name for name, _ in imports_of(module)} for module in there}
    pairs = set()
    for module in there:
        for name, late in imports_of(module):
            if not late or name in there or name.split(".")[0] in sys.stdlib_module_names | {"compression"}:
                continue
            # A name that is no module of ours is an attribute of a listed module.
            if name in PATHS or name.rpartition(".")[0] not in named[module]:
                pairs.add((module, name))
    return pairs


@pytest.mark.parametrize("process", PROCESSES)
def test_no_late_imports(process: str) -> None:
    """A process loads all our modules at its start; the list names each external package that it loads later."""
    assert late_imports(PROCESSES[process]) <= LATE.keys()


def test_list_matches_the_imports() -> None:
    """Each entry of the list is an import that exists."""
    assert set(LATE) == set().union(*map(late_imports, PROCESSES.values()))
