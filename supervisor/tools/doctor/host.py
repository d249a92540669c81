"""Checks the host: cgroups, shared memory, descriptors and inotify."""

import contextlib
import os
import resource
from collections.abc import Iterable, Mapping

from supervisor.host.cgroups import LIMITS, path_of
from supervisor.host.files import nearest_existing
from supervisor.tools.doctor.finding import Finding, size

_CONTROLLERS = ("memory", "cpu", "io", "pids")
_NOT_APPLIED = "limits.memory, limits.cpu and others are not applied"
_MIN_NOFILE = 4096
_MIN_SHARED_BYTES = 64 << 20
_FILE_WATCHER = "ringward filewatcher"[:15]
"""The name of the file watcher in /proc/PID/comm, which the kernel truncates."""


def cgroups(types: Mapping[str, str], proc: str = "/proc") -> Finding:
    """Check whether runs can have their own cgroups, and with which controllers.

    Args:
        types: The types of file systems by mount point.
        proc: Where /proc is mounted.
    """
    check = "cgroups"
    mount = next((mount_point for mount_point, kind in types.items() if kind == "cgroup2"), None)
    if mount is None:
        text = f"cgroup version 2 is not mounted: {_NOT_APPLIED}"
        return Finding(check, "warn", text, "boot with cgroup version 2, or pass it into the container")
    directory = mount + path_of("self", proc).rstrip("/")
    try:
        with open(f"{directory}/cgroup.controllers", encoding="ascii") as file:
            controllers = set(file.read().split())
    except OSError as err:
        return Finding(check, "warn", f"{directory}: {err.strerror}", "run the command where its own cgroup is visible")
    if not os.access(directory, os.W_OK):
        remedy = "run the daemon as root, or under systemd with Delegate=yes"
        return Finding(check, "warn", f"version 2, but {directory} is not writable: {_NOT_APPLIED}", remedy)
    missing = [name for name in _CONTROLLERS if name not in controllers]
    if missing:
        text = f"version 2 in {directory}, without {', '.join(missing)}"
        lost = [f"limits.{name}" for name, (controller, _file) in LIMITS.items() if controller in missing]
        text += f": {' and '.join(lost)} {'are' if len(lost) > 1 else 'is'} not applied"
        return Finding(check, "warn", text, "enable them in the parent cgroups (cgroup.subtree_control)")
    return Finding(check, "ok", f"version 2 in {directory}, with {', '.join(_CONTROLLERS)}")


def shared_memory(directories: Iterable[str], types: Mapping[str, str]) -> Finding:
    """Check whether a tmpfs has enough free space for the rings.

    Args:
        directories: The directories in which the runtime directory can be, the best first.
        types: The types of file systems by mount point.
    """
    from supervisor.host.shared_memory import type_of

    check = "shared memory"
    for directory in directories:
        there = nearest_existing(directory)
        if type_of(there, types) != "tmpfs" or not os.access(there, os.W_OK):
            continue
        filesystem = os.statvfs(there)
        free = filesystem.f_bavail * filesystem.f_frsize
        if free < _MIN_SHARED_BYTES:
            text = f"{directory}: {size(free)} free; an active run needs up to 1.1 MB"
            return Finding(check, "warn", text, "mount a larger tmpfs there (in a container: --shm-size)")
        return Finding(check, "ok", f"{directory}: {size(free)} free")
    remedy = "mount a tmpfs at /run or /dev/shm, or set XDG_RUNTIME_DIR"
    return Finding(check, "fail", "no writable directory on tmpfs for live output", remedy)


def descriptors() -> Finding:
    """Check how many descriptors the daemon can open."""
    check = "descriptors"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < _MIN_NOFILE:
        remedy = "raise the limit: LimitNOFILE= of the unit, or ulimit -Hn"
        return Finding(check, "warn", f"at most {hard}; each active run needs about 5", remedy)
    return Finding(check, "ok", "unlimited" if hard == resource.RLIM_INFINITY else f"at most {hard}")


def inotify(instances: int, watches: int, proc: str = "/proc") -> Finding:
    """Check whether enough inotify instances and watches are free for the tasks with ``on_change``.

    Instances and watches of a running file watcher count as free, because it needs no others.
    """
    check = "inotify"
    texts, short = [], []
    for (kind, used), needed in zip(_inotify_use(proc).items(), (instances, watches), strict=True):
        try:
            with open(f"{proc}/sys/fs/inotify/max_user_{kind}", encoding="ascii") as file:
                limit = int(file.read())
        except OSError as err:
            text = f"{err.filename}: {err.strerror}: on_change lists directories every 10 s"
            return Finding(check, "warn", text, "use a kernel with CONFIG_INOTIFY_USER")
        texts.append(f"{kind}: {needed} needed, {used} of {limit} used by other programs of this user")
        if used + needed > limit:
            short.append(f"fs.inotify.max_user_{kind}")
    if short:
        remedy = f"raise {' and '.join(short)} with sysctl, and in /etc/sysctl.d"
        return Finding(check, "warn", "; ".join(texts), remedy)
    return Finding(check, "ok", "; ".join(texts))


def _inotify_use(proc: str) -> dict[str, int]:
    """Return the numbers of inotify instances and watches that other programs of this user have open."""
    instances = watches = 0
    for process in os.listdir(proc):
        folder = f"{proc}/{process}"
        # ENOENT: the process has ended; EACCES: it is in another security domain.
        with contextlib.suppress(OSError):
            if not process.isdecimal() or os.stat(folder).st_uid != os.geteuid() or _is_file_watcher(folder):
                continue
            for fd in os.listdir(f"{folder}/fd"):
                if os.readlink(f"{folder}/fd/{fd}") == "anon_inode:inotify":
                    instances += 1
                    with open(f"{folder}/fdinfo/{fd}", encoding="ascii") as file:
                        watches += sum(line.startswith("inotify ") for line in file)
    return {"instances": instances, "watches": watches}


def _is_file_watcher(folder: str) -> bool:
    with open(f"{folder}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().rstrip("\n") == _FILE_WATCHER
