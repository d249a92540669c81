"""What each process has in memory from its start: a module that few need is loaded by those few, when they do."""

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
_WORKERS = _GUNICORNS | {"gevent", "falcon", "zope", "asyncio", "msgspec"}

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


def test_what_is_hardly_used_is_loaded_by_its_use() -> None:
    """What gunicorn and Falcon import for other cases costs an API worker nothing, and is there when it is needed."""
    code = """
from api.postponed import HARDLY_USED, postpone
from supervisor.later import is_later, load, settle
postpone()
import api.server.arbiter, api.server.worker
import falcon, gunicorn.config, ssl, store.migrations.runner
gunicorn.config.Config().set("ssl_context", lambda config, make: None)
falcon.App(middleware=[]).add_error_handler(ValueError, lambda req, resp, ex, params: None)
store.migrations.runner.known()
settle()
print(isinstance(0, ssl.SSLSocket), issubclass(ssl.SSLError, OSError))
print(*(name for name in HARDLY_USED if not is_later(name)))
import asyncio, email.utils, html, importlib.metadata, inspect, platform
from http.cookiejar import CookieJar
print(html.escape("<"), importlib.metadata.version("falcon")[:2], len(CookieJar()), platform.uname().system)
print(email.utils.quote('"'), inspect.signature(lambda one, two=2: None), inspect.isclass(str), inspect.ismethod(str))
asyncio.Runner().run(asyncio.sleep(0))
load("ssl")
print(ssl.create_default_context().verify_mode.name, ssl.CERT_NONE.name, gunicorn.config.CertReqs.default.real)
print(*(name for name in HARDLY_USED if is_later(name)), hasattr(html, "no such thing"))
"""
    out = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines() == [
        "False True",
        "",
        "&lt; 4. 0 Linux",
        '\\" (one, two=2) True False',
        "CERT_REQUIRED CERT_NONE 0",
        "argparse logging.config logging.handlers typing_extensions xml.etree.ElementTree zope.interface False",
    ]
