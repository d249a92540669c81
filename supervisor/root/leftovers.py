"""Naming the processes that outlived their instance's main process."""

import os

_MAX_NAMED = 20


def members(group: int) -> list[str]:
    """Living members of a process group as ``name (pid)``, at most 20; the leader itself is left out.

    Reads /proc/PID/stat (proc_pid_stat(5)), which, unlike the command line, never waits for the process's memory.
    """
    found: list[str] = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == group:
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                head, _, tail = file.read().rpartition(b")")
        except (FileNotFoundError, ProcessLookupError):  # it ended while we looked
            continue
        fields = tail.split()
        if int(fields[2]) == group and fields[0] not in (b"Z", b"X"):
            found.append(f"{head.partition(b'(')[2].decode(errors='replace')} ({entry})")
    return found[:_MAX_NAMED]
