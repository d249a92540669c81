"""The import direction, proved by reading every file."""

import ast
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PACKAGES = ("api", "logring", "store", "supervisor")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

# Who may import what of ours. A longer prefix wins.
ALLOWED = {
    "logring": {"logring"},
    "store": {"store"},
    "supervisor": {"supervisor", "store", "logring"},
    "supervisor.root": {
        "supervisor.root",
        "supervisor.begun",
        "supervisor.cgroupnames",
        "supervisor.messages",
        "supervisor.counted",
        "supervisor.dataclass",
        "supervisor.doorbell",
        "supervisor.logline",
        "supervisor.osport",
        "supervisor.environ",
        "supervisor.prepare",
        "supervisor.shared_memory",
        "supervisor.version",
        "logring",
    },
    "supervisor.janitor": {
        "supervisor.janitor",
        "supervisor.counted",
        "supervisor.logline",
        "supervisor.osport",
        "store",
        "logring",
    },
    "supervisor.watcher": {
        "supervisor.watcher",
        "supervisor.messages",
        "supervisor.doorbell",
        "supervisor.environ",
        "supervisor.osport",
        "supervisor.prepare",
        "supervisor.root.processes",
        "logring",
    },
    "supervisor.notify": {
        "supervisor.notify",
        "supervisor.config.model",
        "supervisor.dataclass",
        "supervisor.zones",
        "store.deliveries",
    },
    "supervisor.notifier": {"supervisor.notifier", "supervisor.messages", "supervisor.osport", "logring"},
    "supervisor.messages": {"supervisor.dataclass", "supervisor.version"},
    "supervisor.frames": {"supervisor.messages"},
    "supervisor.dataclass": {"supervisor.later"},
    "supervisor.later": set(),
    "supervisor.begun": set(),
    "supervisor.cgroupnames": set(),
    "supervisor.counted": set(),
    "supervisor.osport": set(),
    "supervisor.environ": set(),
    "supervisor.logline": set(),
    "supervisor.parents": set(),
    "supervisor.prepare": set(),
    "supervisor.run_token": set(),
    "supervisor.shared_memory": set(),
    "supervisor.synonyms": set(),
    "supervisor.version": set(),
    "supervisor.zones": set(),
    "supervisor.doorbell": {"supervisor.osport"},
    "supervisor.client": {"supervisor.frames", "supervisor.messages"},
    "supervisor.config": {
        "supervisor.config",
        "supervisor.dataclass",
        "supervisor.logline",
        "supervisor.notify.kinds",
        "supervisor.prepare",
        "supervisor.run_token",
        "supervisor.scheduler.cron",
        "supervisor.synonyms",
        "supervisor.zones",
        "logring.mask",
        "logring.search",
    },
    "supervisor.cli": {"supervisor", "logring"},
    "api": {
        "api",
        "store",
        "logring",
        "supervisor.messages",
        "supervisor.client",
        "supervisor.dataclass",
        "supervisor.doorbell",
        "supervisor.later",
        "supervisor.osport",
        "supervisor.run_token",
        "supervisor.version",
    },
}
# fmt: off
PYPI_SUPERVISOR = {
    "childutils", "confecho", "datatypes", "dispatchers", "events", "http", "loggers", "medusa", "options", "pidproxy",
    "poller", "process", "rpcinterface", "skel", "socket_manager", "states", "supervisorctl", "supervisord",
    "templating", "web", "xmlrpc",
}
# fmt: on


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


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    """A module imports of ours only what its place allows."""
    module = module_of(path)
    rule = max((prefix for prefix in ALLOWED if within(module, prefix)), key=len)
    for name in imports_of(path):
        if name.split(".")[0] in PACKAGES and name not in PACKAGES:
            allowed = any(within(name, prefix) for prefix in ALLOWED[rule])
            # `from supervisor import osport` names the package first; its member is checked as well.
            parents = {prefix.rpartition(".")[0] for prefix in ALLOWED[rule]}
            assert allowed or name in parents, f"{module} imports {name}"


def test_names_are_free() -> None:
    """No module is named like one of the standard library or of PyPI's supervisor distribution."""
    for path in FILES:
        name = path.stem if path.stem != "__init__" else path.parent.name
        if not name.startswith("__"):
            assert path.parent != ROOT / "supervisor" or name not in PYPI_SUPERVISOR, path
            assert name not in sys.stdlib_module_names, path


def test_the_root_is_standard_library_only() -> None:
    """The process that everything hangs on needs nothing that is installed, nor does what it imports of ours."""
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
    assert "logring.writer" in seen
