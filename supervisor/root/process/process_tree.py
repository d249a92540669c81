"""Which processes belong to which run: everything that descends from its main process.

We are a subreaper (prctl(2)), so what loses its parent becomes our child. A process of a run is thus below its main
process, or below one of our children that we did not start: an orphan. Whose an orphan is tell its session and process
group, its cgroup, or the marker in its environment. Without cgroups, a process that left session and group and emptied
its environment cannot be assigned.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable

from supervisor.host.cgroup_names import is_spare
from supervisor.host.cgroups import name_of_cgroup, own_place
from supervisor.host.process_environ import Environments
from supervisor.host.procfs import Process, family, look, own_children, parent, send
from supervisor.root.handover.state_schema import OwnerState
from supervisor.root.process.managed_process import ManagedProcess
from supervisor.root.process.transitions import ALIVE

_GENERATIONS = 1000
_REAP_S = 0.01
"""How long strangers stay zombies: all that end in that time are looked for together."""
_PATIENCE_S = 0.05
"""Time for which an unreadable orphan delays the end of all runs, once."""
_DYING_S = 1.0
"""How long a dying process of unknown origin keeps runs from ending."""
_PASSES = 20
"""Maximum sweeps per call; processes that fork faster are found by the next call."""


class ProcessTrees:
    """The processes of all runs."""

    def __init__(self, daemon_id: str, helpers: Callable[[], set[int]], warn: Callable[[str], None]) -> None:
        """`helpers` gives the ids of those children of ours that are no runs; `warn` takes a line for people."""
        self._daemon_id = daemon_id
        self._helpers = helpers
        self._warn = warn
        self._place = own_place() or ""
        self._environments = Environments(_PATIENCE_S)
        self._unread: set[tuple[int, int]] = set()
        """Orphans, by id and start, that could not be looked at yet."""
        self._dying: dict[tuple[int, int], float] = {}
        """Processes without memory, and the monotonic second in which that was seen."""
        self.reap_at_s: float | None = None
        """When :meth:`tend` is due (monotonic seconds)."""
        self._ended = False
        """Whether a process was found that has ended, perhaps after a fork, or is about to end."""
        self.mains: set[int] = set()
        """Ids of the main processes that are not reaped."""
        self._owners: dict[tuple[int, int], str] = {}
        """Runs by process and start."""

    def dump(self) -> list[OwnerState]:
        """Return the known owners of orphans, for the next root."""
        return [OwnerState(*key, owner) for key, owner in self._owners.items()]

    def load(self, found: Iterable[OwnerState]) -> None:
        """Restore the known owners of orphans."""
        self._owners = {(pid, start): owner for pid, start, owner in found}

    def reap_soon(self) -> None:
        """Reap soon: a child has ended, or no longer is a zombie that hid others."""
        if self.reap_at_s is None:
            self.reap_at_s = time.monotonic() + _REAP_S

    def tend(self, now_s: float) -> None:
        """Reap the zombies that are neither helpers nor main processes of runs, when it is time (monotonic seconds)."""
        if self.reap_at_s is None or now_s < self.reap_at_s:
            return
        self.reap_at_s = None
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # ECHILD: no children at all
            return
        if found is not None:
            self._strangers()

    def _strangers(self) -> list[int]:
        """Return the ids of our living children that we did not start; dead ones are reaped."""
        helpers = self._helpers()
        living = []
        for pid in own_children():
            if pid in self.mains or pid in helpers:
                continue
            try:
                ended = os.waitpid(pid, os.WNOHANG)[0] != 0
            except ChildProcessError:  # ECHILD: it went between the two
                ended = True
            if ended:
                self._ended = True
            else:
                living.append(pid)
        return living

    def _orphans(self, instance: ManagedProcess) -> list[int]:
        """Return the ids of the orphans of a run."""
        found, owners, looked_at = [], {}, set()
        for pid in self._unrelated(instance) if instance.main.adopted else self._strangers():
            process = look(pid)
            if process is None:
                self._ended = True
                continue
            if process.start < instance.main.ticks:
                continue
            looked_at.add((pid, process.start))
            owner = self._owners.get((pid, process.start)) or self._owner(process, instance)
            if owner:
                owners[pid, process.start] = owner
            if owner == instance.run:
                found.append(pid)
        self._owners = owners
        self._unread &= looked_at
        return found

    def _unrelated(self, instance: ManagedProcess) -> list[int]:
        """Return the ids of processes that may belong to a run whose main process is not our descendant.

        Empty when the run has a cgroup, since that lists all of its processes.
        """
        if instance.cgroup is not None:
            return []
        ours = self._helpers() | self.mains | {os.getpid()}
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in ours]

    @staticmethod
    def _main_lives(instance: ManagedProcess) -> bool:
        """Return whether the id still belongs to the main process; if that is not our child, only while it lives."""
        if not instance.main.adopted:
            return True
        process = look(instance.main.pid)
        return process is not None and process.start == instance.main.ticks

    def _marks(self, process: Process) -> dict[str, str]:
        """Return the variables of an orphan: empty as long as they cannot be read."""
        key = process.pid, process.start
        found = self._environments.read(*key)
        if found is None and key not in self._unread:
            self._unread.add(key)
            self._warn(f"cannot inspect {process} (uninterruptible?): it may belong to a run")
        elif found is not None:
            self._unread.discard(key)
        if not (found or process.memory):
            self._wait_for(*key)
        return found or {}

    def _wait_for(self, pid: int, start: int) -> None:
        """Delay the end of all runs while a dying process may be theirs, within bounds: it may hang."""
        now_s = time.monotonic()
        if (pid, start) not in self._dying:
            there = {(one.pid, one.start) for pid, _ in self._dying if (one := look(pid)) is not None}
            self._dying = {key: since_s for key, since_s in self._dying.items() if key in there}
        if now_s - self._dying.setdefault((pid, start), now_s) < _DYING_S:
            self._ended = True

    def _owner(self, process: Process, instance: ManagedProcess) -> str:
        if instance.main.pid in (process.session, process.group) and self._main_lives(instance):
            return instance.run
        if name := name_of_cgroup(process.pid, place=self._place):
            own = instance.cgroup is not None and os.path.basename(instance.cgroup.path) == name
            return instance.run if own else "" if is_spare(name) else name
        marks = self._marks(process)
        return marks.get("RINGWARD_RUN_ID", "") if marks.get("RINGWARD_DAEMON") == self._daemon_id else ""

    def members(self, instance: ManagedProcess) -> dict[int, Process]:
        """Return the living processes of a run, by id, with its main process while it lives."""
        roots = self._orphans(instance)
        if instance.state in ALIVE and self._main_lives(instance):
            roots.append(instance.main.pid)
        found = family(roots)
        if instance.cgroup is not None:
            for pid in instance.cgroup.members():
                if pid not in found and (process := look(pid)) is not None:
                    found[pid] = process
        return found

    def nobody(self, instance: ManagedProcess) -> bool:
        """Return whether the run has no processes.

        A process that forks meanwhile is found again, or leaves a zombie.
        """
        for _ in range(_PASSES):
            self._ended = False
            if self.members(instance):
                return False
            if not self._ended:
                return True
        return False

    def has(self, instance: ManagedProcess, pid: int) -> bool:
        """Return whether a process, possibly a zombie, belongs to a run with an unreaped main process."""
        if instance.cgroup is not None and pid in instance.cgroup.members():
            return True
        for _ in range(_GENERATIONS):
            if pid == instance.main.pid:
                return True
            above = parent(pid)
            if above == os.getpid():
                process = look(pid)
                return process is not None and self._owner(process, instance) == instance.run
            if above <= 1:
                return False
            pid = above
        return False

    def signal(self, instance: ManagedProcess, *numbers: int) -> None:
        """Send these signals to each process of an instance, once."""
        reached = self._signal_group(instance, numbers)
        group = instance.main.pid if reached else None
        others = {pid: one for pid, one in self.members(instance).items() if one.group != group}
        self._signal_members(instance, others, numbers)

    @staticmethod
    def signal_main(instance: ManagedProcess, *numbers: int) -> None:
        """Send these signals to the main process of an instance, which is still held by its pidfd."""
        try:
            for number in numbers:
                signal.pidfd_send_signal(instance.main.pidfd, number)
        except ProcessLookupError:  # ESRCH: it has ended, which its pidfd is about to tell
            pass
        except PermissionError:  # EPERM: it is another user's now
            instance.outcome.not_permitted.add(instance.main.pid)

    def kill(self, instance: ManagedProcess) -> None:
        """Kill each process of a run by SIGKILL, until a pass finds no new one."""
        if instance.cgroup is not None:
            instance.cgroup.kill()
        self._signal_group(instance, (signal.SIGKILL,))
        seen: set[tuple[int, int]] = set()
        for _ in range(_PASSES):
            members = self.members(instance)
            new = {pid: process for pid, process in members.items() if (pid, process.start) not in seen}
            if not new:
                return
            seen.update((pid, process.start) for pid, process in new.items())
            self._signal_members(instance, new, (signal.SIGKILL,))

    @staticmethod
    def _signal_group(instance: ManagedProcess, numbers: tuple[int, ...]) -> bool:
        """Signal the group. Return False if the signal reached no process; then its members are signalled one by one.

        The group id cannot belong to another run: our main process is not reaped, dead or alive. Else it is not used.
        """
        if instance.main.adopted:
            return False
        try:
            for number in numbers:
                os.killpg(instance.main.pid, number)
        except (ProcessLookupError, PermissionError):
            # ESRCH: it has no group yet; EPERM: every member changed its user.
            return False
        return True

    @staticmethod
    def _signal_members(instance: ManagedProcess, members: dict[int, Process], numbers: tuple[int, ...]) -> None:
        for process in members.values():
            if not all(send(process, number) for number in numbers):
                instance.outcome.not_permitted.add(process.pid)
