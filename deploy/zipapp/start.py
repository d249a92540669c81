"""What ``ringward.pyz`` does first: unpack what it carries, then execute Ringward from there.

Compiled modules cannot be loaded out of a zip file. So all of it is unpacked once, into what looks like a virtual
environment, and our processes start each other through its ``bin/python`` as in any other::

    CACHE/KEY/                    KEY is made of the paths of the archive and of the interpreter
        current -> ID             what is installed; ID is the hash of the manifest
        ID/pyvenv.cfg
        ID/bin/python ->          the interpreter
        ID/lib/python3.11/site-packages/

Everything that runs knows only ``current``. An archive that takes the old one's place is unpacked beside it, and then
``current`` leads there: that is an installation over the one that runs, for ``ringward upgrade``.

CACHE is RINGWARD_CACHE, else ``ringward`` in XDG_CACHE_HOME, /var/cache (root) or ~/.cache. What is in it will be
executed, so nobody but its owner and root may be able to change it, nor any directory above it. What root unpacks
everybody may read, since the daemon's API workers become another user; what others unpack is theirs alone.

This file stands in the archive as ``__main__.py``, beside ``about.json`` (version, id, suffix of compiled modules),
``manifest.json`` (SHA-256 of each file) and ``site/``. It imports the standard library alone.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import sys
import sysconfig
import tempfile
import zipfile
import zipimport
import zlib
from collections.abc import Iterator, Mapping
from typing import NoReturn

_CURRENT = "current"
_MAIN = "import sys; sys.argv.pop(0); from supervisor.cli.entry import main; main()"
"""The archive is the name under which the program was called."""
_REFUSED = 1
_NO_PLACE = 73
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def _fail(message: str, code: int) -> NoReturn:
    print(f"ringward: {message}", file=sys.stderr)
    raise SystemExit(code)


def place(environ: Mapping[str, str], euid: int) -> str:
    """The directory below which things are unpacked."""
    if named := environ.get("RINGWARD_CACHE"):
        return os.path.abspath(named)
    base = environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: a relative one is to be ignored
        # That of root is not looked for in HOME, which sudo(8) may leave as the caller's.
        base = "/var/cache" if euid == 0 else os.path.expanduser("~/.cache")
    if not os.path.isabs(base):
        _fail("there is no home directory to unpack to; name a directory in RINGWARD_CACHE", _NO_PLACE)
    return os.path.join(base, "ringward")


def make_safe(directory: str) -> str:
    """Make a directory that only we can change, where it is not there; returns its path without symbolic links.

    Raises:
        SystemExit: somebody else could change what is in it, or it cannot be made.
    """
    try:
        os.makedirs(directory, exist_ok=True)
        path = directory = os.path.realpath(directory)
        while True:
            status = os.stat(path)
            if status.st_uid not in (0, os.geteuid()):
                _fail(f"nothing is unpacked to {directory}: {path} belongs to user {status.st_uid}", _NO_PLACE)
            # In a sticky directory others may make files, but not replace ours.
            if status.st_mode & _OTHERS and (path == directory or not status.st_mode & stat.S_ISVTX):
                _fail(
                    f"nothing is unpacked to {directory}: others may write to {path}; "
                    f"chmod go-w {path}, or name another directory in RINGWARD_CACHE",
                    _NO_PLACE,
                )
            if path == "/":
                return directory
            path = os.path.dirname(path)
    except OSError as err:
        _fail(f"nothing can be unpacked to {directory}: {err.filename}: {err.strerror}", _NO_PLACE)


def unpack(archive: zipfile.ZipFile, identity: str, target: str, interpreter: str) -> None:
    """Write an environment to the directory `target`, which is empty.

    Raises:
        ValueError, KeyError: the archive does not hold what it was made of.
        zipfile.BadZipFile, zlib.error, OSError: it cannot be read; there is no room.
    """
    manifest = archive.read("manifest.json")
    if hashlib.sha256(manifest).hexdigest() != identity:
        raise ValueError("its manifest was changed")
    site = sysconfig.get_path("purelib", "venv", {"base": target})
    for name, wanted in json.loads(manifest).items():
        data = archive.read(f"site/{name}")
        if hashlib.sha256(data).hexdigest() != wanted:
            raise ValueError(f"{name} was changed")
        path = os.path.join(site, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "xb") as file:
            file.write(data)
        if data.startswith(b"#!"):
            os.chmod(path, 0o755)  # noqa: S103 - a program, in an environment that everybody may execute
    os.mkdir(f"{target}/bin")
    os.symlink(interpreter, f"{target}/bin/python")
    with open(f"{target}/pyvenv.cfg", "x", encoding="utf-8") as file:
        file.write(f"home = {os.path.dirname(interpreter)}\ninclude-system-site-packages = false\n")


@contextlib.contextmanager
def _alone(directory: str) -> Iterator[None]:
    """Until the end nobody else is at work there."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _is_current(home: str, identity: str) -> bool:
    with contextlib.suppress(OSError):  # ENOENT
        return os.readlink(f"{home}/{_CURRENT}") == identity
    return False


def install(path: str, home: str, identity: str, interpreter: str) -> None:
    """Make `current` in `home` the environment of the archive at `path`.

    Raises:
        ValueError, KeyError, zipfile.BadZipFile, zlib.error, OSError: as :func:`unpack`.
    """
    with _alone(home):
        if _is_current(home, identity):  # somebody else was faster
            return
        for name in os.listdir(home):
            if name != _CURRENT and not _is_current(home, name):  # of an attempt that did not come to its end
                shutil.rmtree(f"{home}/{name}")
        before = os.listdir(home)
        work = tempfile.mkdtemp(dir=home)
        os.chmod(work, stat.S_IMODE(os.stat(home).st_mode))  # not tempfile's
        try:
            with zipfile.ZipFile(path) as archive:
                unpack(archive, identity, work, interpreter)
            os.rename(work, f"{home}/{identity}")
        except BaseException:  # Ctrl-C, too, leaves nothing half made
            shutil.rmtree(work)
            raise
        link = os.path.join(tempfile.mkdtemp(dir=home), _CURRENT)
        os.symlink(identity, link)
        os.replace(link, f"{home}/{_CURRENT}")
        os.rmdir(os.path.dirname(link))
        for name in before:
            if name != _CURRENT:
                shutil.rmtree(f"{home}/{name}")


def main() -> NoReturn:
    """Take the place of this process with the command line of what was unpacked."""
    path = os.path.abspath(os.path.dirname(__file__))
    about = json.loads(zipimport.zipimporter(path).get_data("about.json"))
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    if suffix != about["suffix"]:
        _fail(f"{path} needs a Python whose compiled modules end in {about['suffix']}, this one's: {suffix}", _REFUSED)
    interpreter = os.path.abspath(getattr(sys, "_base_executable", sys.executable))
    key = hashlib.sha256(f"{path}\0{interpreter}".encode()).hexdigest()[:32]
    umask = os.umask(0o022 if os.geteuid() == 0 else 0o077)
    home = make_safe(os.path.join(make_safe(place(os.environ, os.geteuid())), key))
    if not _is_current(home, about["id"]):
        if os.statvfs(home).f_flag & os.ST_NOEXEC:
            _fail(f"{home} is mounted noexec; name another directory in RINGWARD_CACHE", _NO_PLACE)
        try:
            install(path, home, about["id"], interpreter)
        except (ValueError, KeyError, zipfile.BadZipFile, zlib.error) as err:
            _fail(f"{path} is damaged: {err}", _REFUSED)
        except OSError as err:
            _fail(f"{path} cannot be unpacked to {home}: {err.strerror}", _NO_PLACE)
    os.umask(umask)
    python = f"{home}/{_CURRENT}/bin/python"
    os.execv(python, [python, "-I", "-c", _MAIN, path, *sys.argv[1:]])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
