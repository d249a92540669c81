"""The copy of the active configuration, for later schedulers of the same daemon.

Only a start of the daemon and a reload activate a configuration. A restarted scheduler uses the copy and ignores the
files, which an editor or a full disk may have left empty. If the data directory has no space, the copy is in the
runtime directory, which is in memory.
"""

import contextlib
import os
from typing import NamedTuple

import msgspec

from supervisor.config.diff import GONE
from supervisor.config.key_tables import defaults_of
from supervisor.config.load import load
from supervisor.config.model import Config
from supervisor.config.problems import ConfigError, Problem
from supervisor.host.files import DAMAGED, replace_file
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings
from supervisor.scheduler.reload.daemon_settings import resolve, unchangeable

_NAME = "config.last"
_NO_COPY = "there was no usable copy of the active configuration"
UNCONFIRMED = f"{_NO_COPY} when the scheduler restarted, so the file was read again; check it, and run: ringward reload"
"""A warning that users see until the next reload."""


class _Copy(msgspec.Struct):
    started_at: int
    """Start time of the daemon that wrote the copy, which identifies it."""
    applied: bool
    config: msgspec.Raw


class UsableConfig(NamedTuple):
    """The configuration with which a scheduler starts."""

    config: Config
    copied: bool
    """Whether it comes from the copy; if not, from the files."""
    applied: bool
    """Whether the root has the settings of this configuration."""

    @property
    def read_again(self) -> bool:
        """Whether a restarted scheduler had to read the files, because it found no copy."""
        return not (self.copied or self.applied)


def find(boot: DaemonSettings, log: Log, *, first_epoch: bool) -> UsableConfig:
    """Return the copy of the active configuration; the first scheduler of a daemon reads the files.

    A restarted scheduler also reads the files if the copy was removed, is damaged, or is of another version. It then
    rejects the changes that a reload rejects.

    Raises:
        ConfigError: there is no copy, and the files cannot be used.
    """
    loaded = _copy(boot)
    if loaded is not None:
        return loaded
    config = load(boot.config_path)
    if not first_epoch:
        _check_for_restart(config, boot)
        log.warning(f"{_NO_COPY}, so {boot.config_path} was read again; check it, and reload")
    try:
        keep(config, boot, applied=first_epoch)
    except OSError as err:  # ENOSPC: the scheduler works with a copy in memory, or without one
        log.warning(f"cannot write the copy of the configuration: {err}")
    return UsableConfig(config, copied=False, applied=first_epoch)


def _check_for_restart(config: Config, boot: DaemonSettings) -> None:
    """Reject files that the user has probably not meant to activate.

    Raises:
        ConfigError: the file is empty, or a reload would reject it.
    """
    if os.path.getsize(boot.config_path) == 0:
        raise ConfigError([Problem(config.path, None, "", "is empty", "restore it")])
    problems = unchangeable(config, boot, resolve(config, boot))
    if problems:
        raise ConfigError(problems)


def _copy(boot: DaemonSettings) -> UsableConfig | None:
    for path in _paths(boot):
        # A copy that is damaged, or that another daemon or version wrote, is ignored.
        with contextlib.suppress(OSError, *DAMAGED):
            with open(path, "rb") as file:
                copy = msgspec.json.decode(file.read(), type=_Copy)
            if copy.started_at == boot.started_at:
                return UsableConfig(_decode(copy.config), copied=True, applied=copy.applied)
    return None


def _paths(boot: DaemonSettings) -> tuple[str, str]:
    """Return the usual path of the copy, and its path while the disk is full."""
    return f"{boot.data_dir}/{_NAME}", f"{boot.runtime_dir}/{_NAME}"


def _decode(data: msgspec.Raw) -> Config:
    """Decode a copy; keys that the version which wrote it did not know get their defaults.

    Raises:
        msgspec.DecodeError, LookupError, TypeError, ValueError, AttributeError: it is not a configuration of this
            version.
    """
    try:
        return msgspec.json.decode(data, type=Config)
    except msgspec.ValidationError:
        removed = {name: value for name, value in defaults_of("task").items() if name in GONE}
        fields = removed | msgspec.json.decode(data)
        return msgspec.convert(fields, Config)


def keep(config: Config, boot: DaemonSettings, *, applied: bool) -> None:
    """Write the copy of the active configuration.

    Raises:
        OSError: it cannot be written to the data directory. It was then written to the runtime directory, if that has
            space, and an earlier copy was removed.
    """
    copy = _Copy(boot.started_at, applied, msgspec.Raw(msgspec.json.encode(config)))
    data = msgspec.json.encode(copy)
    usual, in_memory = _paths(boot)
    try:
        _write(usual, data)
    except OSError:
        _write(in_memory, data)
        raise
    else:
        with contextlib.suppress(OSError):
            os.unlink(in_memory)


def _write(path: str, data: bytes) -> None:
    try:
        replace_file(path, data)
    except OSError:
        for outdated in (path + ".new", path):  # no copy is better than an outdated one
            with contextlib.suppress(OSError):
                os.unlink(outdated)
        raise
