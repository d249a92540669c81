"""The environment of the daemons that tests start: Ringward and its dependencies, without extras and development tools.

Most users have such an environment. A daemon starts a fifth faster in it. Gevent reads the metadata of all installed
packages many times when it patches modules, and peewee imports each database driver that it finds.
"""

import fcntl
import importlib.metadata
import shutil
import sys
import sysconfig
import venv
from pathlib import Path

from deploy.release.materials import needs
from tests.support.paths import ROOT

_MADE_FOR = "made-for"
# The kernel would split the interpreter's path at spaces. To Python, the lines of the shell are a string.
_SCRIPT = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys
from ringward import main
sys.exit(main())
"""


def environment(*without: str) -> Path:
    """Return its directory, below the environment of the tests; make it again after an installation there.

    `without` names distributions that it lacks.
    """
    directory = Path(sys.prefix, "-without-".join(("daemon", *without)))
    if not _is_current(directory):
        with directory.with_name(f"{directory.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_current(directory):  # another process of this test run may have made it
                shutil.rmtree(directory, ignore_errors=True)
                _make(directory, {"ringward", *without})
    return directory


def _is_current(directory: Path) -> bool:
    made_for = directory / _MADE_FOR
    return made_for.exists() and made_for.read_text() == _installed()


def _installed() -> str:
    """Return a text that each installation changes."""
    return f"{sys.version} {Path(sysconfig.get_path('purelib')).stat().st_mtime_ns}"


def _make(directory: Path, without: set[str]) -> None:
    venv.EnvBuilder(symlinks=True, with_pip=False).create(directory)
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "ringward.pth").write_text(f"{ROOT}\n")
    for distribution in map(importlib.metadata.distribution, needs(extras="").keys() - without):
        for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            if not (packages / name).exists():  # packages of several distributions are in one directory
                (packages / name).symlink_to(Path(str(distribution.locate_file(name))))
    program = directory / "bin" / "ringward"
    program.write_text(_SCRIPT.format(python=directory / "bin" / "python"))
    program.chmod(0o755)
    (directory / _MADE_FOR).write_text(_installed())
