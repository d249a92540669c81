"""Things that the root never does, as its package's docstring lists them."""

import ast
import sys
from collections.abc import Callable, Iterator
from functools import cache

import pytest

import supervisor.root
from tests.test_architecture import FILES, imports_of, module_of, within
from tests.test_late_imports import LATE, PROCESSES, late_imports

PATHS = {module_of(path): path for path in FILES}
ROOT = "supervisor.root"
_OTHERS = ("api", "store", "supervisor.scheduler", "supervisor.config", "supervisor.startup", "supervisor.cli")
_CONTROL = tuple(f"{ROOT}.{room}" for room in ("loop", "process", "service_manager"))
_DATA = {"sqlite3", "dbm", "tomllib", "configparser", "pickle", "shelve", "marshal", "pwd", "grp", "subprocess"}
_NETWORK = {"http", "urllib", "ssl", "smtplib", "asyncio", "socketserver", "ftplib", "xmlrpc"}
_LOOKUPS = {
    "getaddrinfo",
    "gethostbyname",
    "gethostbyaddr",
    "getfqdn",
    "getnameinfo",
    "getpwnam",
    "getpwuid",
    "getgrnam",
}
_FILES = {"open", "fsync", "fdatasync"}
_TRIAL = f"{ROOT}.handover.inherited_state"
"""Its function `check` runs in a separate process with one thread, which tries a version."""


@cache
def loaded() -> frozenset[str]:
    """Return all modules of the project that the root imports, directly or indirectly."""
    waiting = [name for name in PATHS if within(name, ROOT)]
    seen = set(waiting)
    while waiting:
        new = {name for name in imports_of(PATHS[waiting.pop()]) if name in PATHS} - seen
        seen |= new
        waiting += new
    return frozenset(seen)


def foreign() -> set[str]:
    """Return the top-level names of all other modules that these import."""
    names = {name for module in loaded() for name in imports_of(PATHS[module])}
    return {name.split(".")[0] for name in names if not within_ours(name)}


def within_ours(name: str) -> bool:
    return name in PATHS or name.rpartition(".")[0] in PATHS


def calls(*rooms: str) -> Iterator[tuple[str, str, ast.Call]]:
    """Yield the module, the function's name and the node of each call in the rooms."""
    for module in loaded():
        if any(within(module, room) for room in rooms):
            for node in ast.walk(ast.parse(PATHS[module].read_text())):
                if isinstance(node, ast.Call):
                    yield module, ast.unparse(node.func), node


def called(names: set[str], *rooms: str) -> set[tuple[str, str]]:
    """Return the calls of these functions of Python or its modules, with their places."""
    modules = {"", "os", "os.path", "shutil", "socket", "pwd", "grp", "io"}
    return {
        (module, name)
        for module, name, _ in calls(*rooms)
        if name.rpartition(".")[2] in names and name.rpartition(".")[0] in modules
    }


def third_party() -> object:
    return foreign() - sys.stdlib_module_names


def other_rooms() -> object:
    return {name for name in loaded() if any(within(name, room) for room in _OTHERS)}


def late() -> object:
    return {entry for entry in late_imports(PROCESSES["root"]) if entry not in LATE or within(entry[1], "supervisor")}


def data() -> object:
    return foreign() & (_DATA - {"marshal"})


def lookups() -> object:
    return called(_LOOKUPS, "supervisor", "logring")


def network() -> object:
    sockets = [
        (module, ast.unparse(node))
        for module, name, node in calls(ROOT)
        if name == "socket.socket" and not {"AF_UNIX", "fileno"} & set(words(node))
    ]
    return foreign() & _NETWORK or sockets or called({"create_connection", "create_server"}, "supervisor", "logring")


def words(node: ast.Call) -> list[str]:
    return [part.arg or "" for part in node.keywords] + [
        ast.unparse(decorator).rpartition(".")[2] for decorator in node.args
    ]


def forks() -> object:
    return {module for module, name in called({"fork", "forkpty", "system", "popen"}, "supervisor")} - {_TRIAL}


def files() -> object:
    return called(_FILES, *_CONTROL)


def waits() -> object:
    """Return the calls that wait for a process, except after an event of its pidfd."""
    after_its_event = {
        f"{ROOT}.loop.control_thread",
        f"{ROOT}.handover.upgrade",
        f"{ROOT}.process.process_tree",
        _TRIAL,
    }
    return {
        (module, name)
        for module, name, node in calls(ROOT)
        if name in ("os.wait", "os.waitpid", "os.wait4", "os.waitid") and "WNOHANG" not in ast.unparse(node)
    } - {(module, "os.waitpid") for module in after_its_event}


def code() -> object:
    return called({"eval", "exec", "compile"}, "supervisor", "logring") or foreign() & {"pickle", "shelve"}


CHECKS: dict[str, Callable[[], object]] = {
    "imports a third-party package": third_party,
    "imports the scheduler, the API server, the store or the configuration": other_rooms,
    "loads a module after its start": late,
    "opens a database, reads the configuration, or parses TOML": data,
    "resolves the name of a host, a user or a group": lookups,
    "makes a network connection: all sockets that it creates are Unix sockets": network,
    "forks: processes come from posix_spawn(3), or from the zygote": forks,
    "opens or syncs a file in the code of the control loop, of processes and of signals": files,
    "waits for a process that has not exited": waits,
    "evaluates text as code, or loads pickled objects": code,
}
"""A function that finds contradictions, by line of the list."""


def test_each_line_is_checked() -> None:
    """The list in the root's docstring matches the checks here."""
    lines = (supervisor.root.__doc__ or "").splitlines()
    assert [line.removeprefix("* ") for line in lines if line.startswith("* ")] == list(CHECKS)


@pytest.mark.parametrize("line", CHECKS)
def test_root_obeys_the_line(line: str) -> None:
    """Nothing in the root, or in the modules that it imports, contradicts the line."""
    assert not CHECKS[line]()
