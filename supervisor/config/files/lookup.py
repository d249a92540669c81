"""Lookup of the configuration file, the data directory and the socket of a daemon."""

import os
from collections.abc import Mapping

from supervisor.config.problems import ConfigError, Problem

NAME = "ringward.toml"
SYSTEM_FILE = "/etc/ringward/ringward.toml"
SYSTEM_DATA = "/var/lib/ringward"
API_USER = "ringward"
"""The usual user of the API workers of root's daemon, if the host has it."""
SOCKET_NAME = "ringward.sock"


def candidates(environ: Mapping[str, str]) -> list[str]:
    """Return the paths at which a configuration is searched if the command line names none."""
    if environ.get("RINGWARD_CONFIG"):
        return [environ["RINGWARD_CONFIG"]]
    return [NAME, SYSTEM_FILE]


def find_config(explicit: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the configuration file: `explicit`, else RINGWARD_CONFIG, else the first that exists; else None."""
    if explicit:
        return explicit
    if environ.get("RINGWARD_CONFIG"):
        return environ["RINGWARD_CONFIG"]
    return next((path for path in candidates(environ) if os.path.exists(path)), None)


def require_config(explicit: str | None, environ: Mapping[str, str]) -> str:
    """Return the configuration file that :func:`find_config` finds.

    Raises:
        ConfigError: it finds none.
    """
    if path := find_config(explicit, environ):
        return path
    looked = " and ".join(candidates(environ))
    raise ConfigError([Problem(NAME, None, "", f"no configuration found in {looked}", "name a file with --config")])


def default_data_dir(environ: Mapping[str, str], euid: int) -> str:
    """Return the data directory that applies if neither the command line nor the configuration sets one."""
    if euid == 0:
        return SYSTEM_DATA
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # the XDG specification says to ignore a relative one
        state = os.path.expanduser("~/.local/state")
    return os.path.join(state, "ringward")


def data_dir(option: str | None, configured: str | None, environ: Mapping[str, str]) -> str:
    """Return the absolute data directory: from the option, else from the configuration, else the default."""
    if option:
        return os.path.abspath(option)
    return configured or default_data_dir(environ, os.geteuid())


def find_data_dir(config: str | None, data: str | None, environ: Mapping[str, str]) -> str:
    """Return the data directory of a daemon that may run, for the arguments of :func:`find_socket`.

    Raises:
        ConfigError: the directory cannot be read from the configuration.
    """
    return data_dir(data, _client_keys(config, data, environ).get("data_dir"), environ)


def find_socket(config: str | None, data: str | None, environ: Mapping[str, str]) -> str:
    """Return the Unix socket on which the daemon's API answers.

    An invalid configuration is accepted as long as ``data_dir`` and ``socket`` can be read from it: the running daemon
    uses an earlier version of it.

    Args:
        config: configuration file that the command line names, if any.
        data: data directory that the command line names, if any.
        environ: the environment.

    Raises:
        ConfigError: the socket cannot be read from the configuration.
    """
    values = _client_keys(config, data, environ)
    return values.get("socket") or os.path.join(data_dir(data, values.get("data_dir"), environ), SOCKET_NAME)


def _client_keys(config: str | None, data: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``data_dir`` and ``socket`` of the configuration; nothing if it is unusable but not needed either."""
    path = find_config(config, environ)
    if path is None:
        return {}
    from supervisor.config.client_keys import load_client_keys

    try:
        values, distrusted = load_client_keys(path, environ)
        if distrusted is not None:
            _check_owner(values, distrusted)
    except ConfigError:
        if config or not data:
            raise
        return {}
    return values


def _check_owner(values: Mapping[str, str], distrusted: Problem) -> None:
    """Check that paths in a file that other users can write lead to files of root.

    Otherwise these users could redirect root's clients to a socket of their own.

    Raises:
        ConfigError: the owner of a path is not root.
    """
    try:
        if all(os.stat(path).st_uid == 0 for path in values.values()):
            return
    except OSError:  # ENOENT
        pass
    raise ConfigError([distrusted])
