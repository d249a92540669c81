"""Secret parameters of runs that have not ended: one file each, which only the daemon's user can read.

They are in no database, so no copy of it has them::

    <data>/secrets/          0700
        <run id>             0600, JSON: value by name

A file is there before its run is stored and is removed after the end of its run was; a retry has its own. What a crash,
or a disk that fails, leaves in between is removed by the next scheduler.
"""

import json
import os
from collections.abc import Collection, Mapping
from contextlib import suppress

from store.runs import Run
from supervisor.scheduler.parameters import Given, given_again

_FOLDER = "secrets"


def keep(data_dir: str, run_id: str, values: Mapping[str, str]) -> None:
    """Write the secrets of a run; done again it changes nothing.

    Raises:
        OSError: they cannot be written.
    """
    folder = f"{data_dir}/{_FOLDER}"
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = f"{folder}/{run_id}"
    with open(f"{path}.new", "w", encoding="utf-8", opener=_private) as file:
        json.dump(dict(values), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def read(data_dir: str, run_id: str) -> dict[str, str]:
    """The secrets of a run; none when they are not kept any more, or cannot be read."""
    try:
        with open(f"{data_dir}/{_FOLDER}/{run_id}", encoding="utf-8") as file:
            values: dict[str, str] = json.load(file)
    except (OSError, ValueError):
        return {}
    return values


def given_to(data_dir: str, run: Run) -> Given:
    """What a stored run was given, with those of its secrets that are kept."""
    hidden = run.params is not None and None in run.params.values()
    return given_again(run.params, read(data_dir, run.id) if hidden else {})


def forget(data_dir: str, run_id: str) -> None:
    """Remove the secrets of a run, if there are any and that is possible now."""
    for name in (run_id, f"{run_id}.new"):
        with suppress(OSError):
            os.unlink(f"{data_dir}/{_FOLDER}/{name}")


def sweep(data_dir: str, living: Collection[str]) -> None:
    """Remove the secrets of all runs but those with these ids, as far as that is possible now."""
    with suppress(OSError), os.scandir(f"{data_dir}/{_FOLDER}") as entries:
        for entry in entries:
            if entry.name not in living:
                os.unlink(entry.path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
