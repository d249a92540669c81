"""The files whose changes started a run of a task with ``on_change``.

The scheduler keeps the names in a file of its own. The command gets another file, in memory, that belongs to the run's
user::

    <data>/changed_files/<run id>        0600, JSON: a list of paths
    <runtime directory>.files/<run id>   0600, the run's user: paths, each followed by NUL

Both are removed once the end of the run is stored. A scheduler that starts removes files that a crash left behind.
"""

import os
from collections.abc import Collection, Sequence
from contextlib import suppress

from supervisor.host.files import private
from supervisor.host.unix_accounts import Account
from supervisor.scheduler.runs import unstored_files

_FOLDER = "changed_files"
_PASSABLE = 0o711


def keep(data_dir: str, run_id: str, files: Sequence[str]) -> None:
    """Store the names for the scheduler, replacing an earlier file.

    Raises:
        OSError: the file cannot be written.
    """
    unstored_files.keep(f"{data_dir}/{_FOLDER}", run_id, list(files))


def read(data_dir: str, run_id: str) -> tuple[str, ...]:
    """Return the stored names; empty if no changed files started the run."""
    return tuple(unstored_files.read(f"{data_dir}/{_FOLDER}", run_id) or ())


def path_of(runtime_dir: str, run_id: str) -> str:
    """Return the path of the file for the command."""
    return f"{_folder(runtime_dir)}/{run_id}"


def hand_over(runtime_dir: str, run_id: str, files: Sequence[str], account: Account | None) -> None:
    """Write the file for the command; `account` is the run's user (None: the daemon's user).

    The folders above become searchable for another user, but not readable.

    Raises:
        OSError: the file cannot be written.
    """
    folder, path = _folder(runtime_dir), path_of(runtime_dir, run_id)
    os.makedirs(folder, exist_ok=True)
    os.chmod(folder, _PASSABLE)
    with suppress(FileNotFoundError):
        os.unlink(path)
    with open(path, "xb", opener=private) as file:
        if account is not None and not account.is_own:
            os.chmod(os.path.dirname(runtime_dir), _PASSABLE)
            os.fchown(file.fileno(), account.uid, account.gid)
        file.writelines(os.fsencode(name) + b"\0" for name in files)


def forget(data_dir: str, runtime_dir: str, run_id: str) -> None:
    """Remove both files of a run; ignore errors."""
    unstored_files.forget(f"{data_dir}/{_FOLDER}", run_id)
    unstored_files.forget(_folder(runtime_dir), run_id)
    with suppress(OSError):  # ENOTEMPTY: another run still has a file
        os.rmdir(_folder(runtime_dir))


def sweep(data_dir: str, runtime_dir: str, living: Collection[str]) -> None:
    """Remove the files of all runs except `living`; ignore errors."""
    unstored_files.sweep(f"{data_dir}/{_FOLDER}", living)
    unstored_files.sweep(_folder(runtime_dir), living)


def _folder(runtime_dir: str) -> str:
    return f"{runtime_dir}.files"
