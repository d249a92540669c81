"""Which packages of others each process has in memory from its start."""

import subprocess
import sys

import pytest

# Each takes a megabyte or more, or 10 ms of every start.
_NEVER = {"psycopg", "psycopg2", "pymysql", "sqlite3", "rich", "psutil", "multiprocessing", "unittest", "pkg_resources"}
_API = {"gevent", "falcon", "gunicorn", "zope", "asyncio", "ssl", "email", "http", "re2"}
_OTHERS = {"importlib.metadata", "ulid", "click"}
_ZSTD = {"compression.zstd", "backports.zstd"}
_STORE = {"peewee", "apsw"}
_CONFIG = {"tomli", "croniter", "dateutil", "msgspec"}
_FOR_OTHERS = {"ast", "dateutil.tz.tz"}
"""Loaded by what was imported for one thing in it: inspect, dateutil.tz."""
_EXECUTING = {"subprocess.Popen", "os.posix_spawn", "os.fork"}
"""Audit events of Python; none of them belongs to a start."""
_EVERYTHING = _EXECUTING | _NEVER | _API | _OTHERS | _STORE | _CONFIG | _ZSTD
_GUNICORNS = {"gunicorn", "ssl", "email", "http", "importlib.metadata"}
_WORKERS = _GUNICORNS | {"gevent", "falcon", "zope", "asyncio", "msgspec", "psutil"}

PROCESSES = {
    "supervisor.root.assembly": _EVERYTHING | {"logging", "subprocess", "pathlib", "decimal"},
    "supervisor.root.spawner": _EVERYTHING | {"subprocess", "pathlib", "json", "dataclasses", "typing"},
    "supervisor.scheduler.__main__": (_EVERYTHING - _STORE - _CONFIG - _ZSTD) | _FOR_OTHERS,
    "supervisor.helpers.janitor.__main__": _EVERYTHING - _STORE - _ZSTD,
    "api.serve": _EVERYTHING,
    "api.server.arbiter": _EVERYTHING - _GUNICORNS,
    "api.server.worker": _EVERYTHING - _WORKERS - _STORE - _ZSTD,
    "supervisor.cli.commands.daemon.up": (_EVERYTHING - {"click"}) | _FOR_OTHERS,
}


@pytest.mark.parametrize("module", PROCESSES)
def test_what_is_not_needed_is_not_loaded(module: str) -> None:
    """A process begins without what belongs to others, and without executing anything, whatever else is installed."""
    code = f"""
import sys
sys.addaudithook(lambda event, _: print(event) if event in {_EXECUTING} else None)
import {module}
print(*(name for name, module in sys.modules.items() if type(module).__name__ != "_Later"))
"""
    out = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(out.stdout.split())
    assert module in loaded
    assert loaded & PROCESSES[module] == set()
