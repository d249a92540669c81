"""Helpers that outlived their killed root. The next daemon ends them when it starts.

Helpers end by themselves when their root is gone, unless they hang or are stopped (SIGSTOP). A surviving helper can
occupy the addresses on which the next daemon must listen. So the runtime directory has a note of each running helper::

    helper.NAME     its pid, start time and boot id, separated by blanks

Each helper leads its process group. Its start time is in clock ticks since the boot, as in proc_pid_stat(5).
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator

from supervisor.host.files import replace_file
from supervisor.host.osport import current_boot
from supervisor.host.procfs import Process, find_process, send_signal

API = "gunicorn"
"""The name of the helper that serves the API."""
_PREFIX = "helper."
_TITLE = "ringward"
_END_S = 1.0
"""How long the helpers may take to end by themselves."""
_KILLED_S = 5.0
_POLL_S = 0.005


def note(runtime_dir: str, name: str, pid: int) -> None:
    """Write the note of a running helper. If the tmpfs is full, the helper stays unknown to the next start."""
    leader = find_process(pid)
    if leader is not None:
        with contextlib.suppress(OSError):  # ENOSPC
            # The root notes a helper again that `up` has noted: there must always be a complete note.
            replace_file(f"{runtime_dir}/{_PREFIX}{name}", f"{pid} {leader.start} {current_boot()}")


def forget(runtime_dir: str, name: str) -> None:
    """Remove the note of a helper that has ended."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(f"{runtime_dir}/{_PREFIX}{name}")


def clear(runtime_dir: str) -> None:
    """Remove all notes.

    The directory may be gone: systemd removes /run/user/UID when the user's last session ends.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(runtime_dir):
            if name.startswith(_PREFIX):
                forget(runtime_dir, name.removeprefix(_PREFIX))


def end(runtime_dir: str) -> list[Process]:
    """End all helpers of the previous daemon; return the processes that had to be killed.

    The caller must hold the daemon's lock, which proves that the previous root has ended.
    """
    groups = list(_noted(runtime_dir))
    if _wait(groups, _END_S):
        return []
    killed = _members(groups)
    for process in killed:
        send_signal(process, signal.SIGKILL)
    _wait(groups, _KILLED_S)
    return killed


def _noted(runtime_dir: str) -> Iterator[tuple[int, int]]:
    """Yield the process group and the start time of its leader for each note of this boot."""
    boot = current_boot()
    for name in os.listdir(runtime_dir):
        if name.startswith(_PREFIX):
            with contextlib.suppress(OSError, ValueError), open(f"{runtime_dir}/{name}", encoding="ascii") as file:
                pid, start, noted_boot = file.read(200).split(" ")
                if noted_boot == boot:
                    yield int(pid), int(start)


def _members(groups: list[tuple[int, int]]) -> list[Process]:
    """Return the living members of the groups.

    The kernel does not reuse the id of a group before its last member has ended. So if the leader is gone, the group is
    still the helper's. Members are recognised by their title, which a leader does not have until it has started.
    """
    leaders = {pid: find_process(pid) for pid, _ in groups}
    ours = {pid for pid, start in groups if (leader := leaders[pid]) is None or leader.start == start}
    processes = (find_process(int(name)) for name in os.listdir("/proc") if ours and name.isdigit())
    return [
        process
        for process in processes
        if process is not None
        and process.group in ours
        and (process.name.startswith(_TITLE) or (process.pid, process.start) in groups)
    ]


def _wait(groups: list[tuple[int, int]], timeout_s: float) -> bool:
    """Wait until all groups have ended; return False if the time has passed first."""
    deadline_s = time.monotonic() + timeout_s
    while groups and _members(groups):
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_POLL_S)
    return True
