"""The user of API workers. Workers of root's daemon run as a user that can only read the data that they show."""

import os
import pwd
import shlex
import sys
from importlib.util import find_spec

from msgspec import Struct, field

from supervisor.config.daemon_tables import Http
from supervisor.config.files.lookup import API_USER, SYSTEM_DATA
from supervisor.config.problems import UnusableObject
from supervisor.host.files import nearest_existing
from supervisor.host.osport import become
from supervisor.host.unix_accounts import system_user

_KEY = ("http", "user")
_MAX_PATH_BYTES = 4096
_OURS = ("api", "supervisor", "store", "logring")
_THEIRS = ("falcon", "gunicorn", "gevent", "greenlet", "zope", "msgspec", "peewee", "playhouse", "apsw", "psycopg")
LOGS = "logs"
"""Name of the directory of logs in the data directory."""


class ApiUser(Struct, frozen=True):
    """The user of API workers."""

    account: tuple[int, int] | None = None
    """Numeric ids of the user and its group; None means the daemon's user."""
    groups: list[int] = field(default_factory=list)
    warning: str | None = None
    """Why the workers have more rights than they need, or than the configuration asks for."""
    remedy: str | None = None


def resolve_api_user(http: Http) -> ApiUser:
    """Return the user that the configuration names, else the usual one if this host has it.

    Raises:
        UnusableObject: the configuration names a user that does not exist.
    """
    if os.geteuid() != 0:
        return ApiUser(warning=_not_root(http.user), remedy="start it as root, or remove user from [http]")
    name = http.user or API_USER
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        remedy = f"run: {' && '.join(map(shlex.join, system_user(name, SYSTEM_DATA)))}"
        if http.user is not None:
            raise UnusableObject(f"no such user on this host: {name}", remedy, path=_KEY) from None
        return ApiUser(warning=f"API workers run as root: user {name} does not exist", remedy=remedy)
    if entry.pw_uid == 0:
        return ApiUser()
    return ApiUser((entry.pw_uid, entry.pw_gid), os.getgrouplist(name, entry.pw_gid))


def _not_root(name: str | None) -> str | None:
    own = os.geteuid()
    try:
        own_name = pwd.getpwuid(own).pw_name
    except KeyError:
        own_name = str(own)
    if name in (None, own_name):
        return None
    return f"API workers run as {own_name}, like the daemon, and not as {name}: only root can switch users"


def within_reach(user: ApiUser, http: Http, data_dir: str) -> ApiUser:
    """Return `user` if it can reach the program and the data directory, else the daemon's user with a warning.

    Raises:
        UnusableObject: the configuration names a user that cannot reach them.
    """
    if user.account is None:
        return user
    # The directory of logs may be a link to another disk.
    logs = os.path.join(data_dir, LOGS)
    directories = [os.path.realpath(path) for path in (data_dir, *([logs] if os.path.islink(logs) else []))]
    above = [nearest_existing(os.path.dirname(path)) for path in directories]
    kept_from = obstacle(user, [sys.executable, os.__file__, *_installed(), *above])
    if kept_from is None:
        return user
    name = http.user or API_USER
    message = f"user {name} cannot enter or read {kept_from}, and API workers need it"
    remedy = f"run: chmod o+rx {kept_from}; or install Ringward elsewhere, or set another data_dir"
    if http.user is not None:
        raise UnusableObject(message, remedy, path=_KEY)
    return ApiUser(warning=f"API workers run as root: {message}", remedy=remedy)


def _installed() -> list[str]:
    """Return the directories of all packages that API workers load; pip may have given them restrictive modes."""
    specs = filter(None, map(find_spec, (*_OURS, *_THEIRS)))
    return [path for spec in specs for path in spec.submodule_search_locations or filter(None, [spec.origin])]


def obstacle(user: ApiUser, paths: list[str]) -> str | None:
    """Return the first file or directory that `user` cannot read or enter, but must in order to read `paths`.

    A child process becomes the user and tries, because only the kernel knows all rules of a file system. None means
    that all paths are readable.

    Raises:
        OSError: no child process can be created.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            become(*user.account or (0, 0), user.groups)
            barrier = next(filter(None, map(_kept_from, paths)), "")
            os.write(writing, b"+" + os.fsencode(barrier)[: _MAX_PATH_BYTES - 1])
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        content = file.read(_MAX_PATH_BYTES)
    os.waitpid(pid, 0)
    if not content:
        return paths[0]  # the child failed to become the user
    return os.fsdecode(content[1:]) or None


def _kept_from(path: str) -> str | None:
    above = []
    parent = os.path.realpath(path)
    while parent != "/":
        parent = os.path.dirname(parent)
        above.append(parent)
    for directory in reversed(above):
        if not os.access(directory, os.X_OK):
            return directory
    return None if os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0)) else path
