"""Finds the processes of a run: everything that descends from its main process.

The root is a subreaper (PR_SET_CHILD_SUBREAPER, prctl(2)), so a process that loses its parent becomes a child of the
root. Each process of a run is therefore below its main process or below an orphan: a child that the root did not start.
The root finds the run of an orphan by its session, its process group, its cgroup, or the marker in its environment.
Without cgroups, none of these tells the run of a process that has left its session and group and has no readable
environment, such as a daemon that protects secrets (PR_SET_DUMPABLE, prctl(2)) or has changed its user. Such an orphan
belongs to the only run that can have started it. If there are several, it is not ended, and logs name it.
"""

import os
import signal
from collections.abc import Callable, Iterable

from supervisor.host.cgroups import is_spare, name_of_cgroup, own_cgroup
from supervisor.host.clock import Clock
from supervisor.host.process_environ import Environments
from supervisor.host.procfs import (
    Process,
    find_process,
    own_children,
    parent_of,
    send_signal,
    start_of,
    with_descendants,
)
from supervisor.root.handover.state_schema import OwnerState
from supervisor.root.process.managed_process import ManagedProcess
from supervisor.root.process.transitions import ALIVE

_GENERATIONS = 1000
_REAP_S = 0.01
"""How long orphans stay zombies, so that one search reaps all that end in this time."""
_PATIENCE_S = 0.05
"""How long an orphan with an unreadable environment may delay the end of runs, once."""
_DYING_S = 1.0
"""How long a dying process of unknown origin may delay the end of runs."""
_PASSES = 20
"""The most searches per call. The next call finds processes that fork faster."""
_UNCERTAIN = "uncertain"
"""Stands for the run of an orphan that may belong to several runs."""


class ProcessTrees:
    """The processes of all runs.

    Args:
        daemon_id: The id of the daemon's data directory.
        helpers: Returns the ids of our children that are not runs.
        warn: Logs a warning.
        clock: The clock of the control thread.
    """

    def __init__(
        self,
        daemon_id: str,
        helpers: Callable[[], set[int]],
        warn: Callable[[str], None],
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or Clock()
        self._daemon_id = daemon_id
        self._helpers = helpers
        self._warn = warn
        self._parent_cgroup = own_cgroup() or ""
        self._environments = Environments(_PATIENCE_S)
        self._unread: set[tuple[int, int]] = set()
        """Orphans, by id and start time, whose environment could not be read yet."""
        self._dying: dict[tuple[int, int], float] = {}
        """Dying processes (without memory), and the monotonic time when they were first seen so."""
        self.reap_at_s: float | None = None
        """When :meth:`tick` is due (monotonic seconds)."""
        self._search_again = False
        """Whether the last search met a process that has just ended or is dying, which may have forked before."""
        self._ended: set[int] = set()
        """The processes that the last search found ended. A zombie stays among them until its parent reaps it."""
        self._found: dict[int, str] = {}
        """The processes that the last search found alive, and the runs they belong to; "": to no run."""
        self.mains: dict[int, ManagedProcess] = {}
        """Our children that are main processes and not reaped yet, by process id."""
        self.left_running = False
        """Whether any run has left processes running, which may start others."""
        self._owners: dict[tuple[int, int], str] = {}
        """The runs of orphans, by process id and start time."""

    def dump(self) -> list[OwnerState]:
        """Return the known owners of orphans, for the next root."""
        return [OwnerState(*key, owner) for key, owner in self._owners.items()]

    def load(self, owners: Iterable[OwnerState]) -> None:
        """Restore the known owners of orphans."""
        self._owners = {(pid, start): owner for pid, start, owner in owners}

    def reap_soon(self) -> None:
        """Schedule a search for zombies, because a child may have ended."""
        if self.reap_at_s is None:
            self.reap_at_s = self._clock.monotonic_s() + _REAP_S

    def tick(self, now_s: float) -> None:
        """Reap the zombies that are neither helpers nor main processes, if it is time (monotonic seconds)."""
        if self.reap_at_s is None or now_s < self.reap_at_s:
            return
        self.reap_at_s = None
        try:
            exit_info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # ECHILD: no children at all
            return
        if exit_info is not None:
            self._living_orphans()

    def _living_orphans(self) -> list[int]:
        """Return the ids of the living orphans, and reap the ended ones."""
        helpers = self._helpers()
        living = []
        for pid in own_children():
            if pid in self.mains or pid in helpers:
                continue
            try:
                ended = os.waitpid(pid, os.WNOHANG)[0] != 0
            except ChildProcessError:  # ECHILD: it is no child of ours any more since we listed it
                ended = True
            if ended:
                self._search_again = True
            else:
                living.append(pid)
        return living

    def _orphans(self, managed: ManagedProcess) -> list[int]:
        """Return the ids of the orphans of a run."""
        orphans, owners, looked_at, ended = [], {}, set(), set()
        found: dict[int, str] = {}
        for pid in self._possible_members(managed) if managed.main.adopted else self._living_orphans():
            process = find_process(pid)
            if process is None:
                ended.add(pid)
                continue
            if process.start < managed.main.ticks:
                found[pid] = ""
                continue
            key = pid, process.start
            looked_at.add(key)
            known = self._owners.get(key, _UNCERTAIN)
            owner = self._owner(process, managed) if known == _UNCERTAIN else known
            if owner is None:
                owner = _UNCERTAIN if key in self._owners else self._guessed_owner(process, managed)
            if owner:
                owners[key] = owner
            if key not in self._unread:
                found[pid] = owner
            if owner == managed.run:
                orphans.append(pid)
        # A process that belonged to no run, or to another one, cannot have forked a process of this run.
        self._search_again |= any(self._found.get(pid, managed.run) == managed.run for pid in ended - self._ended)
        self._owners, self._ended, self._found = owners, ended, found
        self._unread &= looked_at
        return orphans

    def _possible_members(self, managed: ManagedProcess) -> list[int]:
        """Return the ids of processes that may belong to a run with an adopted main process.

        Such processes are not our descendants. If the run has a cgroup, the result is empty, because the cgroup lists
        them all.
        """
        if managed.cgroup is not None:
            return []
        ours = self._helpers() | self.mains.keys() | {os.getpid()}
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in ours]

    @staticmethod
    def _main_lives(managed: ManagedProcess) -> bool:
        """Return whether the process id still belongs to the main process. An adopted one keeps it only while it lives.

        One of ours keeps its id as a zombie until it is reaped.
        """
        if not managed.main.adopted:
            return True
        process = find_process(managed.main.pid)
        return process is not None and process.start == managed.main.ticks

    def _environment_of(self, process: Process) -> dict[str, str]:
        """Return the environment of an orphan, empty while it cannot be read."""
        key = process.pid, process.start
        variables = self._environments.read(*key)
        if variables is None and key not in self._unread:
            self._unread.add(key)
            self._warn(f"cannot inspect {process} (uninterruptible?): it may belong to a run")
        elif variables is not None:
            self._unread.discard(key)
        if not (variables or process.memory):
            self._delay_ends(*key)
        return variables or {}

    def _delay_ends(self, pid: int, start: int) -> None:
        """Delay the end of runs for a while, because a dying process may belong to any of them. It may also hang."""
        now_s = self._clock.monotonic_s()
        if (pid, start) not in self._dying:
            there = {
                (process.pid, process.start) for pid, _ in self._dying if (process := find_process(pid)) is not None
            }
            self._dying = {key: since_s for key, since_s in self._dying.items() if key in there}
        if now_s - self._dying.setdefault((pid, start), now_s) < _DYING_S:
            self._search_again = True

    def _owner(self, process: Process, managed: ManagedProcess) -> str | None:
        """Return the run of an orphan, "" if it belongs to none; None: it has no readable environment."""
        if managed.main.pid in (process.session, process.group) and self._main_lives(managed):
            return managed.run
        if name := name_of_cgroup(process.pid, parent=self._parent_cgroup):
            own = managed.cgroup is not None and os.path.basename(managed.cgroup.path) == name
            return managed.run if own else "" if is_spare(name) else name
        marks = self._environment_of(process)
        if not marks and process.memory and (process.pid, process.start) not in self._unread:
            return None
        return marks.get("RINGWARD_RUN_ID", "") if marks.get("RINGWARD_DAEMON") == self._daemon_id else ""

    def _guessed_owner(self, process: Process, managed: ManagedProcess) -> str:
        """Return the only run that can have started an orphan; name the orphan if it may have another origin.

        `managed`: the run whose processes are searched.
        """
        if process.parent != os.getpid():
            return ""
        possible = [
            other.run
            for pid, other in self.mains.items()
            if other.cgroup is None and other.outcome.usage is None and (start_of(pid) or 0) <= process.start
        ]
        # All orphans of a PID namespace become children of its process 1, even those that "docker exec" started.
        if len(possible) == 1 and not self.left_running and os.getpid() != 1:
            return possible[0]
        if possible:
            text = f"not ended, because it may not belong to this run, and its environment is not readable: {process}"
            managed.outcome.log_notes.append(text)
            self._warn(f"{managed.spawn.task} {managed.run}: {text}")
        return _UNCERTAIN

    def members(self, managed: ManagedProcess) -> dict[int, Process]:
        """Return the living processes of a run by id, including the main process."""
        roots = self._orphans(managed)
        if managed.state in ALIVE and self._main_lives(managed):
            roots.append(managed.main.pid)
        processes = with_descendants(roots)
        if managed.cgroup is not None:
            for pid in managed.cgroup.members():
                if pid not in processes and (process := find_process(pid)) is not None:
                    processes[pid] = process
        return processes

    def is_empty(self, managed: ManagedProcess) -> bool:
        """Return whether the run has no processes.

        A search may miss a process that forks and exits meanwhile, but then it meets the zombie and searches again.
        """
        self._found.clear()  # the ids may have been reused since
        for _ in range(_PASSES):
            self._search_again = False
            if self.members(managed):
                return False
            if not self._search_again:
                return True
        return False

    def has(self, managed: ManagedProcess, pid: int) -> bool:
        """Return whether a process, possibly a zombie, belongs to a run with an unreaped main process."""
        if managed.cgroup is not None and pid in managed.cgroup.members():
            return True
        for _ in range(_GENERATIONS):
            if pid == managed.main.pid:
                return True
            above = parent_of(pid)
            if above == os.getpid():
                process = find_process(pid)
                return process is not None and self._owner(process, managed) == managed.run
            if above <= 1:
                return False
            pid = above
        return False

    def signal(self, managed: ManagedProcess, *numbers: int) -> None:
        """Send these signals to each process of a run, once."""
        reached = self._signal_group(managed, numbers)
        group = managed.main.pid if reached else None
        others = {pid: process for pid, process in self.members(managed).items() if process.group != group}
        self._signal_members(managed, others, numbers)

    @staticmethod
    def signal_main(managed: ManagedProcess, *numbers: int) -> None:
        """Send these signals to the main process of a run by its pidfd, so that they reach no other process."""
        try:
            for number in numbers:
                signal.pidfd_send_signal(managed.main.pidfd, number)
        except ProcessLookupError:  # ESRCH: it has ended, which its pidfd is about to report
            pass
        except PermissionError:  # EPERM: it has changed its user
            managed.outcome.not_permitted.add(managed.main.pid)

    def kill(self, managed: ManagedProcess) -> None:
        """Send SIGKILL to each process of a run, until a search finds no new one."""
        if managed.cgroup is not None:
            managed.cgroup.kill()
        self._signal_group(managed, (signal.SIGKILL,))
        seen: set[tuple[int, int]] = set()
        for _ in range(_PASSES):
            members = self.members(managed)
            new = {pid: process for pid, process in members.items() if (pid, process.start) not in seen}
            if not new:
                return
            seen.update((pid, process.start) for pid, process in new.items())
            self._signal_members(managed, new, (signal.SIGKILL,))

    @staticmethod
    def _signal_group(managed: ManagedProcess, numbers: tuple[int, ...]) -> bool:
        """Signal the process group. Return False if that reached no process; the caller then signals each member.

        The group cannot be another run's, because the main process is not reaped yet. An adopted main process may be
        gone, so its group is not signalled.
        """
        if managed.main.adopted:
            return False
        try:
            for number in numbers:
                os.killpg(managed.main.pid, number)
        except (ProcessLookupError, PermissionError):
            # ESRCH: the new process has not created its group yet. EPERM: every member has changed its user.
            return False
        return True

    @staticmethod
    def _signal_members(managed: ManagedProcess, members: dict[int, Process], numbers: tuple[int, ...]) -> None:
        for process in members.values():
            if not all(send_signal(process, number) for number in numbers):
                managed.outcome.not_permitted.add(process.pid)
