"""Where the configuration file, the data directory and the socket of a daemon are, before anything is loaded."""

import os
from collections.abc import Mapping

from supervisor.config.problems import ConfigError, Problem

NAME = "ringward.toml"
SYSTEM_FILE = "/etc/ringward/ringward.toml"
SYSTEM_DATA = "/var/lib/ringward"
API_USER = "ringward"
"""Of the API workers of a daemon that is root's, where there is such a user."""
SOCKET_NAME = "ringward.sock"


def candidates(environ: Mapping[str, str]) -> list[str]:
    """Return where a configuration is looked for when the command line names none."""
    if environ.get("RINGWARD_CONFIG"):
        return [environ["RINGWARD_CONFIG"]]
    return [NAME, SYSTEM_FILE]


def find_config(explicit: str | None, environ: Mapping[str, str]) -> str | None:
    """The configuration file to use: the one named, else RINGWARD_CONFIG, else the first that exists; None: none."""
    if explicit:
        return explicit
    if environ.get("RINGWARD_CONFIG"):
        return environ["RINGWARD_CONFIG"]
    return next((path for path in candidates(environ) if os.path.exists(path)), None)


def require_config(explicit: str | None, environ: Mapping[str, str]) -> str:
    """As :func:`find_config`, where there has to be one.

    Raises:
        ConfigError: there is none.
    """
    if path := find_config(explicit, environ):
        return path
    looked = " and ".join(candidates(environ))
    raise ConfigError([Problem(NAME, None, "", f"no configuration found in {looked}", "name a file with --config")])


def default_data_dir(environ: Mapping[str, str], euid: int) -> str:
    """Return where data goes when neither the command line nor the configuration says."""
    if euid == 0:
        return SYSTEM_DATA
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # the XDG specification: a relative one is to be ignored
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
        ConfigError: the configuration does not say where the directory is.
    """
    return data_dir(data, _places(config, data, environ).get("data_dir"), environ)


def find_socket(config: str | None, data: str | None, environ: Mapping[str, str]) -> str:
    """Return the Unix socket on which the daemon's API answers.

    An invalid configuration is accepted as long as ``data_dir`` and ``socket`` can be read from it: the running daemon
    uses an earlier version of it.

    Args:
        config: configuration file that the command line names, if any.
        data: data directory that the command line names, if any.
        environ: the environment.

    Raises:
        ConfigError: the configuration does not say where the socket is.
    """
    places = _places(config, data, environ)
    return places.get("socket") or os.path.join(data_dir(data, places.get("data_dir"), environ), SOCKET_NAME)


def _places(config: str | None, data: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """``data_dir`` and ``socket`` as the configuration sets them; nothing if it is not needed and not usable."""
    path = find_config(config, environ)
    if path is None:
        return {}
    from supervisor.config.load import load_places

    try:
        places, distrusted = load_places(path, environ)
        if distrusted is not None:
            _check_owner(places, distrusted)
    except ConfigError:
        if config or not data:
            raise
        return {}
    return places


def _check_owner(places: Mapping[str, str], distrusted: Problem) -> None:
    """Refuse paths in a file that others can write, unless root owns the target: root's clients must not be redirected.

    Raises:
        ConfigError: it names something else.
    """
    try:
        if all(os.stat(path).st_uid == 0 for path in places.values()):
            return
    except OSError:  # ENOENT
        pass
    raise ConfigError([distrusted])
