"""Which controllers of cgroup version 2 runs can have on this host, so that their limits are applied."""

import os
from collections.abc import Mapping

from supervisor.host.shared_memory import file_system_types

BY_CGROUP = ("memory", "cpu")
"""The limits of a run that only a controller of that name applies."""
_OWN_CGROUP = "/proc/self/cgroup"


def available(types: Mapping[str, str] | None = None, own: str = _OWN_CGROUP) -> frozenset[str]:
    """Return the controllers that a daemon of this user can give to its runs.

    A daemon of root gets what the hierarchy has, from its service manager or by itself; another user gets what the
    cgroup has that this process is in, if that may be written.

    Args:
        types: of the file system at each mount point; None: as they are.
        own: the file that names our cgroups.
    """
    found = file_system_types() if types is None else types
    mount = next((place for place, kind in found.items() if kind == "cgroup2"), None)
    if mount is None:
        return frozenset()
    directory = mount
    try:
        if os.geteuid() != 0:
            with open(own, encoding="ascii", errors="replace") as file:
                directory += next((line[3:].strip() for line in file if line.startswith("0::")), "/").rstrip("/")
        if not os.access(directory, os.W_OK):
            return frozenset()
        with open(f"{directory}/cgroup.controllers", encoding="ascii") as file:
            return frozenset(file.read().split())
    except OSError:  # ENOENT: out of our namespace; EACCES
        return frozenset()
