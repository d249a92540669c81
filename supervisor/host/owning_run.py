"""The run that started a process, directly or through other processes."""

import os
from collections.abc import Iterator

from supervisor.host.cgroup_names import run_of
from supervisor.host.cgroup_usage import directory_of, mount_of
from supervisor.host.process_environ import Environments
from supervisor.host.procfs import find_process

_MOST_ANCESTORS = 100


def owning_runs(pid: int, daemon_id: str, environments: Environments) -> Iterator[str]:
    """Yield the ids of runs to which a process may belong, the most likely first.

    The cgroup of a process names its run. Without cgroups, the run id and the daemon's id are in the environment of the
    process, its session leader, its group leader or an ancestor. Names of cgroups that are not run ids can occur too.
    """
    mount = mount_of()
    directory = directory_of(pid, mount)
    while mount is not None and directory is not None and len(directory) > len(mount[1]):
        yield run_of(directory)  # the run's cgroup may be a parent: a run can create cgroups below its own
        directory = os.path.dirname(directory)
    read: set[int] = set()
    for _ in range(_MOST_ANCESTORS):
        process = find_process(pid)
        if process is None or pid <= 1:
            return
        for one in (pid, process.session, process.group):
            found = None if one in read else find_process(one)
            if found is not None:
                variables = environments.read(one, found.start) or {}
                if variables.get("RINGWARD_DAEMON") == daemon_id:
                    yield variables.get("RINGWARD_RUN_ID", "")
            read.add(one)
        pid = process.parent
