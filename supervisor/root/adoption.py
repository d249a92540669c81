"""Runs that a killed root left, taken out of the service manager's descriptor store.

A run of which anything is missing is not adopted: its pipes are closed, and the scheduler ends its processes before it
starts anything, as it does after the end of a root without such a store.
"""

import os
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from logring.errors import LogError
from logring.layout import STDERR, STDOUT
from logring.logfile import LogFileWriter
from logring.paths import ring_path
from logring.reopen import Written, reopen
from logring.schema import Foreign
from supervisor.logline import Log
from supervisor.messages import Boot, Exited, Spawn
from supervisor.root.ear import Ear
from supervisor.root.estate import about, identity
from supervisor.root.instances import Instance, Phase
from supervisor.root.pidfds import is_pidfd
from supervisor.root.record import Record
from supervisor.root.runlog import RunLog, Source, prepare
from supervisor.root.schema import SCHEMA


class _Unusable(Exception):
    """Something is missing."""


@dataclass
class Heir:
    """One run that is taken over."""

    run: str
    record: Record
    fds: dict[str, list[int]]
    """Its pipes, as the record knows them."""
    instance: Instance | None = None
    """None: it has ended."""
    exited: Exited | None = None
    pipes: dict[str, int] = field(default_factory=dict)
    log: RunLog | None = None
    """Its log so far; None: it has printed nothing yet, or the log is complete."""
    lines: int | None = None
    """Of a complete log."""


def adopt(handed_back: dict[str, list[int]], boot: Boot, log: Log) -> tuple[list[Heir], list[str]]:
    """The runs that can be gone on with, and the ids of the others, whose descriptors are closed.

    Args:
        handed_back: descriptors by run.
        boot: of this daemon.
        log: the daemon's.
    """
    wanted = about(boot)
    found, refused = [], []
    for run, fds in handed_back.items():
        taken: set[int] = set()
        try:
            found.append(_one(run, fds, wanted, boot, log, taken))
        except (_Unusable, Foreign, KeyError, TypeError, ValueError, OSError, LogError) as err:
            log.warning(f"{run} cannot be gone on with: {err!r}")
            refused.append(run)
            taken.clear()
        for fd in set(fds) - taken:
            os.close(fd)
    return found, refused


def _one(run: str, fds: list[int], wanted: dict[str, object], boot: Boot, log: Log, taken: set[int]) -> Heir:
    """One of them; `taken` gets those of its descriptors that are in use from now on."""
    memory = next((fd for fd in fds if stat.S_ISREG(os.fstat(fd).st_mode) and not is_pidfd(fd)), None)
    record = Record(memory) if memory is not None else None
    known = record.read() if record is not None else None
    if memory is None or record is None or known is None:
        raise _Unusable("there is no record of it")
    differing = [name for name, value in wanted.items() if known.get(name) != value]
    if differing:
        raise _Unusable(f"the record is of another {differing[0]}")
    heir = Heir(run, record, known["fds"])
    taken.add(memory)
    if "exited" in known:
        heir.exited = Exited(**known["exited"])
        path = known["log"]
    else:
        heir.instance = _instance(known, fds, heir)
        taken.update((heir.instance.pidfd, *heir.pipes.values()))
        if heir.instance.status_fd is not None:
            taken.add(heir.instance.status_fd)
        path = heir.instance.spawn.log
    _take_log(heir, path, ring_path(boot.runtime_dir, run))
    if heir.instance is not None:
        heir.instance.ear = _ear(heir.instance, known["heard"], log)
    if heir.instance is not None and heir.lines is not None:
        for what in ("out", "err"):
            taken.discard(heir.pipes.pop(what, -1))
    return heir


def _instance(known: dict[str, object], fds: list[int], heir: Heir) -> Instance:
    instance = SCHEMA.up(known["instance"])
    if not isinstance(instance, Instance) or instance.run != heir.run:
        raise _Unusable("the record is another run's")
    pidfd = next((fd for fd in fds if is_pidfd(fd)), None)
    by_identity = {tuple(identity(fd)): fd for fd in fds if fd != pidfd}
    heir.pipes = {what: by_identity[one] for what, pair in heir.fds.items() if (one := tuple(pair)) in by_identity}
    if pidfd is None or heir.pipes.keys() != heir.fds.keys():
        raise _Unusable("not all of its descriptors were stored")
    status_fd = heir.pipes.pop("status", None)
    instance.pidfd, instance.status_fd = pidfd, status_fd if instance.status_fd is not None else None
    instance.adopted, instance.cut_off = True, False
    if instance.phase is Phase.SEALING:  # once more
        instance.phase, instance.kill_at_s = Phase.DRAINING, time.monotonic()
    return instance


def _ear(instance: Instance, heard: object, log: Log) -> Ear | None:
    if instance.spawn.notify is None or instance.phase is not Phase.RUNNING:
        return None
    try:
        ear = Ear(instance.spawn)
    except OSError as err:
        log.error(f"{instance.spawn.task} {instance.run} is not listened to any more: {err.strerror}")
        return None
    if isinstance(heard, dict):
        ear.ready_at, ear.status = heard.get("ready_at"), heard.get("status")
    return ear


def _take_log(heir: Heir, path: str, ring: str) -> None:
    written = Written.read(path, heir.run)
    writer = reopen(ring, heir.run, written)
    if writer is None:
        if written is not None and not written.sealed and heir.exited is None:
            raise _Unusable("its ring is gone")
        heir.lines = written.lines if written is not None else None
        return
    log = heir.log = RunLog(heir.run, path, writer)
    if written is not None:
        log.file = LogFileWriter(path, writer, writer.file_blocks)
        log.file.progress = written.progress
    if writer.sealed:
        heir.lines = writer.lines
    elif heir.instance is not None:
        streams = (("out", STDOUT), ("err", STDERR))
        log.sources = {Source(heir.pipes[what], stream, log) for what, stream in streams if what in heir.pipes}
        _prepare(log, heir.instance.spawn, heir.record)


def _prepare(log: RunLog, spawn: Spawn, record: Record) -> None:
    prepare(log.writer, spawn, [source.stream for source in log.sources])
    log.record = record if spawn.secrets else None
    log.held = record.held()
    log.writer.hold(*log.held)


def limit_again(instances: Iterable[Instance], log: Log) -> None:
    """Set the limits of adopted runs, whose controllers were taken away for the start of this root."""
    for instance in instances:
        cgroup, limits = instance.cgroup, instance.spawn.limits
        if not instance.adopted or cgroup is None:
            continue
        memory, cpu = (limits.get(name) if name in cgroup.limits else None for name in ("memory", "cpu"))
        try:
            cgroup.limit(None if memory is None else int(memory), cpu)
        except OSError as err:
            log.warning(f"the limits of {instance.run} do not hold any more: {err.strerror}")
