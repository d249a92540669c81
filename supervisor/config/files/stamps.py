"""Whether a configuration is still up to date with its files and the time zone of the host."""

import glob
import os
from collections.abc import Sequence

from supervisor.config.host_zone import host_zone
from supervisor.config.model import Config
from supervisor.config.problems import Invalid
from supervisor.config.records import Stamp


def stamp(status: os.stat_result) -> Stamp:
    """Return the state of a file, without reading it."""
    return status.st_mtime_ns, status.st_size, status.st_ino


def matches(directory: str, main: str, pattern: str) -> list[str]:
    """Return the files that a glob of the main file `main` in `directory` includes, as relative paths, in order."""
    own = os.path.realpath(main)
    found = sorted(glob.glob(pattern, root_dir=directory))
    return [name for name in found if os.path.realpath(os.path.join(directory, name)) != own]


def is_current(config: Config) -> bool:
    """Return whether the files are unchanged, the globs find no others, and the host's zone is the same."""
    same_files = _included(config.path, config.include) == set(config.files[1:]) and all(
        _stamp_of(path) == read for path, read in config.read.items()
    )
    return same_files and has_same_zone(config)


def has_same_zone(config: Config) -> bool:
    """Return False where schedules follow the time zone of the host, and the host has another one by now."""
    if config.host_zone is None:
        return True
    try:
        return host_zone(os.environ) == config.host_zone
    except Invalid:  # TZ, which does not change, names data that is gone
        return True


def _included(main: str, patterns: Sequence[str]) -> set[str]:
    directory = os.path.dirname(main)
    return {os.path.join(directory, name) for pattern in patterns for name in matches(directory, main, pattern)}


def _stamp_of(path: str) -> Stamp | None:
    try:
        return stamp(os.stat(path))
    except OSError:  # gone, or out of reach
        return None
