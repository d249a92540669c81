"""Finding the daemon's processes from known ones, without searching the whole host."""

import itertools
import os

from supervisor.host.procfs import children_of_thread, read_process_file

OF_THE_SCHEDULER = ("janitor", "watcher", "filewatcher", "notifier", "exporter")
"""Processes that the scheduler starts on demand."""
_YOUNGEST = 16
"""Number of youngest processes among which the spare is searched."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def named_pids(root_pid: int, scheduler_pid: int | None) -> list[tuple[str, int]]:
    """Return names and pids of root, zygote, scheduler and API server (this process's parent), and their children."""
    named = [("supervisor", root_pid)]
    children = children_of_thread(root_pid, root_pid)
    # Most runs are younger than the zygote and older than the spare, which becomes the next run. Further processes with
    # the zygote's title are forks of it that are about to become spares.
    for name, pids in (("spawner", children), ("spare", children[: -_YOUNGEST - 1 : -1])):
        named += [(name, pid) for pid in itertools.islice((pid for pid in pids if _title(pid) == name), 1)]
    if scheduler_pid is not None:
        named.append(("scheduler", scheduler_pid))
        named += [
            (name, pid)
            for pid in children_of_thread(scheduler_pid, scheduler_pid)
            if (name := _title(pid)) in OF_THE_SCHEDULER
        ]
    arbiter = os.getppid()
    named.append(("gunicorn", arbiter))
    named += [("worker", pid) for pid in children_of_thread(arbiter, arbiter)]
    return named


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process in bytes; None if it has ended."""
    fields = read_process_file(pid, "statm").split()
    return int(fields[1]) * _PAGE_BYTES if fields else None


def _title(pid: int) -> str:
    """Return the title after "ringward"; empty if the process has none yet, or has ended.

    In the title of an exporter, the name of its export follows.
    """
    words = read_process_file(pid, "cmdline")[:100].rstrip(b"\0").decode(errors="replace").replace("\0", " ").split(" ")
    named = 2 + (words[1:2] == ["exporter"])
    return words[1] if len(words) == named and words[0] == "ringward" else ""
