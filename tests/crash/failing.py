"""A replacement for the daemon's Python that makes single write steps of its processes fail as planned.

    failing.py PLAN -I -m ringward PROCESS ARGUMENTS     PROCESS, with a check of PLAN at each step

``ringward up`` patches itself, because its process becomes the root.

A step is one call that creates, extends or replaces a file of the data directory or the runtime directory. Its label
consists of the process, the call, and the file without parts that differ between runs: ``root pwritev
logs/TASK/X/RUN.log``. SQLite's calls go through our own VFS, all others through :mod:`os`.

PLAN may come and go. Each of its lines has a label and an error number. When the step of the first line is reached, it
fails with this error and the line is removed; the file is removed with its last line. ``PLAN.reached`` has the labels
of all steps that were reached, one a line. Production code knows nothing of this.
"""

import builtins
import errno
import functools
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from ringward import run

_RUN = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")
_TASK = re.compile(r"logs/[^/]+")
_LOG = re.compile(r"logs/TASK/[^/]+")
_RUNTIME = re.compile(r"/(?:run|dev/shm)/ringward[^/]*/[^/]+/")
_open, _write, _close = os.open, os.write, os.close


class Steps:
    """The steps of one process.

    Args:
        path: Path of PLAN.
        process: Name of the process in labels.
    """

    def __init__(self, path: str, process: str) -> None:
        self._path = path
        self._process = process
        self._known: set[str] = set()

    def step(self, call: str, path: str | None) -> int:
        """Return the error with which the call must fail; 0: none."""
        name = None if path is None else _short(path)
        if name is None:
            return 0
        label = f"{self._process} {call} {name}"
        if label not in self._known:
            self._known.add(label)
            self._note(label)
        try:
            with builtins_open(self._path, encoding="utf-8") as file:
                first, *others = file.read().splitlines()
        except FileNotFoundError:
            return 0
        expected, _, number = first.rpartition(" ")
        if label != expected:
            return 0
        write_plan(self._path, others)
        return int(number)

    def _note(self, label: str) -> None:
        fd = _open(f"{self._path}.reached", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        _write(fd, f"{label}\n".encode())
        _close(fd)


builtins_open = builtins.open
_replace = os.replace


def write_plan(path: str, lines: list[str]) -> None:
    """Replace the plan atomically."""
    if not lines:
        os.unlink(path)
        return
    with builtins_open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    _replace(f"{path}.new", path)


def _short(path: str) -> str | None:
    """Return the path of a daemon's file without parts that differ between runs; None: not a file of the daemon."""
    data = os.environ["FAILING_DATA"] + "/"
    if path.startswith(data):
        return _RUN.sub("RUN", _LOG.sub("logs/TASK/X", _TASK.sub("logs/TASK", path.removeprefix(data))))
    match = _RUNTIME.match(path)
    return None if match is None else _RUN.sub("RUN", path[match.end() :].removesuffix(" (deleted)"))


def _of_fd(fd: int) -> str | None:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return None


def patch(steps: Steps) -> None:
    """Make the calls of this process steps."""

    def wrap(name: str, where: Callable[..., str | None]) -> None:
        function = getattr(os, name)

        @functools.wraps(function)
        def wrapped(*arguments: Any, **options: Any) -> Any:
            code = steps.step(name, where(*arguments))
            if code:
                raise OSError(code, os.strerror(code))
            return function(*arguments, **options)

        setattr(os, name, wrapped)

    for name in ("pwrite", "pwritev", "write", "ftruncate", "posix_fallocate", "fsync"):
        wrap(name, lambda fd, *_: _of_fd(fd))
    for name in ("rename", "replace"):
        wrap(name, lambda _from, to: str(to))
    wrap("mkdir", lambda path, *_: str(path))

    def opened(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        code = steps.step("create", str(path)) if flags & os.O_CREAT and not os.path.exists(path) else 0
        if code:
            raise OSError(code, os.strerror(code))
        return _open(path, flags, *arguments, **options)

    def text(path: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        code = steps.step("open", str(path)) if isinstance(path, (str, os.PathLike)) and "w" in mode else 0
        if code:
            raise OSError(code, os.strerror(code))
        return builtins_open(path, mode, *arguments, **options)

    os.open = opened
    builtins.open = text  # type: ignore[assignment]


def patch_sqlite(steps: Steps) -> None:
    """Make SQLite's file operations steps."""
    import apsw

    class File(apsw.VFSFile):
        def __init__(self, name: Any, flags: list[int]) -> None:
            self._path = name.filename() if isinstance(name, apsw.URIFilename) else name
            super().__init__("unix", name, flags)

        def _step(self, call: str) -> None:
            code = steps.step(call, self._path)
            if code == errno.ENOSPC:
                raise apsw.FullError("no room, as planned")
            if code:
                raise apsw.IOError("as planned")

        def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - apsw's name
            self._step("xWrite")
            super().xWrite(data, offset)

        def xTruncate(self, size: int) -> None:  # noqa: N802 - apsw's name
            self._step("xTruncate")
            super().xTruncate(size)

        def xSync(self, flags: int) -> None:  # noqa: N802 - apsw's name
            self._step("xSync")
            super().xSync(flags)

    class System(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("failing", "unix", makedefault=True)

        def xOpen(self, name: Any, flags: list[int]) -> File:  # noqa: N802 - apsw's name
            return File(name, flags)

    patch_sqlite.kept = System()  # type: ignore[attr-defined]


def main() -> None:
    plan, _, _, _, process, *arguments = sys.argv[1:]
    steps = Steps(plan, process)
    if process == "root":
        sys.executable = os.environ["FAILING_PYTHON"]
    if process in ("scheduler", "janitor"):
        patch_sqlite(steps)
    patch(steps)
    sys.argv = [process, *arguments]
    sys.exit(run(process))


if __name__ == "__main__":
    main()
