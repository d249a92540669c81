"""Secret parameters of unfinished runs: one file per run, readable by the daemon's user alone.

The database never contains them, so its copies do not either::

    <data>/secrets/          0700
        <run id>             0600, JSON: value by name

A file is written before its run is stored, and removed once the end of the run is stored. Each retry has its own file.
A scheduler that starts removes files that a crash or a disk error left behind.
"""

from collections.abc import Collection, Mapping

from store.runs.writes import Run
from supervisor.scheduler.runs import unstored_files
from supervisor.scheduler.runs.run_parameters import ParameterValues, stored_values

_FOLDER = "secrets"


def keep(data_dir: str, run_id: str, values: Mapping[str, str]) -> None:
    """Write the secrets of a run, replacing an earlier file.

    Raises:
        OSError: the file cannot be written.
    """
    unstored_files.keep(f"{data_dir}/{_FOLDER}", run_id, dict(values))


def read(data_dir: str, run_id: str) -> dict[str, str]:
    """Return the secrets of a run; empty if the file is gone or unreadable."""
    values: dict[str, str] = unstored_files.read(f"{data_dir}/{_FOLDER}", run_id) or {}
    return values


def values_of_run(data_dir: str, run: Run) -> ParameterValues:
    """Return the parameter values of a stored run, with the secrets that are still kept."""
    hidden = run.params is not None and None in run.params.values()
    return stored_values(run.params, read(data_dir, run.id) if hidden else {})


def forget(data_dir: str, run_id: str) -> None:
    """Remove the secrets of a run, if any; ignore errors."""
    unstored_files.forget(f"{data_dir}/{_FOLDER}", run_id)


def sweep(data_dir: str, living: Collection[str]) -> None:
    """Remove the secrets of all runs except `living`; ignore errors."""
    unstored_files.sweep(f"{data_dir}/{_FOLDER}", living)
