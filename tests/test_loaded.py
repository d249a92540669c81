"""What each process has in memory from its start: a module that few need is loaded by those few, when they do."""

import subprocess
import sys

import pytest

# Each takes a megabyte or more, or 10 ms of every start.
_NEVER = {"psycopg", "psycopg2", "pymysql", "sqlite3", "rich", "psutil", "multiprocessing", "unittest", "pkg_resources"}
_API = {"gevent", "falcon", "gunicorn", "zope", "asyncio", "ssl", "email", "http", "re2"}
_OTHERS = {"importlib.metadata", "ulid", "click", "compression.zstd", "backports.zstd"}
_STORE = {"peewee", "apsw"}
_CONFIG = {"tomli", "croniter", "dateutil", "msgspec"}
_EVERYTHING = _NEVER | _API | _OTHERS | _STORE | _CONFIG
_GUNICORNS = {"gunicorn", "ssl", "email", "http", "importlib.metadata"}
_WORKERS = _GUNICORNS | {"gevent", "falcon", "zope", "asyncio", "msgspec"}

PROCESSES = {
    "supervisor.root.__main__": _EVERYTHING | {"logging", "subprocess", "pathlib", "decimal"},
    "supervisor.root.spawner": _EVERYTHING | {"subprocess", "pathlib", "json", "dataclasses", "typing"},
    "supervisor.scheduler.__main__": _EVERYTHING - _STORE - _CONFIG,
    "supervisor.janitor.__main__": _EVERYTHING - _STORE - {"compression.zstd", "backports.zstd"},
    "api.serve": _EVERYTHING - _GUNICORNS,
    "api.worker": _EVERYTHING - _WORKERS - _STORE,
    "supervisor.cli.commands.up": _EVERYTHING - {"click"},
}


@pytest.mark.parametrize("module", PROCESSES)
def test_what_is_not_needed_is_not_loaded(module: str) -> None:
    """A process begins without what belongs to others, whatever else is installed beside it."""
    code = f"import {module}, sys; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(out.stdout.split())
    assert module in loaded
    assert loaded & PROCESSES[module] == set()
