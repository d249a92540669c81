"""Optional programs, packages and kernel features of this host, without which tests are skipped; and a limit to set."""

import os
import re
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from supervisor.host.cgroups import Cgroups

HAS_RE2 = find_spec("re2") is not None
needs_re2 = pytest.mark.skipif(not HAS_RE2, reason="needs google-re2, for regular expressions")

PACKAGES = {
    "bash": "bash",
    "buildah": "buildah",
    "busybox": "busybox",
    "caddy": "caddy",
    "chromium": "chromium",
    "chromium-headless-shell": "chromium-headless-shell",
    "curl": "curl",
    "dash": "dash",
    "go": "golang-go",
    "java": "default-jre-headless",
    "mkfs.ext4": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "mount": "mount",
    "munged": "munge",
    "mungekey": "munge",
    "nginx": "nginx-light",
    "node": "nodejs",
    "nsenter": "util-linux",
    "podman": "podman",
    "prlimit": "util-linux",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "runc": "runc",
    "s6-svscan": "s6",
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "srun": "slurm-wlm",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "strace": "strace",
    "systemd-analyze": "systemd",
    "unshare": "util-linux",
}
"""Debian packages of the programs; ``.ci/run`` installs them."""

NO_CGROUPS = "there is no cgroup version 2 hierarchy in which this user can make cgroups"
_SCHED = Path("/proc/self/sched")
_SHORT_SLICES_SINCE = (6, 12)


def require(*programs: str | Path) -> str:
    """Skip the test unless all `programs` are installed; return the path of the first one."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    paths = [shutil.which(name, path=path) for name in programs]
    missing = [Path(name).name for name, place in zip(programs, paths, strict=True) if place is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(map(_with_package, missing))}")
    assert paths[0] is not None
    return paths[0]


def require_cgroups() -> Cgroups:
    """Skip the test unless this process can create cgroups; return the place for them."""
    cgroups = Cgroups.find()
    if cgroups is None:
        pytest.skip(NO_CGROUPS)
    return cgroups


def require_unpacked(name: str) -> Path:
    """Skip the test unless ``.ci/run`` has unpacked these files of other programs; return their directory."""
    place = Path(__file__).resolve().parents[2] / "build" / name
    if not place.is_dir():
        pytest.skip(f"build/{name} does not exist: .ci/run makes it")
    return place


def slice_ns(sched: str) -> int:
    """Return the longest uninterrupted time slice of a thread, from ``/proc/<pid>/sched``."""
    match = re.search(r"^se\.slice +: +(\d+)$", sched, re.MULTILINE)
    assert match is not None, sched
    return int(match[1])


def _with_package(name: str) -> str:
    return f"{name} (Debian: {PACKAGES[name]})" if name in PACKAGES else name


def _kernel() -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])


SHORT_SLICES = _kernel() >= _SHORT_SLICES_SINCE and _SCHED.exists() and "se.slice" in _SCHED.read_text()
"""Whether the kernel supports custom time slices and reports them."""


@contextmanager
def largest_file(limit_bytes: int) -> Iterator[None]:
    """Limit the size of files, as ``ulimit -f`` does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
