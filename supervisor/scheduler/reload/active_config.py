"""The active configuration: its settings, its copy on disk, and the facts about it that clients see."""

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from store.daemon_values import set_meta
from supervisor.config.files.stamps import has_same_zone
from supervisor.config.model import Config
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings
from supervisor.scheduler.database.commits import Change, Committer
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.reload import last_good
from supervisor.scheduler.reload.config_files import ConfigFiles

INFO = "info"
"""Name in the store of the facts about the configuration."""


class ResolvedConfig(Struct, frozen=True):
    """A configuration, with the daemon settings that result from it."""

    config: Config
    boot: DaemonSettings


class ActiveConfig:
    """Holds the active configuration, and publishes facts about it.

    Args:
        resolved: the configuration and its daemon settings.
        files: reads and watches the files.
        info: facts about the configuration; shared, not copied.
        committer: stores the facts.
        notifications: reports that the files changed.
        log: the daemon's log.
    """

    def __init__(
        self,
        resolved: ResolvedConfig,
        files: ConfigFiles,
        info: dict[str, object],
        committer: Committer,
        notifications: Notifications,
        log: Log,
    ) -> None:
        self.resolved = resolved
        self.files = files
        self._info = info
        self._committer = committer
        self._notifications = notifications
        self._log = log

    def files_changed(self) -> None:
        """Report that the files, or the host's time zone, changed since the configuration was read."""
        self._info["config_stale"] = True
        path = self.resolved.config.path
        if has_same_zone(self.resolved.config):
            self._log.warning(f"{path} or a file that it includes was edited; reload to apply the change")
        else:
            before = self.resolved.config.host_zone
            self._log.warning(f"the time zone of the host is no longer {before}; reload to apply it to schedules")
        with self._committer.changing() as change:
            self._store_info(change)
            change.announce("config.stale", {"path": path})
            self._notifications.config_stale(self.resolved.config, change)

    def replace(self, resolved: ResolvedConfig, change: Change) -> None:
        """Make `resolved` the active configuration, and store the facts about it in `change`."""
        self.resolved = resolved
        self.files.follow(resolved.config)
        config = resolved.config
        self._info.update(
            config_loaded_at=change.now_ms,
            config_warnings=[str(warning) for warning in config.warnings],
            config_unconfirmed=False,
            config_stale=False,
            timezone=config.daemon.timezone,
            tasks=len(config.tasks),
            services=len(config.services),
            undo_window_ms=config.storage.undo_window_ms,
        )
        self._store_info(change)

    def _store_info(self, change: Change) -> None:
        info = dict(self._info)
        change.write(lambda db: set_meta(db, INFO, info))

    def applied(self) -> None:
        """Note in the copy that the root has the settings; the next scheduler then need not resolve them."""
        self.copy(self.resolved, applied=True)

    def copy(self, resolved: ResolvedConfig, *, applied: bool, then: Callable[[], None] = lambda: None) -> None:
        """Write the copy of a configuration in the thread of the files; then call `then`, even if that fails."""

        def copied(error: BaseException | None) -> None:
            if error is not None:
                self._log.warning(f"cannot write the copy of the configuration: {error}")
            then()

        self.files.submit(partial(last_good.keep, resolved.config, resolved.boot, applied=applied), copied)
