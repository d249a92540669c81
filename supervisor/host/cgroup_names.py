"""Names of the cgroups of runs.

A cgroup that is created for a run has the name of the run. A cgroup that is created in advance
(``spare-DAEMON ID-NUMBER``) cannot be renamed, so an extended attribute names its run: ``user.ringward.run`` (xattr(7);
on cgroups since Linux 5.7, which can also create processes in them).

Standard library only: the root process loads this.
"""

import os

_SPARE = "spare-"
_ATTRIBUTE = "user.ringward.run"


def spare(daemon_id: str, number: int) -> str:
    """Return a name for a cgroup that no run uses yet."""
    return f"{_SPARE}{daemon_id}-{number}"


def is_spare(name: str, daemon_id: str = "") -> bool:
    """Return whether a name was made by :func:`spare` made, for this daemon if one is given."""
    return name.startswith(f"{_SPARE}{daemon_id}")


def assign(directory: str, run: str) -> None:
    """Let a cgroup that was made in advance be this run's.

    Raises:
        OSError: EOPNOTSUPP: the kernel is too old.
    """
    os.setxattr(directory, _ATTRIBUTE, run.encode())


def run_of(directory: str) -> str:
    """Return the run of this cgroup directory; empty when no run has it."""
    name = os.path.basename(directory)
    if not is_spare(name):
        return name
    try:
        return os.getxattr(directory, _ATTRIBUTE).decode()
    except OSError:  # ENODATA: none's yet; ENOENT: removed
        return ""
