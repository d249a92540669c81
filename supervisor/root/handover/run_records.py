"""Recovery records, from which the next root continues the runs of a killed one.

From the start of a run until its end is stored, the service manager's descriptor store holds its pipes or its terminal,
its pidfd, and a :mod:`.record_memory`. The record contains the :class:`.state_schema.RunState`, the device and inode of
each pipe by role (out, err, status), and

    format     the format of the record
    daemon     the id of the data directory
    boot       the id of the host's boot, because no process survives a reboot
    place      the device and inode of the runtime directory, which contains the rings

Without a descriptor store, the root at least lists the runs that it starts (:mod:`supervisor.ipc.recent_starts`).
"""

import contextlib
import os
from collections.abc import Callable, Iterable

from supervisor.host.osport import current_boot
from supervisor.host.procfs import find_process
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings, Exited
from supervisor.ipc.recent_starts import RecentStarts
from supervisor.root.handover.fd_store import DescriptorStore
from supervisor.root.handover.record_memory import FORMAT, Record, RecordContent
from supervisor.root.handover.state_schema import RecordState, RunState, state_of
from supervisor.root.process.managed_process import ManagedProcess


class RunRecords:
    """Keeps the recovery records of runs. Belongs to the control thread.

    Args:
        settings: The settings of this daemon.
        store: The service manager's descriptor store.
        log: The daemon's log.
    """

    def __init__(self, settings: DaemonSettings, store: DescriptorStore, log: Log) -> None:
        self.store = store
        self._log = log
        self._settings = settings
        self._about: dict[str, object] = {}
        self._records: dict[str, Record] = {}
        self._fds: dict[str, dict[str, list[int]]] = {}
        self._recent_starts = self._make_recent_starts()

    def _make_recent_starts(self) -> RecentStarts | None:
        try:
            return RecentStarts(self._settings.runtime_dir)
        except OSError as err:  # ENOSPC
            reason = err.strerror
        self._log.warning(f"if the supervisor is killed, runs may start twice: {reason}")
        return None

    def make_again(self, settings: DaemonSettings, processes: Iterable[ManagedProcess]) -> None:
        """Write the records of all runs again after the runtime directory was restored or moved."""
        self._settings = settings
        self._recent_starts = self._make_recent_starts()
        self._about = {}
        for process in processes:
            self.note(process.run)
            self.update(process)

    def note(self, run: str) -> None:
        """List a run just before it is started."""
        if self._recent_starts is not None:
            self._recent_starts.note(run)

    def start_of(self, pid: int) -> int:
        """Return the start time of a process in clock ticks since the boot; 0 if it is gone or there is no store."""
        process = find_process(pid) if self.store.exists else None
        return 0 if process is None else process.start

    def add(self, process: ManagedProcess, out: int, err: int | None) -> Record | None:
        """Record a started run and its pipes; return None if a next root could not find the record."""
        if not process.main.ticks:
            return None
        fds = {"out": out, "err": err, "status": process.status_fd}
        pipes = {name: fd for name, fd in fds.items() if fd is not None}
        try:
            record = self._records[process.run] = Record.make()
            self._fds[process.run] = {name: identity(fd) for name, fd in pipes.items()}
            self.update(process)
            if process.run in self._records:
                self.store.keep(process.run, [record.fd, process.main.pidfd, *pipes.values()])
        except OSError as err_:  # EMFILE, ENFILE: no descriptor is left
            self._give_up(process.run, err_)
        return self._records.get(process.run)

    def adopt(self, run: str, record: Record, fds: dict[str, list[int]]) -> None:
        """Take over the record and the pipes of a run of the previous root."""
        self._records[run], self._fds[run] = record, fds

    def update(self, process: ManagedProcess) -> None:
        """Update the record of a changed run."""
        if process.run in self._records:
            self._write(state_of(process))

    def exited(self, process: ManagedProcess, exited: Exited) -> None:
        """Record the exit of a run until the scheduler has stored it."""
        if exited.run in self._records:
            self._write(state_of(process, exited))

    def _write(self, state: RunState) -> None:
        run = state.run
        try:
            self._about = self._about or about(self._settings)
            self._records[run].write(RecordContent(self._about, self._fds[run], state))
        except OSError as err:  # ENOSPC, ENOMEM: no memory; EFBIG: the record is too large
            self._give_up(run, err)

    def _give_up(self, run: str, err: OSError) -> None:
        self._log.warning(f"{run} would not survive a crash of the supervisor: {err.strerror}")
        self.forget(run)

    def forget(self, run: str) -> None:
        """Remove the record of a run whose end is stored."""
        record = self._records.pop(run, None)
        self._fds.pop(run, None)
        if record is not None:
            record.close()
            self.store.forget(run)

    def clear(self, *, stored: bool) -> None:
        """Remove all records, and the list of started runs if all ends are `stored`."""
        for run in list(self._records):
            self.forget(run)
        if stored and self._recent_starts is not None:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                self._recent_starts.clear()

    def record_of(self, run: str) -> Record | None:
        """Return the record of a run, if there is one."""
        return self._records.get(run)

    # Handing over to the next root in an upgrade.

    def dump(self, keep: Callable[[int], int]) -> dict[str, RecordState]:
        """Return all records; `keep` registers a descriptor that the next root needs."""
        return {run: RecordState(keep(record.fd), self._fds[run]) for run, record in self._records.items()}

    def load(self, states: dict[str, RecordState]) -> None:
        """Restore the state from :meth:`dump`."""
        for run, (fd, fds) in states.items():
            self.adopt(run, Record(fd), fds)


def about(settings: DaemonSettings) -> dict[str, object]:
    """Return the facts that must be the same for a record to be valid."""
    directory = os.stat(settings.runtime_dir)
    return {
        "format": FORMAT,
        "daemon": settings.daemon_id,
        "boot": current_boot(),
        "place": [directory.st_dev, directory.st_ino],
    }


def identity(fd: int) -> list[int]:
    """Return the device and inode of a pipe."""
    status = os.fstat(fd)
    return [status.st_dev, status.st_ino]
