"""Detects that files of a configuration, or the host's time zone, changed after it was read."""

import os
from collections.abc import Sequence

from supervisor.config.files.reading import matches, stamp
from supervisor.config.host_zone import host_zone
from supervisor.config.model import Config
from supervisor.config.problems import InvalidValue
from supervisor.config.value_records import Stamp


def is_current(config: Config) -> bool:
    """Return whether the files are unchanged, the globs match the same ones, and the host's time zone is the same."""
    same_files = _included(config.path, config.include) == set(config.files[1:]) and all(
        _stamp_of(path) == read for path, read in config.read.items()
    )
    return same_files and has_same_zone(config)


def has_same_zone(config: Config) -> bool:
    """Return False if schedules follow the host's time zone, and it has changed."""
    if config.host_zone is None:
        return True
    try:
        return host_zone(os.environ) == config.host_zone
    except InvalidValue:  # TZ itself cannot change; the zone data that it names was removed
        return True


def _included(main: str, patterns: Sequence[str]) -> set[str]:
    directory = os.path.dirname(main)
    return {os.path.join(directory, name) for pattern in patterns for name in matches(directory, main, pattern)}


def _stamp_of(path: str) -> Stamp | None:
    try:
        return stamp(os.stat(path))
    except OSError:  # ENOENT, EACCES
        return None
