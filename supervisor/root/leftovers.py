"""Naming the processes that outlived their instance's main process."""

import os

_MAX_NAMED = 20


def members(group: int) -> list[str]:
    """Living members of a process group as ``name (pid)``, at most 20; the leader itself is left out.

    Reads /proc/PID/stat (proc_pid_stat(5)), which, unlike the command line, never waits for the process's memory.
    What cannot be read stays unnamed: this is for a line in a log.
    """
    found: list[str] = []
    try:
        entries = os.listdir("/proc")
    except OSError:  # EMFILE
        return found
    for entry in entries:
        if not entry.isdigit() or int(entry) == group:
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                head, _, tail = file.read().rpartition(b")")
        except OSError:  # ENOENT, ESRCH: it ended while we looked; EPERM: hidepid=1, another user's; EMFILE
            continue
        fields = tail.split()
        if int(fields[2]) == group and fields[0] not in (b"Z", b"X"):
            found.append(f"{head.partition(b'(')[2].decode(errors='replace')} ({entry})")
    return found[:_MAX_NAMED]
