"""Checks whether this host can satisfy a valid configuration, for ``up``, ``validate``, ``doctor`` and reloads."""

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct

from supervisor.config.daemon_tables import Export
from supervisor.config.files.lookup import SOCKET_NAME
from supervisor.config.files.positions import KeyPath
from supervisor.config.files.reading import read_source
from supervisor.config.model import Config
from supervisor.config.problems import ConfigError, Problem, UnusableObject
from supervisor.ipc.messages import IdentityHeaders
from supervisor.startup import admin_password, api_exposure, api_user
from supervisor.startup.admin_password import Password
from supervisor.startup.api_user import ApiUser

_OTLP_EXPORTER = "opentelemetry.exporter.otlp.proto.http"
MAX_SOCKET_PATH_BYTES = 107
"""The size of sun_path (unix(7)) without the terminating NUL."""


class HostValues(Struct, frozen=True):
    """Values of a configuration that this host determines."""

    hosts: list[str]
    """Names by which clients may reach the API."""
    socket_gid: int | None
    """Id of the group that may connect to the Unix socket; None if only the owner may."""
    api_user: ApiUser
    password: Password
    identity: IdentityHeaders | None


def check_host(config: Config, environ: Mapping[str, str]) -> HostValues:
    """Check and resolve the files, users and groups that `config` names.

    Args:
        config: a valid configuration.
        environ: the environment, which may contain the password.

    Raises:
        ConfigError: some of them cannot be used; it lists all, each with its key.
    """
    wrong: list[UnusableObject] = []
    with _collecting(wrong):
        hosts = api_exposure.hosts_of(config.http)
    with _collecting(wrong):
        gid = api_exposure.socket_gid_of(config.http)
    with _collecting(wrong):
        user = api_user.resolve_api_user(config.http)
    with _collecting(wrong):
        password = admin_password.resolve_password(environ, config.http.password_file)
    with _collecting(wrong):
        identity = api_exposure.identity_of(config.http.identity)
    for export in config.exports.values():
        with _collecting(wrong):
            _check_sdk(export)
    if wrong:
        raise _not_usable(config, wrong)
    return HostValues(hosts, gid, user, password, identity)


def reaching(user: ApiUser, config: Config, directory: str) -> ApiUser:
    """Return the user of API workers: `user` if it can reach the data directory `directory`, else the daemon's.

    Raises:
        ConfigError: the configuration names a user that cannot reach it.
    """
    try:
        return api_user.within_reach(user, config.http, directory)
    except UnusableObject as err:
        raise _not_usable(config, [err]) from err


def check_paths(config: Config, directory: str) -> str:
    """Return the path of the Unix socket for the data directory `directory`, after checking sockets and database.

    Raises:
        ConfigError: a socket cannot be bound, or the database cannot be used; it lists all reasons.
    """
    wrong: list[UnusableObject] = []
    socket = config.http.socket or os.path.join(directory, SOCKET_NAME)
    with _collecting(wrong):
        _check_text(config.path)
    with _collecting(wrong):
        _check_socket(socket, ("http", "socket") if config.http.socket is not None else None)
    if config.http.proxy_socket is not None:
        with _collecting(wrong):
            _check_proxy_socket(config.http.proxy_socket, socket)
    with _collecting(wrong):
        _check_driver(config)
    if wrong:
        raise _not_usable(config, wrong)
    return socket


def _not_usable(config: Config, wrong: list[UnusableObject]) -> ConfigError:
    """Return an error with each reason as a problem of the main file; included files have no such keys.

    Raises:
        ConfigError: the file is no longer readable.
    """
    main = read_source(config.path)
    return ConfigError(
        main.problem(err.path, str(err), err.remedy)
        if main.positions.line(err.path) is not None
        else Problem(config.path, None, ".".join(map(str, err.path)), str(err), err.remedy)
        for err in wrong
    )


@contextmanager
def _collecting(wrong: list[UnusableObject]) -> Iterator[None]:
    """Collect the Unusable error that the block raises, if any, and continue after it."""
    try:
        yield
    except UnusableObject as err:
        wrong.append(err)


def _check_text(path: str) -> None:
    """Check that the path is UTF-8: neither the database nor the API could contain another one."""
    try:
        path.encode()
    except UnicodeEncodeError as err:
        raise UnusableObject("the path is not UTF-8", "use another one") from err


def _check_proxy_socket(path: str, socket: str) -> None:
    key = ("http", "proxy_socket")
    if os.path.realpath(path) == os.path.realpath(socket):
        raise UnusableObject(f"{path} is the socket whose peers are trusted", "set another path", path=key)
    _check_socket(path, key)


def _check_socket(path: str, configured: KeyPath | None) -> None:
    """Check that a socket can be bound to `path`, which the key `configured` sets (None: ``data_dir`` implies it)."""
    key = configured or ("daemon", "data_dir")
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        name = "socket" if configured is None else configured[-1]
        message = f"the path of the Unix socket is too long: {path}; set {name} in [http] to a shorter one"
        raise UnusableObject(message, path=key)
    above = os.path.dirname(path)
    if configured is not None and not os.path.isdir(above):
        raise UnusableObject(f"no such directory: {above}", f"create it: mkdir {above}", path=key)
    try:
        mode = os.lstat(path).st_mode
    except OSError:  # ENOENT is the usual case; bind(2) reports any other error
        return
    if not stat.S_ISSOCK(mode):
        raise UnusableObject(f"{path} exists and is not a socket", "set another path, or remove it", path=key)


def _check_sdk(export: Export) -> None:
    """Check that the packages of an export are installed."""
    from importlib.util import find_spec

    # find_spec imports the parents of a module, and fails if they are missing; so check the top package first.
    if export.type == "otlp" and (find_spec("opentelemetry") is None or find_spec(_OTLP_EXPORTER) is None):
        remedy = f"run: {sys.executable} -m pip install opentelemetry-exporter-otlp-proto-http"
        raise UnusableObject('type "otlp" needs the OpenTelemetry SDK', remedy, path=("exports", export.name, "type"))


def _check_driver(config: Config) -> None:
    """Check that the driver of the database is installed, and that libpq can read its URL."""
    from importlib.util import find_spec

    if config.storage.database is None:
        return
    key = ("storage", "database")
    if find_spec("psycopg") is None:
        message = "database in [storage] is a PostgreSQL server, which needs psycopg"
        raise UnusableObject(message, f"run: {sys.executable} -m pip install 'psycopg[binary]'", path=key)
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        conninfo_to_dict(config.storage.database.url)
    except psycopg.Error:
        remedy = "write postgresql://user:password@host:5432/database, with parameters of libpq"
        # The reason is omitted, because it quotes the URL, which may contain a password.
        raise UnusableObject("is not a valid URL", remedy, path=key) from None
