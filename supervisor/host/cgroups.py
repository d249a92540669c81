"""One cgroup for each run (cgroups(7), version 2), where the daemon may create cgroups.

::

    <daemon's cgroup>/ringward/      the daemon itself, only where controllers are available
    <daemon's cgroup>/runs/NAME/     one run

A cgroup that is created for a run has the run id as its name. A cgroup that is created in advance
(``spare-DAEMON ID-NUMBER``) cannot be renamed, so its extended attribute ``user.ringward.run`` names its run. Cgroups
have such attributes (xattr(7)) since Linux 5.7, which can also create processes directly in a cgroup.

Descendants inherit the cgroup of a process, so none of them escapes. ``rmdir`` succeeds when at most zombies are left,
which shows that a run has ended. ``cgroup.kill`` kills all processes at once.

The runs' cgroups can have controllers (memory, cpu, io, pids) only if no process is in the cgroup above them. So the
daemon moves into a leaf first, except at the root of the hierarchy, which has no such rule. All files here belong to
the kernel, so no operation waits for a disk.
"""

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

LIMITS: Mapping[str, tuple[str, str]] = {
    "memory": ("memory", "memory.max"),
    "memory_high": ("memory", "memory.high"),
    "swap": ("memory", "memory.swap.max"),
    "cpu": ("cpu", "cpu.max"),
    "cpu_weight": ("cpu", "cpu.weight"),
    "io_weight": ("io", "io.weight"),
    "pids": ("pids", "pids.max"),
}
"""The limits that only a cgroup can apply: the controller that each needs, and its file."""
_CONTROLLERS = ("memory", "cpu", "io", "pids")
_LEAF = "ringward"
_RUNS = "runs"
_CONTROL = ".control"
_SPARE = "spare-"
_ATTRIBUTE = "user.ringward.run"
_OCTAL = re.compile(r"\\([0-7]{3})")
"""The escape sequence for a space and other characters in mountinfo (proc_pid_mountinfo(5))."""
_PERIOD_US = 100_000
_READ_BYTES = 65536


def spare_name(daemon_id: str, number: int) -> str:
    """Return the name of a cgroup that is created in advance."""
    return f"{_SPARE}{daemon_id}-{number}"


def is_spare(name: str, daemon_id: str = "") -> bool:
    """Return whether :func:`spare_name` made a name, for this daemon if an id is given."""
    return name.startswith(f"{_SPARE}{daemon_id}")


def assign(directory: str, run: str) -> None:
    """Assign a cgroup that was created in advance to a run.

    Raises:
        OSError: EOPNOTSUPP: the kernel is too old.
    """
    os.setxattr(directory, _ATTRIBUTE, run.encode())


def run_of(directory: str) -> str:
    """Return the run id that a cgroup names; empty for a spare cgroup without a run. The directory need not exist."""
    name = os.path.basename(directory)
    if not is_spare(name):
        return name
    try:
        return os.getxattr(directory, _ATTRIBUTE).decode()
    except OSError:  # ENODATA: not assigned yet; ENOENT: removed
        return ""


@dataclass(frozen=True)
class CgroupUsage:
    """The total usage of a cgroup's processes."""

    user_us: int
    system_us: int
    oom_kills: int
    """How many of the processes the kernel killed because memory was short."""
    filled_up: bool = False
    """Whether the cgroup had reached its own memory limit; otherwise the host or a parent cgroup was out of memory."""
    read_bytes: int | None = None
    """Bytes read from disks; None: not counted."""
    write_bytes: int | None = None

    @property
    def oom_reason(self) -> str:
        """Return why the kernel killed processes, for the run's log."""
        if self.filled_up:
            return "its memory was used up (limits.memory)"
        return "out of memory, on the host or in a parent cgroup"


class Cgroup:
    """The cgroup of one run."""

    __slots__ = ("controllers", "limits", "path")

    def __init__(self, path: str, controllers: frozenset[str] = frozenset()) -> None:
        self.path = path
        self.limits: set[str] = set()
        """The limits of the run that apply."""
        self.controllers = controllers

    @property
    def procs(self) -> str:
        """Return the path of the file to which a process id is written to move the process here."""
        return f"{self.path}/cgroup.procs"

    def limit(self, limits: Mapping[str, float]) -> dict[str, str]:
        """Limit the total usage of its processes, by the names in :data:`LIMITS`; other limits are ignored.

        Returns:
            Why limits do not apply, by name: a controller is missing, or the kernel was built without the file.

        Raises:
            OSError: the kernel refused a limit.
        """
        reasons = {}
        for name in limits.keys() & LIMITS.keys():
            controller, file = LIMITS[name]
            if controller not in self.controllers:
                reasons[name] = missing_controller(name)
                continue
            try:
                _write_text(f"{self.path}/{file}", _text_of(name, limits[name]))
            except FileNotFoundError:
                if not os.path.exists(self.path):
                    raise
                reasons[name] = f"this kernel has no {file}"
            else:
                self.limits.add(name)
        return reasons

    def members(self) -> list[int]:
        """Return the ids of the processes in this cgroup and below, without zombies."""
        pids: list[int] = []
        for directory, _, _ in os.walk(self.path):
            with contextlib.suppress(OSError):  # ENODEV, ENOENT: removed meanwhile; EOPNOTSUPP: threaded
                pids += map(int, read_text(f"{directory}/cgroup.procs").split())
        return pids

    def kill(self) -> bool:
        """Send SIGKILL to all processes in this cgroup and below; return False if Linux is older than 5.14."""
        try:
            _write_text(f"{self.path}/cgroup.kill", "1")
        except OSError:  # ENOENT, EOPNOTSUPP
            return False
        return True

    def remove(self) -> bool:
        """Remove the cgroup and those below; return False if there are processes in it."""
        try:
            os.rmdir(self.path)
        except FileNotFoundError:
            return True
        except OSError:  # EBUSY: there are processes, or cgroups that they created
            for directory, names, _ in os.walk(self.path, topdown=False):
                for name in names:
                    with contextlib.suppress(OSError):
                        os.rmdir(f"{directory}/{name}")
            try:
                os.rmdir(self.path)
            except OSError:
                return False
        return True

    def usage(self) -> CgroupUsage | None:
        """Return the usage so far; None if it cannot be read."""
        try:
            cpu = parse_counters(read_text(f"{self.path}/cpu.stat"))
            events = parse_counters(read_text(f"{self.path}/memory.events")) if "memory" in self.controllers else {}
            io = disk_bytes(read_text(f"{self.path}/io.stat")) if "io" in self.controllers else (None, None)
        except OSError:  # ENOENT, ENODEV: removed
            return None
        kills = events.get("oom_kill", 0)
        filled_up = bool(kills) and "memory" in self.limits and events.get("oom", 0) > 0
        return CgroupUsage(cpu.get("user_usec", 0), cpu.get("system_usec", 0), kills, filled_up, *io)


class Cgroups:
    """The directory in which the runs' cgroups are created."""

    def __init__(self, directory: str, controllers: frozenset[str]) -> None:
        self.directory = directory
        self.controllers = controllers
        """The controllers that are enabled for runs: memory, cpu, io and pids at most."""

    @classmethod
    def find(cls, proc: str = "/proc", *, companion: int | None = None) -> "Cgroups | None":
        """Prepare the daemon's part of the hierarchy; None if there is no hierarchy or the daemon may not write to it.

        Args:
            proc: Where /proc is mounted.
            companion: The id of a running process group that moves into the leaf with the daemon; None: no group.
        """
        own = _own_directory(proc)
        if own is None:
            return None
        if os.path.basename(own) == _LEAF:  # after an upgrade, or because the service manager uses the leaf
            own = os.path.dirname(own)
        runs = f"{own}/{_RUNS}"
        try:
            _make_directory(runs)
            while not _is_usable(runs):
                if os.path.exists(runs):
                    return None
                _make_directory(runs)  # another daemon has just removed it
        except OSError:  # EROFS, EACCES, EPERM: the daemon may not create cgroups here
            return None
        return cls(runs, _enable_available(own, runs, companion))

    def make(self, name: str) -> Cgroup:
        """Create a cgroup.

        Raises:
            FileExistsError: there is already one with this name.
            OSError: the kernel refused, because there are too many cgroups or memory is short.
        """
        path = f"{self.directory}/{name}"
        while True:
            try:
                os.mkdir(path)
            except FileNotFoundError:  # another daemon that shares the directory had no more runs and removed it
                _make_directory(self.directory)
                for controller in self.controllers:
                    _enable(self.directory, controller)
            else:
                return Cgroup(path, self.controllers)

    def close(self) -> None:
        """Remove the directory if no run is left in it."""
        with contextlib.suppress(OSError):  # EBUSY: processes that are left running, or another daemon's cgroup
            os.rmdir(self.directory)


def _text_of(name: str, value: float) -> str:
    """Return the content of the file for a limit; -1: unlimited."""
    if name == "cpu":
        return f"{max(_PERIOD_US // 100, round(value * _PERIOD_US))} {_PERIOD_US}"
    return "max" if value == -1 else str(int(value))


def missing_controller(limit: str) -> str:
    """Return why a limit does not apply on a host without its controller."""
    return f"no cgroup with the {LIMITS[limit][0]} controller is available"


def give_way(proc: str = "/proc") -> None:
    """Disable the controllers of remaining runs, so that systemd can start another daemon in the same unit.

    systemd before 254 starts the daemon in the unit's own cgroup. The kernel refuses that while child cgroups have
    controllers. ExecStartPre= programs run before that, in the child cgroup ``.control``. In any other cgroup this
    function does nothing.
    """
    own = _own_directory(proc)
    if own is None or os.path.basename(own) != _CONTROL:
        return
    unit = os.path.dirname(own)
    for directory in (f"{unit}/{_RUNS}", unit):
        path = f"{directory}/cgroup.subtree_control"
        with contextlib.suppress(FileNotFoundError):  # there are no runs
            for name in read_text(path).split():
                with contextlib.suppress(OSError):  # EBUSY: a run has enabled it for cgroups that it created
                    _write_text(path, f"-{name}")


def name_of_cgroup(pid: int, proc: str = "/proc", parent: str | None = None) -> str:
    """Return the name of the run's cgroup to which a process belongs; empty if there is none. This never blocks.

    Args:
        pid: The id of the process.
        proc: Where /proc is mounted.
        parent: The parent cgroup of the daemon's runs, from :func:`own_cgroup`; None: any cgroup. It matters if the
            daemon itself is a run of another daemon, because the paths of its processes then contain that run too.
    """
    path, prefix = path_of(pid, proc), f"{parent or ''}/{_RUNS}/"
    if parent is not None and not path.startswith(prefix):
        return ""
    return path.partition(prefix)[2].partition("/")[0]


def own_cgroup(proc: str = "/proc") -> str | None:
    """Return the parent cgroup of the daemon's runs, as named in /proc/PID/cgroup; None if there is none."""
    path = path_of("self", proc)
    return path.removesuffix(f"/{_LEAF}").rstrip("/") if path else None


def path_of(pid: int | str, proc: str = "/proc") -> str:
    """Return the cgroup of a process as named in /proc/PID/cgroup; empty if it is unknown."""
    try:
        lines = read_text(f"{proc}/{pid}/cgroup").splitlines()
    except OSError:  # ENOENT, ESRCH: the process has ended, or /proc is not mounted
        return ""
    return next((line[3:] for line in lines if line.startswith("0::")), "")


def _own_directory(proc: str) -> str | None:
    """Return the directory of this process's cgroup; None if it is not visible."""
    path = path_of("self", proc)
    if not path or path.startswith("/.."):  # it is outside the cgroup namespace
        return None
    for root, mount_point in mounts(proc):
        if f"{path}/".startswith(f"{root}/"):
            return (mount_point + path.removeprefix(root)).rstrip("/")
    return None


def mounts(proc: str = "/proc") -> list[tuple[str, str]]:
    """Return the root and the mount point of each mount of the version 2 hierarchy; empty if there is none."""
    found = []
    with contextlib.suppress(OSError):  # ENOENT: /proc is not mounted
        for line in read_text(f"{proc}/self/mountinfo").splitlines():
            fields, _, kind = line.partition(" - ")
            if kind.startswith("cgroup2 "):
                root, point = (_OCTAL.sub(lambda code: chr(int(code[1], 8)), word) for word in fields.split()[3:5])
                found.append((root.rstrip("/"), point))
    return found


def _make_directory(directory: str) -> None:
    """Create a directory unless it exists."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory)


def _is_usable(runs: str) -> bool:
    """Whether cgroups with processes can be created in a directory: it is not threaded, and it is writable."""
    try:
        return read_text(f"{runs}/cgroup.type").strip() == "domain" and os.access(f"{runs}/cgroup.procs", os.W_OK)
    except FileNotFoundError:
        return False


def _enable_available(own: str, runs: str, companion: int | None) -> frozenset[str]:
    """Enable the available controllers for the runs' cgroups; return the enabled ones."""
    try:
        there = set(read_text(f"{own}/cgroup.controllers").split())
        controllers = [name for name in _CONTROLLERS if name in there]
        if controllers and os.path.exists(f"{own}/cgroup.type"):  # not at the root, where processes may stay
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{own}/{_LEAF}")
            _write_text(f"{own}/{_LEAF}/cgroup.procs", "0")
            while companion is not None and (pids := _members_of_group(f"{own}/cgroup.procs", companion)):
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):  # ESRCH: it has ended
                        _write_text(f"{own}/{_LEAF}/cgroup.procs", str(pid))
    except OSError:  # EACCES, EROFS, EPERM: not delegated; EBUSY: the leaf's own children have controllers
        return frozenset()
    return frozenset(name for name in controllers if all(_enable(directory, name) for directory in (own, runs)))


def _members_of_group(procs: str, group: int) -> list[int]:
    """Return the members of a process group that are in a cgroup."""
    pids = []
    for pid in map(int, read_text(procs).split()):
        with contextlib.suppress(ProcessLookupError):  # ESRCH: it has ended
            if os.getpgid(pid) == group:
                pids.append(pid)
    return pids


def _enable(directory: str, name: str) -> bool:
    """Enable one controller for the cgroups below a directory; return False if the kernel refused.

    Controllers are enabled one at a time, because the kernel enables either all or none of those in one write.
    """
    try:
        _write_text(f"{directory}/cgroup.subtree_control", f"+{name}")
    except OSError:
        # EBUSY: other processes are in this cgroup; EACCES, EROFS, EPERM: not delegated; EINVAL: real-time processes;
        # EOPNOTSUPP: the cgroup is threaded.
        return False
    return True


def disk_bytes(text: str) -> tuple[int, int]:
    """Return the bytes read from and written to all devices of an io.stat."""
    sums = {"rbytes": 0, "wbytes": 0}
    for word in text.split():
        name, _, value = word.partition("=")
        if name in sums:
            sums[name] += int(value)
    return sums["rbytes"], sums["wbytes"]


def parse_counters(text: str) -> dict[str, int]:
    """Return the numbers of a file with one name and number per line, by their names."""
    return {name: int(value) for name, _, value in (line.partition(" ") for line in text.splitlines())}


def read_text(path: str) -> str:
    """Return the text of a whole file of the kernel.

    Raises:
        OSError: it cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b""
        while part := os.read(fd, _READ_BYTES):
            data += part
    finally:
        os.close(fd)
    return data.decode("utf-8", "surrogateescape")


def _write_text(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
