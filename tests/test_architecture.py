"""Names of modules, the modules that the root loads, and the shape of functions, proved by reading every file."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

PACKAGES = ("api", "logring", "store", "supervisor")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
SCHEDULER = ROOT / "supervisor" / "scheduler"
CLOCK_READERS = {
    "supervisor/root/__main__.py",
    "supervisor/root/handover/run_recovery.py",
    "supervisor/root/spawn/start_queue.py",
    "supervisor/scheduler/database/opening.py",
    "supervisor/scheduler/startup_shutdown/data_lock.py",
}
"""Modules that read a clock of the host or wait, before or after their loop."""


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> set[str]:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            imported.add(node.module or "")
            imported.update(f"{node.module}.{alias.name}" for alias in node.names)
    return imported


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


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_few_functions_have_many_parameters() -> None:
    """At most five functions have more than six parameters."""
    long_functions = []
    for path in FILES:
        for function in functions(path):
            every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            if len([arg for arg in every if arg.arg not in {"self", "cls"}]) > 6:
                long_functions.append(f"{path}: {function.name}")
    assert len(long_functions) <= 5, long_functions


def test_no_callback_is_bound_later() -> None:
    """No object begins with an empty callback that another object replaces later."""
    later = re.compile(r"^\s+self\.\w+(: .*)? = lambda", re.MULTILINE)
    assert [path for path in FILES if later.search(path.read_text())] == []


def test_builders_of_the_scheduler_are_short() -> None:
    """Each function that assembles the scheduler has fewer than 40 lines."""
    for function in functions(SCHEDULER / "assembly.py"):
        assert function.end_lineno is not None
        assert function.end_lineno - function.lineno + 1 < 40, function.name


def test_only_the_take_over_gets_the_whole_run_engine() -> None:
    """Parts of the scheduler receive only the calls of the run engine that they use; the take-over restores it."""
    users = {path.stem for path in SCHEDULER.rglob("*.py") if "runs.run_engine import" in path.read_text()}
    assert users == {"assembly", "take_over"}


def test_loops_read_their_own_clock() -> None:
    """The scheduler, the root and the streams read the clock of their loop, which a test can set."""
    reading = re.compile(r"\btime\.(monotonic|time|time_ns|monotonic_ns|clock_gettime|sleep)\b")
    rooms = (ROOT / "supervisor/root", SCHEDULER, ROOT / "api/streams")
    files = [path for path in FILES if any(path.is_relative_to(room) for room in rooms)]
    assert {str(path.relative_to(ROOT)) for path in files if reading.search(path.read_text())} == CLOCK_READERS
