"""Libraries stay unchanged: we replace nothing in them, and use only their public names."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.test_architecture import FILES, module_of
from tests.test_loaded import OTHERS, ROOT

OURS = ("api", "logring", "store", "supervisor", "tests")

FIND = f"""
import sys

def ours(thing):
    return str(getattr(thing, "__module__", None)).partition(".")[0] in {OURS}

def entry(module):
    spec = getattr(module, "__spec__", None)
    return type(module).__name__, spec and spec.name

def foreign():
    for name, module in list(sys.modules.items()):
        if name != "__main__" and name.partition(".")[0] not in {OURS}:
            yield name, module

def held():
    for name, module in foreign():
        for key, value in list(vars(module).items()):
            if (isinstance(value, type) or callable(value)) and ours(value):
                yield name, key, getattr(value, "__name__", str(value))
            if isinstance(value, type) and not ours(value):
                for attribute, one in list(vars(value).items()):
                    if ours(one):
                        yield name, f"{{key}}.{{attribute}}", getattr(one, "__name__", str(one))

def own_entries():
    for name, module in list(sys.modules.items()):
        if name != "__main__" and name.partition(".")[0] in {OURS}:
            yield name, entry(module)

def report():
    return {{
        "held": list(held()),
        "foreign": [(name, entry(module)) for name, module in foreign()],
        "own": list(own_entries()),
    }}
"""
"""Source that defines ``report()``: our objects in foreign modules and classes, and the entries of sys.modules."""

FRESH = """
import contextlib, importlib, json, sys
names = json.load(sys.stdin)
for name in names:
    if name not in sys.modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
print(json.dumps([(name, entry(sys.modules[name])) for name in names if name in sys.modules]))
"""
"""Source, after `FIND`, that loads the named modules without ours, and prints their entries."""

LATER = {
    "supervisor.helpers.notifier.__main__": "from supervisor.helpers.notifier import delivery; delivery._apprise()",
}
"""Imports that a process makes with its first work."""

HOOKS = {
    ("gevent._gevent_c_hub_local", "Hub", "WorkerHub"): "set by gevent.hub.set_default_hub_class",
    ("gunicorn.workers.base", "WorkerTmp", "Heartbeat"): "gunicorn needs a writable directory, which a host may lack",
    ("requests.sessions", "HTTPAdapter", "InspectingAdapter"): "Apprise opens sessions itself and hides their answers",
}
"""Places where a module of a library holds an object of ours: module, name, object, reason."""


def run(code: str, text: str = "") -> Any:
    """Execute code in a new interpreter, and return its JSON output."""
    done = subprocess.run([sys.executable, "-I", "-c", code], input=text, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def assert_untouched(report: Any) -> None:
    """Assert that libraries hold no object of ours, and that imports made all entries of sys.modules."""
    assert {tuple(held_hook) for held_hook in report["held"]} <= HOOKS.keys()
    assert [name for name, entry in report["own"] if entry != ["module", name]] == []
    fresh = dict(run(FIND + FRESH, json.dumps([name for name, _ in report["foreign"]])))
    assert {name: entry for name, entry in report["foreign"] if entry != fresh.get(name)} == {}


@pytest.mark.parametrize("module", ROOT + OTHERS)
def test_libraries_hold_no_object_of_ours(module: str) -> None:
    """After a process has loaded its modules, no module or class of a library or of Python holds an object of ours."""
    code = f"import json, {module}\n{LATER.get(module, '')}\n{FIND}\nprint(json.dumps(report()))"
    assert_untouched(run(code))


def imported(tree: ast.Module) -> dict[str, str]:
    """Return the names in a file that stand for a foreign module or a part of one."""
    by_id = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                by_id[alias.asname or alias.name.partition(".")[0]] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                by_id[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Assign) and "import_module(" in ast.unparse(node.value):
            by_id |= {target.id: ast.unparse(node.value) for target in node.targets if isinstance(target, ast.Name)}
    return {name: whole for name, whole in by_id.items() if whole.partition(".")[0] not in OURS}


def root_of(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def tampering(tree: ast.Module) -> Iterator[str]:
    """Yield places that change a foreign module or class, or name a private part of one."""
    names = imported(tree)
    for node in ast.walk(tree):
        text = ast.unparse(node) if isinstance(node, ast.expr) else ""
        if isinstance(node, ast.Attribute) and root_of(node) in names:
            private = node.attr.startswith("_") and not node.attr.startswith("__") and text != "os._exit"
            if private or not isinstance(node.ctx, ast.Load):
                yield text
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] not in OURS:
            yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name.startswith("_"))
        elif isinstance(node, ast.Subscript) and text.startswith("sys.modules[") and not isinstance(node.ctx, ast.Load):
            yield text
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            of_others = called in ("setattr", "delattr", "vars") and node.args and root_of(node.args[0]) in names
            if of_others or called == "sys.modules.update":
                yield text


ALLOWED = {
    ("api.server.worker", "base.WorkerTmp"),
    ("supervisor.cli.entry", "sys.stderr"),
    ("supervisor.cli.entry", "sys.stdin"),
    ("supervisor.cli.entry", "sys.stdout"),
    ("supervisor.helpers.notifier.delivery", "sessions.HTTPAdapter"),
    ("supervisor.root.root_threads", "threading.excepthook"),
    ("supervisor.schedule.cron_fields", "platform.architecture"),
}
"""Module and place: hooks of Python, and names of libraries that have no hook."""


def test_no_file_changes_a_library() -> None:
    """No file assigns to an attribute of a foreign module or class, or uses a private name of one."""
    tamperings = {(module_of(path), place) for path in FILES for place in tampering(ast.parse(path.read_text()))}
    assert tamperings == ALLOWED
