"""The daemon settings that result from a configuration, and changes that a running daemon cannot make.

``ringward up`` resolves the settings before the daemon starts. A reload resolves them again here.
"""

import os
from dataclasses import replace

from supervisor.config.files.lookup import SOCKET_NAME, data_dir
from supervisor.config.files.positions import KeyPath
from supervisor.config.files.reading import read_source
from supervisor.config.model import Config
from supervisor.config.problems import ConfigError, InvalidValue, Problem
from supervisor.config.value_types.listen import check_exposed
from supervisor.ipc.messages import DaemonSettings
from supervisor.startup import host_check
from supervisor.startup.configured_settings import configured_settings

_FIXED: dict[str, tuple[KeyPath, str]] = {
    "data_dir": (("daemon", "data_dir"), "the daemon keeps using the previous one"),
    "database_url": (("storage", "database"), "the daemon keeps using the previous one"),
    "listen": (("http", "listen"), "the previous addresses stay bound"),
    "http_socket": (("http", "socket"), "the previous one stays bound"),
    "socket_gid": (("http", "socket_group"), "the socket belongs to the previous group"),
    "proxy_socket": (("http", "proxy_socket"), "the previous one stays bound"),
    "api_user": (("http", "user"), "logs and database are readable for the previous user"),
}
"""Settings that cannot change while the daemon runs, each with its key and the consequence."""
_OF_THE_ROOT = frozenset({"shutdown_timeout_ms", "min_free_bytes", "cgroups"})
"""Settings that do not affect the API server."""


def resolve(config: Config, settings: DaemonSettings) -> DaemonSettings:
    """Return `settings` with the settings of `config`; options of the command line stay. May block on disks or NSS.

    Raises:
        ConfigError: a certificate, a group or a password file cannot be used.
    """
    http = config.http
    password, ephemeral = settings.password, settings.password_ephemeral
    again = "password_file" not in settings.overridden and (http.password_file is not None or not ephemeral)
    checked = config if again else replace(config, http=replace(http, password_file=None))
    resolved = host_check.check_host(checked, {})
    if again:
        password, ephemeral = resolved.password.value, resolved.password.ephemeral
    directory = settings.data_dir
    if "data_dir" not in settings.overridden:
        directory = data_dir(None, config.daemon.data_dir, os.environ)
    if "listen" in settings.overridden:
        _check_addresses(config, settings)
    return replace(
        settings,
        data_dir=directory,
        listen=settings.listen if "listen" in settings.overridden else list(http.listen),
        http_socket=http.socket or os.path.join(settings.data_dir, SOCKET_NAME),
        password=password,
        password_ephemeral=ephemeral,
        **configured_settings(config, resolved),
    )


def unchangeable(config: Config, settings: DaemonSettings, desired: DaemonSettings) -> list[Problem]:
    """Return a problem for each difference of `settings` and `desired` that cannot take effect while the daemon runs.

    Raises:
        ConfigError: the file of `config`, which is read again for positions, is no longer readable.
    """
    different = [name for name in _FIXED if getattr(settings, name) != getattr(desired, name)]
    if not different:
        return []
    main = read_source(config.path)
    problems = []
    for name in different:
        path, reason = _FIXED[name]
        message = f"cannot change while the daemon runs: {reason}"
        problems.append(main.problem(path, message, "restart the daemon, or set it back"))
    return problems


def feasible(settings: DaemonSettings, desired: DaemonSettings) -> DaemonSettings:
    """Return `desired`, but with the values of `settings` for settings that cannot change."""
    return replace(desired, **{name: getattr(settings, name) for name in _FIXED})


def follow(config: Config, settings: DaemonSettings) -> tuple[DaemonSettings, list[str]]:
    """Return the settings for a restarted scheduler, and a problem for each setting of `config` that is not applied."""
    try:
        desired = resolve(config, settings)
        problems = unchangeable(config, settings, desired)
    except ConfigError as err:
        return settings, [str(err)]
    return feasible(settings, desired), [str(problem) for problem in problems]


def for_the_api(old: DaemonSettings, new: DaemonSettings) -> bool:
    """Return whether the difference between the settings requires a restart of the API server."""
    before, after = old.to_dict(), new.to_dict()
    differing = (name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return any(name not in _OF_THE_ROOT for name in differing)


def _check_addresses(config: Config, settings: DaemonSettings) -> None:
    """Check the addresses of the command line against `config`; its own addresses were checked when it was loaded."""
    for host, port in settings.listen:
        try:
            check_exposed(host, tls=config.http.tls_cert is not None, behind_proxy=bool(config.http.behind_proxy))
        except InvalidValue as err:
            message = f"--listen {host}:{port} {err.message}"
            raise ConfigError([Problem(config.path, None, "http", message, err.remedy)]) from err
