"""Whether the files of a configuration are still those that were read."""

import glob
import os
from collections.abc import Sequence

from supervisor.config.model import Config, Stamp


def stamp(status: os.stat_result) -> Stamp:
    """What a file looked like from outside."""
    return status.st_mtime_ns, status.st_size, status.st_ino


def matches(directory: str, main: str, pattern: str) -> list[str]:
    """What a glob of the main file `main` in `directory` includes, as paths from there, in order."""
    own = os.path.realpath(main)
    found = sorted(glob.glob(pattern, root_dir=directory))
    return [name for name in found if os.path.realpath(os.path.join(directory, name)) != own]


def is_current(config: Config) -> bool:
    """False when a file that was read is another one now, or the globs find others."""
    return _included(config.path, config.include) == set(config.files[1:]) and all(
        _stamp_of(path) == read for path, read in config.read.items()
    )


def _included(main: str, patterns: Sequence[str]) -> set[str]:
    directory = os.path.dirname(main)
    return {os.path.join(directory, name) for pattern in patterns for name in matches(directory, main, pattern)}


def _stamp_of(path: str) -> Stamp | None:
    try:
        return stamp(os.stat(path))
    except OSError:  # gone, or out of reach
        return None
