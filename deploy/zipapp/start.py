"""First module of ``ringward.pyz``: unpack the archive, then execute Ringward from there.

Python cannot load compiled modules from a zip file. The archive is therefore unpacked once, into a directory with the
layout of a virtual environment. The processes of Ringward start each other through its ``bin/python``::

    CACHE/KEY/                    KEY is a hash of the paths of the archive and of the interpreter
        current -> ID             the installed version; ID is the hash of the manifest
        ID/pyvenv.cfg
        ID/bin/python ->          the interpreter
        ID/lib/python3.11/site-packages/

Running processes use only ``current``. A new archive in the place of the old one is unpacked beside it, and ``current``
then points to it. For ``ringward upgrade``, that is an installation over the running version.

CACHE is RINGWARD_CACHE, or ``ringward`` in XDG_CACHE_HOME, /var/cache (root) or ~/.cache. Its content is executed, so
only its owner and root may be able to change it or a directory above it. Files that root unpacks are readable for
everyone, because API workers run as another user; files of other users are private.

The archive contains this file as ``__main__.py``, beside ``about.json`` (version, id, suffix of compiled modules),
``manifest.json`` (SHA-256 of each file) and ``site/``. It imports only the standard library.
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
_MAIN = "import sys; sys.argv.pop(0); from ringward import main; main()"
"""The program name in messages is the path of the archive."""
_REFUSED = 1
_NO_PLACE = 73
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def _fail(message: str, code: int) -> NoReturn:
    print(f"ringward: {message}", file=sys.stderr)
    raise SystemExit(code)


def place(environ: Mapping[str, str], euid: int) -> str:
    """Return the directory for unpacked archives."""
    if named := environ.get("RINGWARD_CACHE"):
        return os.path.abspath(named)
    base = environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: relative paths are ignored
        # For root, HOME is not used: sudo(8) may keep the caller's.
        base = "/var/cache" if euid == 0 else os.path.expanduser("~/.cache")
    if not os.path.isabs(base):
        _fail("there is no home directory to unpack to; name a directory in RINGWARD_CACHE", _NO_PLACE)
    return os.path.join(base, "ringward")


def make_safe(directory: str) -> str:
    """Create a directory that only this user can change, and return its path without symbolic links.

    Raises:
        SystemExit: another user could change its content, or it cannot be created.
    """
    try:
        os.makedirs(directory, exist_ok=True)
        path = directory = os.path.realpath(directory)
        while True:
            status = os.stat(path)
            if status.st_uid not in (0, os.geteuid()):
                _fail(f"nothing is unpacked to {directory}: {path} belongs to user {status.st_uid}", _NO_PLACE)
            # In a sticky directory, other users may create files, but not replace this one.
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
    """Write an environment to the empty directory `target`.

    Raises:
        ValueError, KeyError: the archive was modified.
        zipfile.BadZipFile, zlib.error, OSError: it cannot be read, or the disk is full.
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
            os.chmod(path, 0o755)  # noqa: S103 - a program, in an environment that every user may execute
    os.mkdir(f"{target}/bin")
    os.symlink(interpreter, f"{target}/bin/python")
    with open(f"{target}/pyvenv.cfg", "x", encoding="utf-8") as file:
        file.write(f"home = {os.path.dirname(interpreter)}\ninclude-system-site-packages = false\n")


@contextlib.contextmanager
def _alone(directory: str) -> Iterator[None]:
    """Lock the directory for this process."""
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
    """Make the archive at `path` the `current` environment in `home`.

    Raises:
        ValueError, KeyError, zipfile.BadZipFile, zlib.error, OSError: as :func:`unpack`.
    """
    with _alone(home):
        if _is_current(home, identity):  # another process was faster
            return
        for name in os.listdir(home):
            if name != _CURRENT and not _is_current(home, name):  # of an interrupted attempt
                shutil.rmtree(f"{home}/{name}")
        before = os.listdir(home)
        work = tempfile.mkdtemp(dir=home)
        os.chmod(work, stat.S_IMODE(os.stat(home).st_mode))  # not tempfile's
        try:
            with zipfile.ZipFile(path) as archive:
                unpack(archive, identity, work, interpreter)
            os.rename(work, f"{home}/{identity}")
        except BaseException:  # Ctrl-C must not leave a partial environment either
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
    """Unpack the archive if necessary, then execute its command line in place of this process."""
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
    os.execv(python, [python, "-I", "-c", _MAIN, path, *sys.argv[1:]])  # noqa: S606 - without a shell


if __name__ == "__main__":
    main()
