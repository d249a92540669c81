"""Which packages the processes load at their start, and that they execute nothing meanwhile."""

import subprocess
import sys

import pytest

ROOT = (
    "supervisor.root.__main__",
    "supervisor.root.root_threads",
    "supervisor.root.spawn.zygote",
)
OTHERS = (
    "supervisor.scheduler.__main__",
    "supervisor.helpers.exporter.__main__",
    "supervisor.helpers.janitor.__main__",
    "supervisor.helpers.notifier.__main__",
    "supervisor.helpers.watcher.__main__",
    "supervisor.helpers.filewatcher.__main__",
    "api.serve",
    "api.server.arbiter",
    "supervisor.cli.commands.daemon.up",
)
_EXECUTING = {"subprocess.Popen", "os.posix_spawn", "os.fork"}
"""Audit events of Python."""


def report(module: str) -> set[str]:
    """Import a module in a new interpreter; return the modules that this added, and events of execution."""
    code = f"""
import sys
before = set(sys.modules)
sys.addaudithook(lambda event, _: print(event) if event in {_EXECUTING} else None)
import {module}
print(*(set(sys.modules) - before))
"""
    out = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(out.stdout.split())
    assert module in loaded
    return loaded


@pytest.mark.parametrize("module", ROOT)
def test_root_loads_no_external_package(module: str) -> None:
    """The root and its children load only the standard library and our own modules, never the API or the store."""
    packages = {name.partition(".")[0] for name in report(module)}
    assert packages <= sys.stdlib_module_names | {"logring", "supervisor"}


@pytest.mark.parametrize("module", ROOT + OTHERS)
def test_imports_execute_no_program(module: str) -> None:
    """No import of ours or of a library starts a program or forks."""
    assert not report(module) & _EXECUTING


def test_clients_do_not_load_the_table_of_keys() -> None:
    """A client command finds the socket in the configuration without the table of all its keys."""
    assert "supervisor.config.model" not in report("supervisor.config.client_keys")


@pytest.mark.parametrize("module", OTHERS)
def test_engine_is_loaded_for_patterns_only(module: str) -> None:
    """No process loads the engine of regular expressions before it needs a pattern."""
    assert "re2" not in report(module)
