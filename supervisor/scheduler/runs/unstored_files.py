"""Data of unfinished runs outside the database: one file per run, readable by the daemon's user alone.

::

    <data>/<folder>/         0700
        <run id>             0600, JSON
"""

import json
import os
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from supervisor.host.files import DAMAGED, read_json, replace_file


def keep(folder: str, run_id: str, value: Any) -> None:
    """Write the data of a run durably, with fsync(2) of file and directory; replace an earlier file.

    Raises:
        OSError: the file cannot be written.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    replace_file(f"{folder}/{run_id}", json.dumps(value), durable=True)


def read(folder: str, run_id: str) -> Any:
    """Return the data of a run; None if there is none or it cannot be read."""
    try:
        return read_json(f"{folder}/{run_id}")
    except (OSError, *DAMAGED):
        return None


def forget(folder: str, run_id: str) -> None:
    """Remove the data of a run; ignore errors."""
    for name in (run_id, f"{run_id}.new"):
        with suppress(OSError):
            os.unlink(f"{folder}/{name}")


def sweep(folder: str, living: Collection[str]) -> None:
    """Remove the data of all runs except `living`; ignore errors."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name not in living:
                os.unlink(entry.path)
