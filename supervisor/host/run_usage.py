"""The total usage of a run's processes, in which nothing counts twice and nothing is lost.

The usage of a process includes that of the children for which it has waited (proc_pid_stat(5)). The usage of other
ended processes is kept, because no parent includes it.
"""

import os
from dataclasses import dataclass, field

TICKS = os.sysconf("SC_CLK_TCK")
"""Clock ticks per second, the unit of processor time in /proc."""


@dataclass(frozen=True, slots=True)
class TotalUsage:
    """Total usage of the processes of a run.

    Attributes:
        user_ms: Processor time in user mode since the run started, in ms.
        system_ms: Processor time in the kernel since the run started, in ms.
        rss_bytes: Resident memory. If it is read from /proc, a page counts for each process that shares it.
        processes: Number of processes.
        read_bytes: Bytes read from disks since the run started; None: not readable or not counted.
        written_bytes: Bytes written to disks since the run started; None: as for `read_bytes`.
    """

    user_ms: int
    system_ms: int
    rss_bytes: int
    processes: int
    read_bytes: int | None
    written_bytes: int | None


@dataclass(slots=True)
class Process:
    """A process as one pass found it; processor times are in ticks."""

    pid: int
    parent: int
    group: int
    session: int
    start: int
    user: int
    system: int
    rss: int
    alive: bool
    read: int | None = None
    written: int | None = None


@dataclass(slots=True)
class _Sums:
    """Sums of ticks and bytes, which only grow."""

    user: int = 0
    system: int = 0
    read: int = 0
    written: int = 0

    def add(self, other: "Process | _Sums") -> None:
        self.user += other.user
        self.system += other.system
        self.read += other.read or 0
        self.written += other.written or 0

    def minus(self, other: "_Sums") -> "_Sums":
        """Return by how much these sums exceed the other ones, at least 0 each."""
        return _Sums(
            max(0, self.user - other.user),
            max(0, self.system - other.system),
            max(0, self.read - other.read),
            max(0, self.written - other.written),
        )


@dataclass(slots=True)
class RunProcesses:
    """The processes of one run.

    Attributes:
        pid: The id of its main process.
        seen: A time at which the main process existed, in ticks since the host booted.
        start: The start time of the main process; None until a pass has found it.
        members: The processes of the last pass, by id.
    """

    pid: int
    seen: int
    start: int | None = None
    members: dict[int, Process] = field(default_factory=dict)
    gone: _Sums = field(default_factory=_Sums)
    """Usage of ended processes that is not included in a parent's usage."""
    reported: _Sums = field(default_factory=_Sums)
    """The last reported figures."""

    def continue_from(self, before: TotalUsage) -> None:
        """Use earlier sums as lower bounds of later ones."""
        cpu = (before.user_ms * TICKS // 1000, before.system_ms * TICKS // 1000)
        self.reported = _Sums(*cpu, before.read_bytes or 0, before.written_bytes or 0)

    def update(self, members: dict[int, Process]) -> TotalUsage:
        """Return the usage of these processes and of all ended ones, and remember these for the next pass."""
        for pid, before in self.members.items():
            now = members.get(pid)
            # If the parent belongs to the run, its own usage includes that of the ended child once it has waited.
            if (now is None or now.start != before.start) and before.parent not in self.members:
                self.gone.add(before)
        self.members = members
        sums = _Sums()
        sums.add(self.gone)
        for member in members.values():
            sums.add(member)
        # Sums never decrease. A decrease means that a process without a parent in this run ended between two passes
        # and had used the difference.
        missing = self.reported.minus(sums)
        self.gone.add(missing)
        sums.add(missing)
        self.reported = sums
        has_io = any(member.read is not None for member in members.values())
        alive = [member for member in members.values() if member.alive]
        return TotalUsage(
            user_ms=sums.user * 1000 // TICKS,
            system_ms=sums.system * 1000 // TICKS,
            rss_bytes=sum(process.rss for process in alive),
            processes=len(alive),
            read_bytes=sums.read if has_io else None,
            written_bytes=sums.written if has_io else None,
        )
