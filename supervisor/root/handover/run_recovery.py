"""Takes over the runs of another root, which hands them over in an upgrade or was killed.

Both ways use :func:`recover` and the same :class:`.state_schema.RunState`. They differ as follows:

================  ==================================  ==============================================================
aspect            upgrade (there is an ExactState)    recovery (from the service manager's descriptor store)
================  ==================================  ==============================================================
main process      our child: waitid, rusage; a        not our child: its pidfd reports the exit, its status may stay
                  zombie keeps its id                 unknown, and its id is free at once
descriptors       by number                           by device and inode
log               writer and file as they were        the ring is opened again; unpublished output is lost
held by masks     in the writer                       read from the record
redrawn lines     screen and history as they were     the screen begins empty
notify socket     kept with its queue                 bound again; unread datagrams are lost
sealing           continues                           the pipes are drained once more
helpers           kept, replaced later                killed before anything starts
unfinished start  awaited for at most 10 s            found in the list of recent starts, reported as crashed
cgroup limits     kept                                set again
================  ==================================  ==============================================================

A run is not recovered if any part is missing. Its pipes are closed, and the scheduler kills its processes before it
starts anything, as it does after the end of a root without a descriptor store.
"""

import os
import stat
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from logring.errors import LogError
from logring.layout import STDERR, STDOUT
from logring.log_paths import ring_path
from logring.logfile.log_file import LogFileWriter
from logring.logfile.reopen import LogContent, reopen
from logring.state_json import UnknownFormat
from supervisor.host.files import DAMAGED
from supervisor.host.pidfds import is_pidfd
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings, Exited, Spawn
from supervisor.root.handover.record_memory import Record
from supervisor.root.handover.run_records import about, identity
from supervisor.root.handover.state_schema import ExactState, RunState, process_of, restore_exact, restore_notified
from supervisor.root.output.run_log import OutputPipe, RunLog, prepare
from supervisor.root.process.managed_process import ManagedProcess, ProcessState
from supervisor.root.process.notify_socket import NotifySocket
from supervisor.root.process.transitions import State


class RunUnrecoverable(Exception):
    """A part of the run is missing, so it cannot be recovered."""


_WRONG_SHAPE = (UnknownFormat, *DAMAGED, struct.error)
"""Errors due to a record that is intact, but that this version cannot interpret.

The service manager keeps the record. If it ended this root, it would end all later ones, too.
"""
_UNRECOVERABLE = (RunUnrecoverable, *_WRONG_SHAPE, OSError, LogError)


@dataclass
class StoredRun:
    """The record and the descriptors of a killed root's run, from the service manager."""

    fds: list[int]
    record: Record
    pipes: dict[str, list[int]]
    """Device and inode of each pipe by role, from the record."""
    ring: str
    """The path of the ring."""
    log: Log
    """The daemon's log."""
    used: set[int] = field(default_factory=set)
    """The descriptors of `fds` that the recovered run uses."""


@dataclass
class RecoveredRun:
    """A run that was taken over."""

    run: str
    process: ManagedProcess | None = None
    """The process; None: it has ended."""
    exited: Exited | None = None
    log: RunLog | None = None
    """The log; None: it is empty or complete."""
    stalled_at_s: float | None = None
    """Monotonic time since which the log has waited for its file."""
    record: Record | None = None
    """The record; None in an upgrade, which hands over all records together."""
    identities: dict[str, list[int]] = field(default_factory=dict)
    """Device and inode of each pipe by role, from the record."""
    pipes: dict[str, int] = field(default_factory=dict)
    """The descriptors of open pipes by role."""
    lines: int | None = None
    """The number of lines, if the log was complete when the root was killed."""


def recover(
    state: RunState, exact: ExactState | None, stored: StoredRun | None = None, *, drained: bool = False
) -> RecoveredRun:
    """Take over a run. In an upgrade, this changes nothing outside of this process, so that a trial can do it too.

    Args:
        state: The state in the other root.
        exact: The rest of the state in an upgrade; None: the other root was killed.
        stored: The record and the descriptors if the other root was killed.
        drained: The pipes have ended.

    Raises:
        RunUnrecoverable: a part of the run is missing.
        UnknownFormat, KeyError, TypeError: another version wrote the state in an unknown form.
        OSError: the ring cannot be mapped.
        LogError: the file is not a ring.
    """
    recovered = RecoveredRun(state.run, exited=state.details.exited)
    if exact is not None:
        if recovered.exited is None:
            pidfd = -1 if exact.pidfd is None else exact.pidfd
            adopted = state.progress.adopted
            recovered.process = process_of(state, pidfd, exact.status_fd, adopted=adopted, drained=drained)
            restore_exact(recovered.process, state, exact)
        if exact.log is not None:
            recovered.log, recovered.stalled_at_s = RunLog.load(exact.log), exact.log.since_s
        return recovered
    if stored is None:
        raise RunUnrecoverable("it has no record")
    recovered.record, recovered.identities = stored.record, stored.pipes
    if recovered.exited is None:
        recovered.process = _adopted(state, stored, recovered)
    _reopen_log(recovered, state.start.request.log, stored)
    if recovered.process is not None:
        recovered.process.notify_socket = _bind_again(recovered.process, state, stored.log)
        stored.used.update(fd for fd in (recovered.process.main.pidfd, recovered.process.status_fd) if fd is not None)
        if recovered.lines is None:
            stored.used.update(recovered.pipes.values())
        else:
            recovered.pipes.clear()
    return recovered


def _adopted(state: RunState, stored: StoredRun, recovered: RecoveredRun) -> ManagedProcess:
    pidfd = next((fd for fd in stored.fds if is_pidfd(fd)), None)
    by_identity = {tuple(identity(fd)): fd for fd in stored.fds if fd != pidfd}
    identities = {name: tuple(pair) for name, pair in stored.pipes.items()}
    recovered.pipes = {name: by_identity[pair] for name, pair in identities.items() if pair in by_identity}
    if pidfd is None or recovered.pipes.keys() != identities.keys():
        raise RunUnrecoverable("some of its descriptors were not stored")
    status_fd = recovered.pipes.pop("status", None)
    process = process_of(state, pidfd, status_fd if state.progress.unexecuted else None, adopted=True)
    if process.phase is ProcessState.SEALING:
        process.deadline_s = time.monotonic()
    if process.phase is not ProcessState.RUNNING:  # drain its pipes once more
        process.state = State.DRAINING
    return process


def _bind_again(process: ManagedProcess, state: RunState, log: Log) -> NotifySocket | None:
    if process.spawn.notify is None or process.phase is not ProcessState.RUNNING:
        return None
    try:
        notify_socket = NotifySocket(process.spawn)
    except OSError as err:
        log.error(f"{process.spawn.task} {process.run} has lost its notify socket: {err.strerror}")
        return None
    restore_notified(notify_socket, state)
    return notify_socket


def _reopen_log(recovered: RecoveredRun, path: str, stored: StoredRun) -> None:
    written = LogContent.read(path, recovered.run)
    writer = reopen(stored.ring, recovered.run, written)
    if writer is None:
        if written is not None and not written.sealed and recovered.exited is None:
            raise RunUnrecoverable("its ring is missing")
        recovered.lines = written.lines if written is not None else None
        return
    log = recovered.log = RunLog(recovered.run, path, writer)
    if written is not None:
        log.file = LogFileWriter(path, writer, writer.blocks.file_blocks)
        log.file.progress = written.progress
    if writer.blocks.sealed:
        recovered.lines = writer.blocks.lines
    elif recovered.process is not None:
        streams = (("out", STDOUT), ("err", STDERR))
        log.sources = {
            OutputPipe(recovered.pipes[name], stream, log) for name, stream in streams if name in recovered.pipes
        }
        _prepare(log, recovered.process.spawn, stored.record)


def _prepare(log: RunLog, spawn: Spawn, record: Record) -> None:
    prepare(log.writer, spawn, [source.stream for source in log.sources])
    log.record = record if spawn.secrets else None
    log.held = record.read_held()
    log.writer.hold(*log.held)


def recover_stored(
    descriptors: dict[str, list[int]], settings: DaemonSettings, log: Log
) -> tuple[list[RecoveredRun], list[str]]:
    """Take over the runs of a killed root; return them and the ids of other runs, whose descriptors are closed.

    A run is refused if a part of it is missing, or if its record cannot be interpreted.

    Args:
        descriptors: The stored descriptors by run.
        settings: The settings of this daemon.
        log: The daemon's log.
    """
    expected_about = about(settings)
    recovered, refused = [], []
    for run, fds in descriptors.items():
        used: set[int] = set()
        try:
            state, stored = _read(run, fds, expected_about, ring_path(settings.runtime_dir, run), log)
            recovered.append(recover(state, None, stored))
            used = stored.used
        except _UNRECOVERABLE as err:
            log.warning(f"cannot continue {run}: {err!r}")
            refused.append(run)
        for fd in set(fds) - used:
            os.close(fd)
    return recovered, refused


def _read(run: str, fds: list[int], expected: dict[str, object], ring: str, log: Log) -> tuple[RunState, StoredRun]:
    memory = next((fd for fd in fds if stat.S_ISREG(os.fstat(fd).st_mode) and not is_pidfd(fd)), None)
    record = Record(memory) if memory is not None else None
    content = record.read() if record is not None else None
    if memory is None or record is None or content is None:
        raise RunUnrecoverable("it has no record")
    differing = [name for name, value in expected.items() if content.about.get(name) != value]
    if differing:
        raise RunUnrecoverable(f"the record has another {differing[0]}")
    if content.state.run != run:
        raise RunUnrecoverable("the record belongs to another run")
    return content.state, StoredRun(fds, record, content.fds, ring, log, {memory})


def limit_again(processes: Iterable[ManagedProcess], log: Log) -> None:
    """Set the limits of adopted runs again.

    When the service manager started this root, it removed the controllers from their cgroups.
    """
    for process in processes:
        cgroup, limits = process.cgroup, process.spawn.limits
        if not process.main.adopted or cgroup is None:
            continue
        try:
            cgroup.limit({name: value for name, value in limits.items() if name in cgroup.limits})
        except OSError as err:
            log.warning(f"the limits of {process.run} no longer apply: {err.strerror}")
