"""Helpers that outlive the root that has started them, because it was killed: the next start ends them.

They end by themselves when their root is gone, unless they hang, or were stopped (SIGSTOP). One that does not end has
the addresses that the next daemon is to listen on. So the runtime directory has a note of each that runs::

    helper.NAME     id and start of the leader of its process group, and of the boot, separated by blanks

The start counts clock ticks since the boot, as in proc_pid_stat(5).
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator

from supervisor.host.osport import current_boot
from supervisor.host.procfs import Process, look, send

API = "gunicorn"
"""Name of the helper that serves the API."""
_PREFIX = "helper."
_TITLE = "ringward"
_END_S = 1.0
"""How long they may take to end by themselves."""
_KILLED_S = 5.0
_LOOK_S = 0.005


def note(runtime_dir: str, name: str, pid: int) -> None:
    """Note a running helper. If there is no room for the note, the next start does not know the helper."""
    leader = look(pid)
    if leader is not None:
        with contextlib.suppress(OSError):  # ENOSPC
            path = f"{runtime_dir}/{_PREFIX}{name}"
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(fd, "w", encoding="ascii") as file:
                file.write(f"{pid} {leader.start} {current_boot()}")


def forget(runtime_dir: str, name: str) -> None:
    """Remove the note of an ended helper."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(f"{runtime_dir}/{_PREFIX}{name}")


def clear(runtime_dir: str) -> None:
    """Remove all notes. The directory may be gone: that of a session goes with its user's last logout."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(runtime_dir):
            if name.startswith(_PREFIX):
                forget(runtime_dir, name.removeprefix(_PREFIX))


def end(runtime_dir: str) -> list[Process]:
    """End all helpers of the previous daemon; return the ones that had to be killed.

    The caller must hold the lock of that daemon.
    """
    groups = list(_noted(runtime_dir))
    if _wait(groups, _END_S):
        return []
    killed = _members(groups)
    for process in killed:
        send(process, signal.SIGKILL)
    _wait(groups, _KILLED_S)
    return killed


def _noted(runtime_dir: str) -> Iterator[tuple[int, int]]:
    """Return leader and start of each noted group."""
    boot = current_boot()
    for name in os.listdir(runtime_dir):
        if name.startswith(_PREFIX):
            with contextlib.suppress(OSError, ValueError), open(f"{runtime_dir}/{name}", encoding="ascii") as file:
                pid, start, noted_boot = file.read(200).split(" ")
                if noted_boot == boot:
                    yield int(pid), int(start)


def _members(groups: list[tuple[int, int]]) -> list[Process]:
    """Return the living members. The number of a group is not reused before its last member has ended.

    A leader that has just begun has no title yet.
    """
    leaders = {pid: look(pid) for pid, _ in groups}
    ours = {pid for pid, start in groups if (leader := leaders[pid]) is None or leader.start == start}
    found = (look(int(name)) for name in os.listdir("/proc") if ours and name.isdigit())
    return [
        one
        for one in found
        if one is not None and one.group in ours and (one.name.startswith(_TITLE) or (one.pid, one.start) in groups)
    ]


def _wait(groups: list[tuple[int, int]], timeout_s: float) -> bool:
    """Wait until all groups have ended; return whether they have."""
    deadline_s = time.monotonic() + timeout_s
    while groups and _members(groups):
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_LOOK_S)
    return True
