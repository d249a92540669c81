"""The names of runs' cgroups.

A cgroup that is created for a run has the run id as its name. A cgroup that is created in advance
(``spare-DAEMON ID-NUMBER``) cannot be renamed, so its extended attribute ``user.ringward.run`` names its run. Cgroups
have such attributes (xattr(7)) since Linux 5.7, which can also create processes directly in a cgroup.

Standard library only: the root process loads this.
"""

import os

_SPARE = "spare-"
_ATTRIBUTE = "user.ringward.run"


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
