"""Secret parameters of runs that have not ended: one file each, which only the daemon's user can read.

They are in no database, so no copy of it has them::

    <data>/secrets/          0700
        <run id>             0600, JSON: value by name

A file is there before its run is stored and is removed after the end of its run was; a retry has its own. What a crash,
or a disk that fails, leaves in between is removed by the next scheduler.
"""

from collections.abc import Collection, Mapping

from store.runs.writes import Run
from supervisor.scheduler.runs import unstored_files
from supervisor.scheduler.runs.parameters import ParameterValues, stored_values

_FOLDER = "secrets"


def keep(data_dir: str, run_id: str, values: Mapping[str, str]) -> None:
    """Write the secrets of a run; done again it changes nothing.

    Raises:
        OSError: they cannot be written.
    """
    unstored_files.keep(f"{data_dir}/{_FOLDER}", run_id, dict(values))


def read(data_dir: str, run_id: str) -> dict[str, str]:
    """The secrets of a run; none when they are not kept any more, or cannot be read."""
    values: dict[str, str] = unstored_files.read(f"{data_dir}/{_FOLDER}", run_id) or {}
    return values


def values_of_run(data_dir: str, run: Run) -> ParameterValues:
    """What a stored run was given, with those of its secrets that are kept."""
    hidden = run.params is not None and None in run.params.values()
    return stored_values(run.params, read(data_dir, run.id) if hidden else {})


def forget(data_dir: str, run_id: str) -> None:
    """Remove the secrets of a run, if there are any and that is possible now."""
    unstored_files.forget(f"{data_dir}/{_FOLDER}", run_id)


def sweep(data_dir: str, living: Collection[str]) -> None:
    """Remove the secrets of all runs but those with these ids, as far as that is possible now."""
    unstored_files.sweep(f"{data_dir}/{_FOLDER}", living)
