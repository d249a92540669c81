"""Data of unfinished runs outside the database, in files that only the daemon's user can read.

::

    <data>/                              folders 0700, files 0600, JSON
        secrets/<run id>                 the values of its secret parameters, by name
        changed_files/<run id>           the names of the changed files that started it
        unconditional/<run id>           true: it starts without being asked for its condition
        launches/<run id>                how to stop and find its job (:mod:`..launchers.jobs`)
    <runtime directory>.files/           files 0600, of the run's user
        <run id>                         the changed files for the command, each followed by NUL
        <run id>.inputs                  JSON: the values that earlier steps of its flow wrote
        <run id>.<device>.<inode>        the values that the run writes; the name tells whether it is still that file

The database never contains secrets, so its copies do not either. A file is written before its run is stored, and
removed once the end of the run is stored. Each retry has its own files. A scheduler that starts removes files that a
crash or a disk error left behind.
"""

import json
import os
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from store.runs.writes import Run
from supervisor.config.model import Task
from supervisor.host.files import DAMAGED, private, read_json, replace_file
from supervisor.host.unix_accounts import UnixAccount
from supervisor.ipc.messages import DaemonSettings
from supervisor.scheduler.flows.step_outputs import MOST_BYTES, NONE, Outputs, parsed
from supervisor.scheduler.runs.live_units import LiveRun
from supervisor.scheduler.runs.run_parameters import ParameterValues, stored_values

_PASSABLE = 0o711


class PrivateFolder:
    """A folder with a file per run."""

    def __init__(self, path: str) -> None:
        self.path = path

    def keep(self, run_id: str, value: Any) -> None:
        """Write the data of a run durably, with fsync(2) of file and directory; replace an earlier file.

        Raises:
            OSError: the file cannot be written.
        """
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        replace_file(f"{self.path}/{run_id}", json.dumps(value), durable=True)

    def read(self, run_id: str) -> Any:
        """Return the data of a run; None if there is none or it cannot be read."""
        try:
            return read_json(f"{self.path}/{run_id}")
        except (OSError, *DAMAGED):
            return None

    def forget(self, run_id: str) -> None:
        """Remove the data of a run; ignore errors."""
        for name in (run_id, f"{run_id}.new"):
            with suppress(OSError):
                os.unlink(f"{self.path}/{name}")

    def sweep(self, living: Collection[str], *, several: bool = False) -> None:
        """Remove the data of all runs except `living`; ignore errors. `several`: a run has files with suffixes."""
        with suppress(OSError), os.scandir(self.path) as entries:
            for entry in entries:
                if (entry.name.partition(".")[0] if several else entry.name) not in living:
                    os.unlink(entry.path)


class PrivateData:
    """The secret parameters, changed files, inputs and outputs of runs."""

    def __init__(self, settings: DaemonSettings) -> None:
        self.secrets = PrivateFolder(f"{settings.data_dir}/secrets")
        self._files = PrivateFolder(f"{settings.data_dir}/changed_files")
        self._unconditional = PrivateFolder(f"{settings.data_dir}/unconditional")
        self._for_commands = PrivateFolder(f"{settings.runtime_dir}.files")

    def keep(self, run: LiveRun) -> None:
        """Write the data of a run, if any, replacing earlier files.

        Raises:
            OSError: a file cannot be written.
        """
        if run.params.secret:
            self.secrets.keep(run.id, dict(run.params.secret))
        if run.files:
            self._files.keep(run.id, run.files)
        if run.unconditional:
            self._unconditional.keep(run.id, True)

    def parameters_of(self, run: Run) -> ParameterValues:
        """Return the parameter values of a stored run, with the secrets that are still kept."""
        hidden = run.params is not None and None in run.params.values()
        return stored_values(run.params, (self.secrets.read(run.id) or {}) if hidden else {})

    def files_of(self, run_id: str) -> tuple[str, ...]:
        """Return the names of the changed files that started a run; empty if none did."""
        return tuple(self._files.read(run_id) or ())

    def is_unconditional(self, run_id: str) -> bool:
        """Return whether a run starts without being asked for its condition."""
        return bool(self._unconditional.read(run_id))

    def path_for_command(self, run_id: str) -> str:
        """Return the path of the file with the changed files for the command."""
        return f"{self._for_commands.path}/{run_id}"

    def hand_over(self, run: LiveRun, account: UnixAccount | None) -> None:
        """Make the files for the command; `account` is the run's user (None: the daemon's user).

        The folders above become searchable for another user, but not readable.

        Raises:
            OSError: a file cannot be written.
        """
        folder = self._for_commands.path
        os.makedirs(folder, exist_ok=True)
        os.chmod(folder, _PASSABLE)
        if account is not None and not account.is_own:
            os.chmod(os.path.dirname(folder), _PASSABLE)
        if run.files:
            content = b"".join(os.fsencode(name) + b"\0" for name in run.files)
            self._make(self.path_for_command(run.id), content, account)
        if run.place is not None:
            inputs = run.place.values.inputs(run.place.before)
            self._make(self.inputs_path(run.id), json.dumps(inputs, ensure_ascii=False).encode(), account)
        if run.has_outputs:
            made = f"{folder}/{run.id}.new"
            status = self._make(made, b"", account)
            run.output_file = f"{folder}/{run.id}.{status.st_dev:x}.{status.st_ino:x}"
            os.rename(made, run.output_file)

    @staticmethod
    def _make(path: str, content: bytes, account: UnixAccount | None) -> os.stat_result:
        with suppress(FileNotFoundError):
            os.unlink(path)
        with open(path, "xb", opener=private) as file:
            if account is not None and not account.is_own:
                os.fchown(file.fileno(), account.uid, account.gid)
            file.write(content)
            return os.fstat(file.fileno())

    def inputs_path(self, run_id: str) -> str:
        """Return the path of the file with the values of earlier steps."""
        return f"{self._for_commands.path}/{run_id}.inputs"

    @staticmethod
    def outputs_of(run: LiveRun) -> Outputs:
        """Return the values that an ended run wrote."""
        if run.output_file is None:
            return NONE
        try:
            descriptor = os.open(run.output_file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as err:
            return Outputs({}, problems=[f"its file RINGWARD_OUTPUT cannot be read: {err.strerror}"])
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not run.output_file.endswith(f".{status.st_dev:x}.{status.st_ino:x}"):
                return Outputs({}, problems=["its file RINGWARD_OUTPUT was replaced by another one, which is not read"])
            return parsed(file.read(MOST_BYTES + 1), _secrets_of(run))

    def forget(self, run: LiveRun) -> None:
        """Remove the files of a run, if any; ignore errors."""
        if run.params.secret:
            self.secrets.forget(run.id)
        if run.unconditional:
            self._unconditional.forget(run.id)
        if run.files:
            self._files.forget(run.id)
        if run.files or run.has_outputs:
            self._for_commands.forget(run.id)
            for path in (self.inputs_path(run.id), run.output_file):
                if path is not None:
                    with suppress(OSError):
                        os.unlink(path)
            with suppress(OSError):  # ENOTEMPTY: another run still has a file
                os.rmdir(self._for_commands.path)

    def sweep(self, living: Collection[str]) -> None:
        """Remove the files of all runs except `living`; ignore errors."""
        for folder in (self.secrets, self._files, self._unconditional):
            folder.sweep(living)
        self._for_commands.sweep(living, several=True)


def _secrets_of(run: LiveRun) -> list[str]:
    """Return the secrets that a run knows."""
    params = run.definition.params if isinstance(run.definition, Task) else ()
    of_flow = () if run.place is None else run.place.values.params.secret.values()
    defaults = (param.default for param in params if param.secret and param.default is not None)
    return [*run.definition.secrets.values(), *run.params.secret.values(), *of_flow, *defaults]
