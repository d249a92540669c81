"""A cgroup of its own for each run (cgroups(7), version 2), where we may create cgroups.

::

    <our cgroup>/ringward/      the daemon itself, only where controllers are available
    <our cgroup>/runs/NAME/     one run (:mod:`supervisor.host.cgroup_names`)

A process passes its cgroup to all its descendants, so no descendant escapes. ``rmdir`` succeeds once only zombies are
left, which tells us that a run has ended. ``cgroup.kill`` ends all processes at once.

The runs can have controllers (memory, cpu, io) only when no process is left in our own cgroup beside them, so the
daemon moves into a leaf first. At the root of the hierarchy it need not. All files here are the kernel's: no disk
is touched, and nothing waits for one.
"""

import contextlib
import os
import re
from dataclasses import dataclass

_CONTROLLERS = ("memory", "cpu", "io")
_LEAF = "ringward"
_RUNS = "runs"
_CONTROL = ".control"
_OCTAL = re.compile(r"\\([0-7]{3})")
"""How blanks are written in mountinfo (proc_pid_mountinfo(5))."""
_PERIOD_US = 100_000
_READ_BYTES = 65536


@dataclass(frozen=True)
class Usage:
    """Total usage of the processes of a cgroup."""

    user_us: int
    system_us: int
    oom_kills: int
    """How many of them the kernel killed for want of memory."""
    filled_up: bool = False
    """Whether that was the memory which the cgroup may have; else it was the host's, or that of a cgroup above."""
    read_bytes: int | None = None
    """From disks; None: not counted."""
    write_bytes: int | None = None

    @property
    def oom_reason(self) -> str:
        """Return why the kernel killed, for the log of the run."""
        if self.filled_up:
            return "its memory was used up (limits.memory)"
        return "out of memory, on the host or in a parent cgroup"


class Cgroup:
    """The cgroup of one run."""

    __slots__ = ("controllers", "limits", "path")

    def __init__(self, path: str, controllers: frozenset[str] = frozenset()) -> None:
        self.path = path
        self.limits: set[str] = set()
        """The limited controllers out of memory and cpu."""
        self.controllers = controllers

    @property
    def procs(self) -> str:
        """Return the file through which a process joins."""
        return f"{self.path}/cgroup.procs"

    def limit(self, memory_bytes: int | None, cpus: float | None) -> None:
        """Limit what its processes may use together.

        Raises:
            OSError: the kernel refused, or lacks the controller.
        """
        if memory_bytes is not None:
            _write(f"{self.path}/memory.max", str(memory_bytes))
            self.limits.add("memory")
        if cpus is not None:
            _write(f"{self.path}/cpu.max", f"{max(_PERIOD_US // 100, round(cpus * _PERIOD_US))} {_PERIOD_US}")
            self.limits.add("cpu")

    def members(self) -> list[int]:
        """Return the ids of the processes in it and below, without zombies."""
        found: list[int] = []
        for directory, _, _ in os.walk(self.path):
            with contextlib.suppress(OSError):  # ENODEV, ENOENT: removed meanwhile; EOPNOTSUPP: threaded
                found += map(int, _read(f"{directory}/cgroup.procs").split())
        return found

    def kill(self) -> bool:
        """Kill all processes in it and below by SIGKILL; return False where the kernel cannot do that (before 5.14)."""
        try:
            _write(f"{self.path}/cgroup.kill", "1")
        except OSError:  # ENOENT, EOPNOTSUPP
            return False
        return True

    def remove(self) -> bool:
        """Remove it; False while there are processes in it."""
        try:
            os.rmdir(self.path)
        except FileNotFoundError:
            return True
        except OSError:  # EBUSY: processes, or cgroups that they made
            for directory, names, _ in os.walk(self.path, topdown=False):
                for name in names:
                    with contextlib.suppress(OSError):
                        os.rmdir(f"{directory}/{name}")
            try:
                os.rmdir(self.path)
            except OSError:
                return False
        return True

    def usage(self) -> Usage | None:
        """Return the usage so far; None if it cannot be read."""
        try:
            cpu = _numbers(_read(f"{self.path}/cpu.stat"))
            events = _numbers(_read(f"{self.path}/memory.events")) if "memory" in self.controllers else {}
            io = _disk_bytes(_read(f"{self.path}/io.stat")) if "io" in self.controllers else (None, None)
        except OSError:  # ENOENT, ENODEV: removed
            return None
        kills = events.get("oom_kill", 0)
        filled_up = bool(kills) and "memory" in self.limits and events.get("oom", 0) > 0
        return Usage(cpu.get("user_usec", 0), cpu.get("system_usec", 0), kills, filled_up, *io)


class Cgroups:
    """Where the cgroups of runs are made."""

    def __init__(self, directory: str, controllers: frozenset[str]) -> None:
        self.directory = directory
        self.controllers = controllers
        """The controllers of runs out of memory, cpu and io."""

    @classmethod
    def find(cls, proc: str = "/proc", *, companion: int | None = None) -> "Cgroups | None":
        """Prepare our place in the hierarchy; None when there is no hierarchy, or we may not write in it.

        Args:
            proc: where /proc is mounted.
            companion: process group of ours that has begun already, and moves with us.
        """
        own = _own_directory(proc)
        if own is None:
            return None
        if os.path.basename(own) == _LEAF:  # we were executed anew, or the service manager put us there
            own = os.path.dirname(own)
        runs = f"{own}/{_RUNS}"
        try:
            _make_sure(runs)
            while not _usable(runs):
                if os.path.exists(runs):
                    return None
                _make_sure(runs)  # another daemon has just removed it
        except OSError:  # EROFS, EACCES, EPERM: not ours to change
            return None
        return cls(runs, _enable(own, runs, companion))

    def make(self, name: str) -> Cgroup:
        """Create a cgroup.

        Raises:
            FileExistsError: there is one of this name.
            OSError: the kernel refused: too many, or no memory.
        """
        path = f"{self.directory}/{name}"
        while True:
            try:
                os.mkdir(path)
            except FileNotFoundError:  # another daemon, whose place this is, too, had no run left there
                _make_sure(self.directory)
                for controller in self.controllers:
                    _enabled(self.directory, controller)
            else:
                return Cgroup(path, self.controllers)

    def close(self) -> None:
        """Remove the place, when no run is left there."""
        with contextlib.suppress(OSError):  # EBUSY: intended leftovers, or another daemon's cgroup
            os.rmdir(self.directory)


def give_way(proc: str = "/proc") -> None:
    """Take the controllers from remaining runs, so that another daemon can be put beside them.

    systemd before 254 puts it into the cgroup of its unit, which the kernel refuses while children have controllers.
    A program that systemd executes before that runs in ``.control`` there; anywhere else this function does nothing.
    """
    own = _own_directory(proc)
    if own is None or os.path.basename(own) != _CONTROL:
        return
    unit = os.path.dirname(own)
    for directory in (f"{unit}/{_RUNS}", unit):
        path = f"{directory}/cgroup.subtree_control"
        with contextlib.suppress(FileNotFoundError):  # there are no runs
            for name in _read(path).split():
                with contextlib.suppress(OSError):  # EBUSY: a run gave it to cgroups that it made
                    _write(path, f"-{name}")


def name_of_cgroup(pid: int, proc: str = "/proc", place: str | None = None) -> str:
    """Return the name of the run's cgroup that has a process; empty without one. Never waits for that process.

    `place` is where the cgroups of runs are, as :func:`own_place` says; None: anywhere. We may be in a run of another
    daemon ourselves, and so may be what we started.
    """
    path, begin = _path_of(str(pid), proc), f"{place or ''}/{_RUNS}/"
    if place is not None and not path.startswith(begin):
        return ""
    return path.partition(begin)[2].partition("/")[0]


def own_place(proc: str = "/proc") -> str | None:
    """Return the parent cgroup of our runs, as named in /proc/PID/cgroup, if there is one."""
    path = _path_of("self", proc)
    return path.removesuffix(f"/{_LEAF}").rstrip("/") if path else None


def _path_of(pid: str, proc: str) -> str:
    try:
        lines = _read(f"{proc}/{pid}/cgroup").splitlines()
    except OSError:  # ENOENT, ESRCH: it has ended; no /proc
        return ""
    return next((line[3:] for line in lines if line.startswith("0::")), "")


def _own_directory(proc: str) -> str | None:
    """Return the directory of our own cgroup."""
    try:
        lines = _read(f"{proc}/self/cgroup").splitlines()
        mounts = _read(f"{proc}/self/mountinfo").splitlines()
    except OSError:  # no /proc
        return None
    path = next((line[3:] for line in lines if line.startswith("0::")), None)
    if path is None or path.startswith("/.."):  # outside of our cgroup namespace
        return None
    for line in mounts:
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            root, place = (_OCTAL.sub(lambda code: chr(int(code[1], 8)), word) for word in fields.split()[3:5])
            root = root.rstrip("/")
            if f"{path}/".startswith(f"{root}/"):
                return (place + path.removeprefix(root)).rstrip("/")
    return None


def _make_sure(directory: str) -> None:
    """Have a directory."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory)


def _usable(runs: str) -> bool:
    """Whether runs can have cgroups there."""
    try:
        return _read(f"{runs}/cgroup.type").strip() == "domain" and os.access(f"{runs}/cgroup.procs", os.W_OK)
    except FileNotFoundError:
        return False


def _enable(own: str, runs: str, companion: int | None) -> frozenset[str]:
    """Have the controllers that limit runs and count for them, as far as they can be had."""
    try:
        there = set(_read(f"{own}/cgroup.controllers").split())
        wanted = [name for name in _CONTROLLERS if name in there]
        if wanted and os.path.exists(f"{own}/cgroup.type"):  # not at the root, where processes may stay
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{own}/{_LEAF}")
            _write(f"{own}/{_LEAF}/cgroup.procs", "0")
            while companion is not None and (pids := _group(f"{own}/cgroup.procs", companion)):
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):  # ESRCH: it has ended
                        _write(f"{own}/{_LEAF}/cgroup.procs", str(pid))
    except OSError:  # EACCES, EROFS, EPERM: not delegated; EBUSY: others made controllers of the leaf
        return frozenset()
    return frozenset(name for name in wanted if all(_enabled(directory, name) for directory in (own, runs)))


def _group(procs: str, group: int) -> list[int]:
    """Return the members of a process group that are in a cgroup."""
    found = []
    for pid in map(int, _read(procs).split()):
        with contextlib.suppress(ProcessLookupError):  # ESRCH: it has ended
            if os.getpgid(pid) == group:
                found.append(pid)
    return found


def _enabled(directory: str, name: str) -> bool:
    """Give those below a directory a controller: one at a time, since the kernel takes all that are asked, or none."""
    try:
        _write(f"{directory}/cgroup.subtree_control", f"+{name}")
    except OSError:
        # EBUSY: others' processes stand beside us; EACCES, EROFS, EPERM: not delegated; EINVAL: real-time processes;
        # EOPNOTSUPP: our cgroup is a threaded one.
        return False
    return True


def _disk_bytes(text: str) -> tuple[int, int]:
    """Read and written, of all devices of an io.stat."""
    sums = {"rbytes": 0, "wbytes": 0}
    for word in text.split():
        name, _, value = word.partition("=")
        if name in sums:
            sums[name] += int(value)
    return sums["rbytes"], sums["wbytes"]


def _numbers(text: str) -> dict[str, int]:
    return {name: int(value) for name, _, value in (line.partition(" ") for line in text.splitlines())}


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b""
        while part := os.read(fd, _READ_BYTES):
            data += part
    finally:
        os.close(fd)
    return data.decode("utf-8", "surrogateescape")


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
