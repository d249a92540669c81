"""The boot settings that a configuration asks for, and which of those in force cannot change any more.

What ``ringward up`` settles before the daemon starts is settled here again for a daemon that runs.
"""

import os
from dataclasses import replace

from supervisor.config.files.lookup import SOCKET_NAME, data_dir
from supervisor.config.files.positions import KeyPath
from supervisor.config.files.reading import read_source
from supervisor.config.model import Config
from supervisor.config.problems import ConfigError, Invalid, Problem
from supervisor.config.value_types.listen import check_exposed
from supervisor.ipc.messages import Boot
from supervisor.startup import host_check

_FIXED: dict[str, tuple[KeyPath, str]] = {
    "data_dir": (("daemon", "data_dir"), "everything is kept in the one of before"),
    "database_url": (("storage", "database"), "everything is stored in the one of before"),
    "listen": (("http", "listen"), "the addresses of before are bound"),
    "http_socket": (("http", "socket"), "the one of before is bound"),
    "socket_gid": (("http", "socket_group"), "the socket was made for the group of before"),
    "proxy_socket": (("http", "proxy_socket"), "the one of before is bound"),
    "api_user": (("http", "user"), "logs and database were made readable for the user of before"),
}
"""Settings of which a running daemon cannot let go: their keys, and why."""
_OF_THE_ROOT = frozenset({"shutdown_timeout_ms", "min_free_bytes", "cgroups"})
"""What the API server does not care for."""


def resolve(config: Config, boot: Boot) -> Boot:
    """`boot` as `config` wants it. May wait for disks and name services.

    Raises:
        ConfigError: a certificate, a group or a password file cannot be used.
    """
    http = config.http
    password, ephemeral = boot.password, boot.password_ephemeral
    again = "password_file" not in boot.overridden and (http.password_file is not None or not ephemeral)
    asked = config if again else replace(config, http=replace(http, password_file=None))
    resolved = host_check.settle(asked, {})
    if again:
        password, ephemeral = resolved.password.value, resolved.password.ephemeral
    directory = boot.data_dir
    if "data_dir" not in boot.overridden:
        directory = data_dir(None, config.daemon.data_dir, os.environ)
    if "listen" in boot.overridden:
        _check_addresses(config, boot)
    return replace(
        boot,
        data_dir=directory,
        listen=boot.listen if "listen" in boot.overridden else list(http.listen),
        http_socket=http.socket or os.path.join(boot.data_dir, SOCKET_NAME),
        socket_gid=resolved.socket_gid,
        proxy_socket=http.proxy_socket,
        hosts=resolved.hosts,
        external_url=http.external_url,
        base_path=http.base_path,
        behind_proxy=list(http.behind_proxy),
        tls_cert=http.tls_cert,
        tls_key=http.tls_key,
        api_user=http.user,
        workers=http.workers,
        metrics_open=http.metrics_open,
        min_free_bytes=config.storage.min_free_bytes,
        shutdown_timeout_ms=config.daemon.shutdown_timeout_ms,
        cgroups=config.daemon.cgroups,
        database_url=config.storage.database.url if config.storage.database else None,
        log_level=config.daemon.log_level,
        password=password,
        password_ephemeral=ephemeral,
    )


def unchangeable(config: Config, boot: Boot, wanted: Boot) -> list[Problem]:
    """What `config` wants of a running daemon that cannot be had.

    Raises:
        ConfigError: the file that said so cannot be read any more.
    """
    different = [name for name in _FIXED if getattr(boot, name) != getattr(wanted, name)]
    if not different:
        return []
    main = read_source(config.path)
    problems = []
    for name in different:
        path, why = _FIXED[name]
        message = f"cannot change while the daemon runs: {why}"
        problems.append(main.problem(path, message, "restart the daemon, or set it back"))
    return problems


def feasible(boot: Boot, wanted: Boot) -> Boot:
    """`wanted`, but for what cannot be had."""
    return replace(wanted, **{name: getattr(boot, name) for name in _FIXED})


def follow(config: Config, boot: Boot) -> tuple[Boot, list[str]]:
    """The settings under which a scheduler goes on that was restarted, and what of `config` they leave out."""
    try:
        wanted = resolve(config, boot)
        problems = unchangeable(config, boot, wanted)
    except ConfigError as err:
        return boot, [str(err)]
    return feasible(boot, wanted), [str(problem) for problem in problems]


def for_the_api(old: Boot, new: Boot) -> bool:
    """Whether the API server has to be replaced to serve as `new` says."""
    before, after = old.to_dict(), new.to_dict()
    differing = (name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return any(name not in _OF_THE_ROOT for name in differing)


def _check_addresses(config: Config, boot: Boot) -> None:
    """Those of the configuration were checked with it; these are the command line's."""
    for host, port in boot.listen:
        try:
            check_exposed(host, tls=config.http.tls_cert is not None, behind_proxy=bool(config.http.behind_proxy))
        except Invalid as err:
            message = f"--listen {host}:{port} {err.message}"
            raise ConfigError([Problem(config.path, None, "http", message, err.remedy)]) from err
