"""What outlives the main process of a run: found, ended or left, and named."""

from supervisor.host.procfs import Process
from supervisor.root.process.managed_process import ManagedProcess
from supervisor.root.process.process_tree import ProcessTrees

_MAX_NAMED = 20


def nobody_left(trees: ProcessTrees, instance: ManagedProcess) -> bool:
    """Whether everything of a run has ended; its cgroup is gone then."""
    if instance.cgroup is not None:
        usage = instance.cgroup.usage()
        if not instance.cgroup.remove():
            return False
        instance.usage = usage
        instance.cgroup = None
        return not trees.members(instance)
    return trees.nobody(instance)


def kill(trees: ProcessTrees, instance: ManagedProcess) -> None:
    """Kill what is left, and note what that was."""
    for process in trees.members(instance).values():
        instance.leftovers[process.pid, process.start] = str(process)
    trees.kill(instance)


def names(processes: list[Process] | list[str]) -> str:
    """For a log: not more than 20 of them."""
    shown = ", ".join(map(str, processes[:_MAX_NAMED]))
    more = len(processes) - _MAX_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
