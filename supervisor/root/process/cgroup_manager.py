"""Cgroups of runs: created with their limits where the host allows it, and kept while they have processes."""

import itertools
from collections.abc import Iterable, Mapping

from supervisor.host.cgroups import LIMITS, Cgroup, Cgroups, assign, missing_controller, spare_name
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Spawn
from supervisor.root.handover.state_schema import CgroupState, cgroup_of, cgroup_state


class CgroupManager:
    """The cgroups of all runs. Belongs to the control thread.

    Args:
        daemon_id: The id of the daemon's data directory.
        log: The daemon's log.
    """

    def __init__(self, daemon_id: str, log: Log) -> None:
        self._daemon_id = daemon_id
        self._log = log
        self._numbers = itertools.count()
        self._cgroups: Cgroups | None = None
        self._leftovers: list[Cgroup] = []
        """Cgroups whose processes were left running on purpose, or are about to end."""

    @property
    def directory(self) -> str | None:
        """Return the directory of the cgroups; None: runs have no cgroups."""
        return None if self._cgroups is None else self._cgroups.directory

    def enable(self, enabled: bool) -> bool:
        """Set whether new runs get cgroups, if the host provides them; return whether they do so only now."""
        before = self._cgroups
        if enabled and before is None:
            self._cgroups = Cgroups.find()
            if self._cgroups is None:
                self._log.info("runs have no cgroups: no version 2 hierarchy is writable")
        elif not enabled:
            self._cgroups = None
        return before is None and self._cgroups is not None

    def assign(self, spawn: Spawn) -> tuple[Cgroup | None, list[str]]:
        """Return a cgroup with the limits of a run, and a line for its log for each limit that is not applied.

        Raises:
            OSError: a limit of a new cgroup cannot be set.
        """
        if self._cgroups is None:
            return None, _not_applied({name: missing_controller(name) for name in LIMITS if name in spawn.limits})
        try:
            cgroup = self._cgroups.make(spawn.run)
        except OSError as err:  # ENOMEM, EAGAIN: too many; ENOENT: our own cgroup was removed
            self._log.warning(f"{spawn.task} {spawn.run} has no cgroup: {err.strerror}")
            return None, [
                f"limits.{name} is not applied: the run has no cgroup ({err.strerror})"
                for name in LIMITS
                if name in spawn.limits
            ]
        try:
            return cgroup, _not_applied(cgroup.limit(spawn.limits))
        except OSError:
            cgroup.remove()
            raise

    def make_spare(self) -> Cgroup | None:
        """Return a cgroup for a later run; None when none can be created."""
        while self._cgroups is not None:
            try:
                return self._cgroups.make(spare_name(self._daemon_id, next(self._numbers)))
            except FileExistsError:  # an earlier root created it
                pass
            except OSError:  # the next start reports the reason
                return None
        return None

    def assign_spare(self, cgroup: Cgroup, spawn: Spawn) -> list[str]:
        """Give a spare cgroup to a run and set its limits; return a line for its log for each limit not applied.

        Raises:
            OSError: a limit cannot be set, or the kernel does not allow the attribute that names the run.
        """
        assign(cgroup.path, spawn.run)
        return _not_applied(cgroup.limit(spawn.limits))

    def leave(self, cgroup: Cgroup) -> None:
        """Keep the cgroup of an ended run until it has no processes."""
        if not cgroup.remove():
            self._leftovers.append(cgroup)

    def sweep(self) -> None:
        """Remove the kept cgroups without processes."""
        self._leftovers = [cgroup for cgroup in self._leftovers if not cgroup.remove()]

    def close(self) -> None:
        """Remove the directories that this root created, unless they have processes."""
        self.sweep()
        if self._cgroups is not None:
            self._cgroups.close()

    def dump(self) -> list[CgroupState]:
        """Return the kept cgroups, for the next root."""
        return [cgroup_state(cgroup) for cgroup in self._leftovers]

    def load(self, states: Iterable[CgroupState]) -> None:
        """Restore the kept cgroups."""
        self._leftovers = [cgroup_of(state) for state in states]


def _not_applied(reasons: Mapping[str, str]) -> list[str]:
    return [f"limits.{name} is not applied: {reasons[name]}" for name in LIMITS if name in reasons]
