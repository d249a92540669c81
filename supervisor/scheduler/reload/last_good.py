"""The copy of the active configuration, for later schedulers of the same daemon.

Only a start and a reload activate a configuration. A restarted scheduler uses the copy and ignores the files: an editor
or a full disk may have left them empty.
"""

import contextlib
import os
from typing import NamedTuple

import msgspec

from supervisor.config.diff import GONE
from supervisor.config.load import load
from supervisor.config.model import Config
from supervisor.config.schema import defaults_of
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Boot

_NAME = "config.last"


class _Copy(msgspec.Struct):
    started_at: int
    """Start time of the daemon, which identifies it."""
    applied: bool
    config: msgspec.Raw


class Found(NamedTuple):
    """The configuration that a scheduler starts with."""

    config: Config
    copied: bool
    """Whether it is the copy; False: it was read from the files."""
    applied: bool
    """Whether the root has the settings of this configuration."""


def find(boot: Boot, log: Log, *, first_epoch: bool) -> Found:
    """Return the copy of the active configuration, or read the files at the start of a daemon.

    A restarted scheduler without a usable copy (full disk, another version) reads the files too.

    Raises:
        ConfigError: there is no copy, and the files cannot be used.
    """
    found = _copy(boot)
    if found is not None:
        return found
    if not first_epoch:
        log.warning(f"no copy of the active configuration: reading {boot.config_path} again")
    config = load(boot.config_path)
    try:
        keep(config, boot, applied=first_epoch)
    except OSError as err:  # ENOSPC: the scheduler works without a copy
        log.warning(f"cannot write the copy of the configuration: {err}")
    return Found(config, copied=False, applied=first_epoch)


def _copy(boot: Boot) -> Found | None:
    try:
        with open(f"{boot.data_dir}/{_NAME}", "rb") as file:
            copy = msgspec.json.decode(file.read(), type=_Copy)
        if copy.started_at != boot.started_at:
            return None
        return Found(_decode(copy.config), copied=True, applied=copy.applied)
    except (OSError, msgspec.DecodeError, LookupError, TypeError, AttributeError):  # another version's, or damaged
        return None


def _decode(data: msgspec.Raw) -> Config:
    """Decode a copy; keys unknown to the version that wrote it get their defaults.

    Raises:
        msgspec.ValidationError, LookupError, TypeError, AttributeError: it is no configuration of this version.
    """
    try:
        return msgspec.json.decode(data, type=Config)
    except msgspec.ValidationError:
        said = {name: value for name, value in defaults_of("task").items() if name in GONE} | msgspec.json.decode(data)
        return msgspec.convert(said, Config)


def keep(config: Config, boot: Boot, *, applied: bool) -> None:
    """Write the copy of the active configuration.

    Raises:
        OSError: it cannot be written; an earlier copy is removed.
    """
    path = f"{boot.data_dir}/{_NAME}"
    copy = _Copy(boot.started_at, applied, msgspec.Raw(msgspec.json.encode(config)))
    try:
        with open(path + ".new", "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(msgspec.json.encode(copy))
        os.replace(path + ".new", path)
    except OSError:
        with contextlib.suppress(OSError):  # an outdated copy is worse than none
            os.unlink(path)
        raise
