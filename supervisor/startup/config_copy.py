"""The copy of the active configuration, for the schedulers of one daemon.

Only a start of the daemon and a reload activate a configuration. ``ringward up`` writes the copy of the configuration
that it has checked. Schedulers use the copy and ignore the files, which may be edited at any moment, and which an
editor or a full disk may have left empty. The copy is in the data directory and in the runtime directory, because
either may be full, moved or removed.
"""

import contextlib
import math
import os

import msgspec

from supervisor.config.diff import GONE
from supervisor.config.key_tables import defaults_of
from supervisor.config.model import ENDLESS, Config
from supervisor.host.files import DAMAGED, replace_file
from supervisor.ipc.messages import DaemonSettings

_NAME = "config.last"


class _Copy(msgspec.Struct):
    started_at: int
    """Start time of the daemon that wrote the copy, which identifies it."""
    applied: bool
    config: msgspec.Raw


def read(settings: DaemonSettings) -> tuple[Config, bool] | None:
    """Return the copy, and whether the root has the settings of this configuration; None if no copy is usable."""
    for path in _paths(settings):
        # A copy that is damaged, or that another daemon or version wrote, is ignored.
        with contextlib.suppress(OSError, *DAMAGED):
            with open(path, "rb") as file:
                copy = msgspec.json.decode(file.read(), type=_Copy)
            if copy.started_at == settings.started_at:
                return _decode(copy.config), copy.applied
    return None


def _paths(settings: DaemonSettings) -> tuple[str, str]:
    """Return the paths of the copy on the disk and in memory."""
    return f"{settings.data_dir}/{_NAME}", f"{settings.runtime_dir}/{_NAME}"


def _decode(data: msgspec.Raw) -> Config:
    """Decode a copy; keys that the version which wrote it did not know get their defaults, and null is infinity.

    Raises:
        msgspec.DecodeError, LookupError, TypeError, ValueError, AttributeError: it is not a configuration of this
            version.
    """
    try:
        return msgspec.json.decode(data, type=Config)
    except msgspec.ValidationError:
        removed = {name: value for name, value in defaults_of("task").items() if name in GONE}
        fields = removed | msgspec.json.decode(data)
        for service in fields["services"].values():
            service |= {name: math.inf for name in ENDLESS if service.get(name, 0) is None}
        return msgspec.convert(fields, Config)


def keep(config: Config, settings: DaemonSettings, *, applied: bool) -> None:
    """Write the copy of the active configuration.

    Raises:
        OSError: it cannot be written to one of the two directories; an earlier copy was removed there.
    """
    copy = _Copy(settings.started_at, applied, msgspec.Raw(msgspec.json.encode(config)))
    data = msgspec.json.encode(copy)
    failures = []
    for path in _paths(settings):
        try:
            _write(path, data)
        except OSError as err:
            failures.append(err)
    if failures:
        raise failures[0]


def _write(path: str, data: bytes) -> None:
    try:
        replace_file(path, data)
    except OSError:
        for outdated in (path + ".new", path):  # no copy is better than an outdated one
            with contextlib.suppress(OSError):
                os.unlink(outdated)
        raise
