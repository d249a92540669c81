"""Total usage of the processes of a run: nothing counts twice, and nothing is forgotten.

The usage of a process includes the children that it has waited for (proc_pid_stat(5)). The usage of other ended
processes is kept, because no parent includes it.
"""

import os
from dataclasses import dataclass, field

TICKS = os.sysconf("SC_CLK_TCK")
"""In a second, as processor time is counted."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Total usage of the processes of a run.

    Attributes:
        user_ms: Processor time in user mode since the run began, ms.
        system_ms: The same in the kernel.
        rss_bytes: Resident memory; pages that several of them share count for each.
        processes: Number of processes.
        read_bytes: Read from disks since the run began; None: no permission.
        written_bytes: Written to disks since then.
    """

    user_ms: int
    system_ms: int
    rss_bytes: int
    processes: int
    read_bytes: int | None
    written_bytes: int | None


@dataclass(slots=True)
class Process:
    """A process as it was found; processor time in ticks."""

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
    """Ticks and bytes that only grow."""

    user: int = 0
    system: int = 0
    read: int = 0
    written: int = 0

    def add(self, one: "Process | _Sums") -> None:
        self.user += one.user
        self.system += one.system
        self.read += one.read or 0
        self.written += one.written or 0

    def beyond(self, other: "_Sums") -> "_Sums":
        """Return by how much these sums exceed others."""
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
        pid: Of its main process.
        seen: When that was certainly there, in ticks since the host was booted.
        start: When it started, as soon as it was found.
        members: The processes of the last pass, by id.
    """

    pid: int
    seen: int
    start: int | None = None
    members: dict[int, Process] = field(default_factory=dict)
    gone: _Sums = field(default_factory=_Sums)
    """Usage of ended processes that no parent includes."""
    told: _Sums = field(default_factory=_Sums)
    """The last reported figures."""

    def go_on_from(self, before: Taken) -> None:
        """Continue from earlier sums, as lower bounds."""
        cpu = (before.user_ms * TICKS // 1000, before.system_ms * TICKS // 1000)
        self.told = _Sums(*cpu, before.read_bytes or 0, before.written_bytes or 0)

    def take(self, members: dict[int, Process]) -> Taken:
        """Add up, together with what those had used that are gone, and remember who there is."""
        for pid, before in self.members.items():
            now = members.get(pid)
            # The time of a child is in its parent's from when that has waited for it.
            if (now is None or now.start != before.start) and before.parent not in self.members:
                self.gone.add(before)
        self.members = members
        sums = _Sums()
        sums.add(self.gone)
        for one in members.values():
            sums.add(one)
        # Nothing was given back: a process that ended between two passes, without a parent here, had used the
        # difference.
        missing = self.told.beyond(sums)
        self.gone.add(missing)
        sums.add(missing)
        self.told = sums
        told = any(one.read is not None for one in members.values())
        alive = [one for one in members.values() if one.alive]
        return Taken(
            user_ms=sums.user * 1000 // TICKS,
            system_ms=sums.system * 1000 // TICKS,
            rss_bytes=sum(one.rss for one in alive),
            processes=len(alive),
            read_bytes=sums.read if told else None,
            written_bytes=sums.written if told else None,
        )
