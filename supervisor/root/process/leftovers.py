"""Processes that outlive the main process of their run: finding, killing and listing them."""

from collections.abc import Callable, Iterable

from supervisor.host.cgroups import Cgroup
from supervisor.host.procfs import Process, find_process, with_descendants
from supervisor.ipc.messages import Message
from supervisor.root.handover.state_schema import LeftoverRunState
from supervisor.root.process.managed_process import ManagedProcess
from supervisor.root.process.process_tree import ProcessTrees

_POLL_S = 1.0


class _EndedRun:
    """An ended run and its leftovers."""

    def __init__(self, task: str, run: str, cgroup: str | None, starts: dict[int, int]) -> None:
        self.task = task
        self.run = run
        self.cgroup = cgroup
        """The directory of its cgroup; None: it has none."""
        self.starts = starts
        """Start times of its processes by id. A process with another start time is a different one."""
        self.shown: list[str] = []

    def scan(self) -> bool:
        """Find the processes that are still alive; return whether there are any."""
        roots = [
            pid
            for pid, start in self.starts.items()
            if (process_now := find_process(pid)) is not None and process_now.start == start
        ]
        processes = with_descendants(roots)
        if self.cgroup is not None:
            members = {pid: find_process(pid) for pid in Cgroup(self.cgroup).members()}
            processes |= {pid: process for pid, process in members.items() if process is not None}
        self.starts = {process.pid: process.start for process in processes.values()}
        self.shown = [str(process) for process in sorted(processes.values(), key=lambda process: process.pid)]
        return bool(processes)


class LeftoverRuns:
    """Lists the leftovers of ended runs while any of them is alive.

    Args:
        send: Sends a message to the scheduler.
    """

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._runs: list[_EndedRun] = []
        self.due_s: float | None = None
        """When :meth:`tick` is due (monotonic seconds)."""

    def add(self, managed: ManagedProcess, processes: list[Process], now_s: float) -> None:
        """List the processes of a run that ends without them."""
        cgroup = None if managed.cgroup is None else managed.cgroup.path
        starts = {process.pid: process.start for process in processes}
        self._runs.append(_EndedRun(managed.spawn.task, managed.run, cgroup, starts))
        self._check(now_s)

    def tick(self, now_s: float) -> None:
        """Check again if it is time (monotonic seconds)."""
        if self.due_s is not None and now_s >= self.due_s:
            self._check(now_s)

    def _check(self, now_s: float) -> None:
        before = self.listed()
        self._runs = [run for run in self._runs if run.scan()]
        self.due_s = now_s + _POLL_S if self._runs else None
        if self.listed() != before:
            self._send({"op": "left_running", "runs": self.listed()})

    def listed(self) -> list[dict[str, object]]:
        """Return the runs for a message, each with its processes as ``name (pid)``."""
        return [{"run": run.run, "task": run.task, "processes": run.shown} for run in self._runs]

    def dump(self) -> list[LeftoverRunState]:
        """Return the state for the next root."""
        return [LeftoverRunState(run.task, run.run, run.cgroup, list(run.starts.items())) for run in self._runs]

    def load(self, states: Iterable[LeftoverRunState], now_s: float) -> None:
        """Restore the list of the previous root."""
        self._runs = [_EndedRun(task, run, cgroup, dict(starts)) for task, run, cgroup, starts in states]
        self._check(now_s)


_MAX_NAMED = 20


def none_left(trees: ProcessTrees, managed: ManagedProcess) -> bool:
    """Return whether all processes of a run have ended; its cgroup is then removed."""
    if managed.cgroup is not None:
        usage = managed.cgroup.usage()
        if not managed.cgroup.remove():
            return False
        managed.outcome.usage = usage
        managed.cgroup = None
        return not trees.members(managed)
    return trees.is_empty(managed)


def kill(trees: ProcessTrees, managed: ManagedProcess) -> None:
    """Kill the leftovers, and note their names."""
    for process in trees.members(managed).values():
        managed.outcome.leftovers[process.pid, process.start] = str(process)
    trees.kill(managed)


def format_survivors(managed: ManagedProcess, living: list[Process], after_s: float) -> str:
    """Return a line for the log of a run about the processes that SIGKILL has not ended, and why."""
    barred = [process for process in living if process.pid in managed.outcome.not_permitted]
    others = [process for process in living if process not in barred]
    named = [
        f"({reason}): {format_names(processes)}"
        for processes, reason in ((barred, "not permitted to signal it"), (others, "uninterruptible?"))
        if processes
    ]
    return f"still there {after_s:g} s after SIGKILL {'; '.join(named)}"


def format_names(processes: list[Process] | list[str]) -> str:
    """Return the names of at most 20 processes for a log, and how many more there are."""
    shown = ", ".join(map(str, processes[:_MAX_NAMED]))
    more = len(processes) - _MAX_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
