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
    """Where a configuration is looked for when the command line names none."""
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
    raise ConfigError(
        [Problem(NAME, None, "", f"no configuration found, looked for {looked}", "name one with --config")]
    )


def default_data_dir(environ: Mapping[str, str], euid: int) -> str:
    """Where data goes when neither the command line nor the configuration says."""
    if euid == 0:
        return SYSTEM_DATA
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # the XDG specification: a relative one is to be ignored
        state = os.path.expanduser("~/.local/state")
    return os.path.join(state, "ringward")


def data_dir(option: str | None, configured: str | None, environ: Mapping[str, str]) -> str:
    """The data directory, absolute: the option, else what the configuration says, else the default."""
    if option:
        return os.path.abspath(option)
    return configured or default_data_dir(environ, os.geteuid())


def find_socket(config: str | None, data: str | None, environ: Mapping[str, str]) -> str:
    """The Unix socket on which the daemon's API answers.

    Args:
        config: configuration file that the command line names, if any.
        data: data directory that the command line names, if any.
        environ: the environment.

    Raises:
        ConfigError: the configuration cannot be read, and more than the data directory was to come from it.
    """
    said: dict[str, str] = {}
    if path := find_config(config, environ):
        from supervisor.config.load import load_sections

        try:
            sections = load_sections(path, "daemon", "http", environ=environ)
            said = sections["daemon"] | sections["http"]
        except ConfigError:
            if config or not data:
                raise
    return said.get("socket") or os.path.join(data_dir(data, said.get("data_dir"), environ), SOCKET_NAME)
