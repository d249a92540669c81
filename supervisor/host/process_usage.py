"""Resource usage of all runs, measured without cgroups in one pass over /proc.

A run owns its main process, the session and process group of that process, all descendants of its processes, and the
processes found in an earlier pass. A process that left its session and group and lost its parent becomes a child of the
supervisor, which is a subreaper. The run id in its environment identifies its run.

A process is identified by its id and start time, so a reused id is noticed. Processes that belong to no run are skipped
for up to a minute. So the cost of a pass depends only on the runs' processes and the host's new processes.
"""

import os
import time
from collections.abc import Iterator

from supervisor.host import procfs
from supervisor.host.process_environ import Environments
from supervisor.host.run_usage import TICKS, Process, RunProcesses, TotalUsage

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PATIENCE_S = 0.01
"""How long to wait for the environment of a process that cannot be read at once."""
_PORTION = 50
"""Number of processes to examine before other work gets a turn; they take about 2 ms."""
_REMEMBERED_S = 60.0
_UNREPORTED_TICKS = 10 * TICKS
"""A younger process may belong to a run that was not reported to this object yet."""
_GONE = frozenset(b"ZX")
"""States of a process that no longer uses resources: zombie and dead."""


def boot_ticks() -> int:
    """Return the present time in the unit of process start times: clock ticks since the host booted."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS)


class Processes:
    """Finds the processes of runs and adds up their usage.

    Args:
        supervisor: The process id of the supervisor.
        proc: Where /proc is mounted.
    """

    def __init__(self, supervisor: int, proc: str = "/proc") -> None:
        self._supervisor = supervisor
        self._proc = proc
        self._runs: dict[str, RunProcesses] = {}
        self._environments = Environments(_PATIENCE_S, proc)
        self._unrelated: set[int] = set()
        self._unread: set[int] = set()
        """Processes of the last pass whose run is unknown, because an environment could not be read yet."""
        self._forget_at_s = 0.0

    def add(self, run_id: str, pid: int, seen: int, before: TotalUsage | None = None) -> None:
        """Include a run in later passes.

        Args:
            run_id: The id of the run.
            pid: The id of its main process.
            seen: A time at which the main process existed, as from `boot_ticks`. A process with this id that started
                later is a different one.
            before: The last reported usage of the run, from which the sums continue.
        """
        run = self._runs[run_id] = RunProcesses(pid, seen)
        if before is not None:
            run.continue_from(before)

    def remove(self, run_id: str) -> None:
        """Exclude a run from later passes."""
        self._runs.pop(run_id, None)

    def sample(self, run_ids: frozenset[str], usages: dict[str, TotalUsage]) -> Iterator[None]:
        """Make one pass, and yield regularly so that other work gets a turn.

        Args:
            run_ids: The runs to measure.
            usages: Receives the usage of each run. A run whose main process is gone gets no entry.
        """
        runs = {run_id: self._runs[run_id] for run_id in run_ids if run_id in self._runs}
        processes: dict[int, Process] = {}
        for number, pid in enumerate(self._candidates(), 1):
            if (process := self._read(pid)) is not None:
                processes[pid] = process
            if number % _PORTION == 0:
                yield
        members = self._by_run(runs, processes)
        number = 0
        for run_id, run in runs.items():
            own = members[run_id]
            if run_id not in self._runs or not own:
                continue
            for process in own.values():
                process.read, process.written = procfs.io_bytes(process.pid, self._proc)
                number += 1
                if number % _PORTION == 0:
                    yield
            if run_id in self._runs:
                usages[run_id] = run.update(own)

    def _candidates(self) -> list[int]:
        """Return the ids of all processes that may belong to a run."""
        now_s = time.monotonic()
        if now_s >= self._forget_at_s:
            self._unrelated.clear()
            self._forget_at_s = now_s + _REMEMBERED_S
        pids = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        self._unrelated &= pids
        return sorted(pids - self._unrelated)

    def _read(self, pid: int) -> Process | None:
        fields = procfs.stat_fields(pid, self._proc)
        if len(fields) < 22:
            return None
        return Process(
            pid=pid,
            parent=int(fields[1]),
            group=int(fields[2]),
            session=int(fields[3]),
            start=int(fields[19]),
            user=int(fields[11]) + int(fields[13]),
            system=int(fields[12]) + int(fields[14]),
            rss=int(fields[21]) * _PAGE_BYTES,
            alive=fields[0][0] not in _GONE,
        )

    def _by_run(self, runs: dict[str, RunProcesses], processes: dict[int, Process]) -> dict[str, dict[int, Process]]:
        """Return the processes of each run by id, and remember processes that belong to no run."""
        belongs: dict[int, str | None] = {self._supervisor: None, os.getpid(): None}
        leaders: dict[int, str] = {}
        for run_id, run in runs.items():
            main = processes.get(run.pid)
            if main is None or main.start > run.seen or run.start not in (None, main.start):
                continue
            run.start = main.start
            leaders[run.pid] = belongs[run.pid] = run_id
            for pid, before in run.members.items():
                now = processes.get(pid)
                if now is not None and now.start == before.start:
                    belongs[pid] = run_id
        reported = boot_ticks() - _UNREPORTED_TICKS
        self._unread.clear()
        members: dict[str, dict[int, Process]] = {run_id: {} for run_id in runs}
        for pid, process in processes.items():
            owner = self._owner(process, processes, belongs, leaders)
            if owner in members:
                members[owner][pid] = process
            elif owner is None and process.start < reported and pid not in self._unread:
                self._unrelated.add(pid)
        return members

    def _owner(
        self,
        process: Process,
        processes: dict[int, Process],
        belongs: dict[int, str | None],
        leaders: dict[int, str],
    ) -> str | None:
        """Return the run of a process, and determine the runs of its ancestors."""
        line: list[int] = []
        unread = False
        ancestor: Process | None = process
        owner: str | None = None
        while ancestor is not None:
            if ancestor.pid in belongs:
                owner = belongs[ancestor.pid]
                unread |= ancestor.pid in self._unread
                break
            line.append(ancestor.pid)
            belongs[ancestor.pid] = None
            owner = leaders.get(ancestor.session) or leaders.get(ancestor.group)
            if owner is None and ancestor.parent == self._supervisor:
                variables = self._environments.read(ancestor.pid, ancestor.start)
                unread |= variables is None
                owner = (variables or {}).get("RINGWARD_RUN_ID")
            if owner is not None:
                break
            ancestor = processes.get(ancestor.parent)
        if unread:
            self._unread.update(line)
        belongs.update(dict.fromkeys(line, owner))
        return owner
