"""What goes by the configuration besides tasks and services, and has to be told of another one."""

from collections.abc import Sequence
from typing import Protocol

from supervisor.config.diff import Difference, Effect
from supervisor.config.model import Config
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Boot
from supervisor.scheduler.control.bulk_operations import BulkCommands
from supervisor.scheduler.database.janitor_client import Housekeeping
from supervisor.scheduler.database.retention import Retention
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.root_connection import RootLink
from supervisor.scheduler.reload.daemon_settings import for_the_api
from supervisor.scheduler.reload.reload import Settled
from supervisor.scheduler.startup_shutdown.shutdown import Shutdown


class Follower(Protocol):
    """Who goes by the configuration."""

    def configure(self, config: Config) -> None:
        """Go by this one from now on."""


class InForce:
    """Tells everybody."""

    def __init__(
        self,
        loop: Loop,
        root: RootLink,
        boot: Boot,
        log: Log,
        followers: Sequence[Follower],
        housekeeping: Housekeeping,
        retention: Retention,
        many: BulkCommands,
        shutdown: Shutdown,
    ) -> None:
        """`boot`: what the root has; `followers`: told of each configuration, and of nothing else."""
        self._loop = loop
        self._root = root
        self._boot = boot
        self._log = log
        self._followers = followers
        self._housekeeping = housekeeping
        self._retention = retention
        self._many = many
        self._shutdown = shutdown

    def settings(self, boot: Boot) -> None:
        """Have the root go by other boot settings."""
        if boot != self._boot:
            self._root.send(
                {"op": "settings", "boot": boot.to_dict(self._root.protocol), "api": for_the_api(self._boot, boot)}
            )
            self._boot = boot
        self._log.set_level(boot.log_level)
        self._shutdown.configure(boot.shutdown_timeout_ms)

    def apply(self, settled: Settled, difference: Difference) -> None:
        """A reload has brought `settled` into force."""
        config = settled.config
        self.settings(settled.boot)
        for one in self._followers:
            one.configure(config)
        self._housekeeping.configure(config.storage, config.daemon.log_level)
        self._retention.configure(config)
        self._many.undo_window_ms = config.storage.undo_window_ms
        if difference.section_has(Effect.SCHEDULER):
            # Whoever asked is answered first; the root starts the next one at once.
            self._loop.after(0, self._loop.end)
