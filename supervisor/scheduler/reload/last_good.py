"""The configuration with which a scheduler starts: the copy of the active one, and the files only without a copy."""

import os

from msgspec import Struct

from supervisor.config.load import load
from supervisor.config.model import Config
from supervisor.config.problems import ConfigError, Problem
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings
from supervisor.scheduler.reload.daemon_settings import resolve, unchangeable
from supervisor.startup import config_copy

_NO_COPY = "there was no usable copy of the active configuration"
UNCONFIRMED = f"{_NO_COPY} when the scheduler started, so the file was read again; check it, and run: ringward reload"
"""A warning that users see until the next reload."""


class UsableConfig(Struct, frozen=True):
    """The configuration with which a scheduler starts."""

    config: Config
    applied: bool
    """Whether the root has the settings of this configuration."""
    read_again: bool
    """Whether it was read from the files, because there was no copy."""


def find(settings: DaemonSettings, log: Log) -> UsableConfig:
    """Return the copy of the active configuration.

    If the copy was removed, is damaged, or is of another version, the files are read again. Changes that a reload
    rejects are rejected then.

    Raises:
        ConfigError: there is no copy, and the files cannot be used.
    """
    copy = config_copy.read(settings)
    if copy is None:
        usable = UsableConfig(load(settings.config_path), applied=False, read_again=True)
        _check_again(usable.config, settings)
        log.warning(f"{_NO_COPY}, so {settings.config_path} was read again; check it, and reload")
    else:
        usable = UsableConfig(*copy, read_again=False)
    try:
        config_copy.keep(usable.config, settings, applied=usable.applied)  # also if one of two copies was lost
    except OSError as err:  # ENOSPC: the scheduler works with a single copy, or without one
        log.warning(f"cannot write the copy of the configuration: {err}")
    return usable


def _check_again(config: Config, settings: DaemonSettings) -> None:
    """Reject files that the user has probably not meant to activate.

    Raises:
        ConfigError: the file is empty, or a reload would reject it.
    """
    if os.path.getsize(settings.config_path) == 0:
        raise ConfigError([Problem(config.path, None, "", "is empty", "restore it")])
    problems = unchangeable(config, settings, resolve(config, settings))
    if problems:
        raise ConfigError(problems)
