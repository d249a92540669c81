"""The active configuration: its settings, its copy on disk, and the facts about it that clients see."""

import os
from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from store.daemon_values import set_meta
from supervisor.config.files.stamps import has_same_zone
from supervisor.config.model import Config
from supervisor.config.problems import Problem
from supervisor.ipc.messages import DaemonSettings
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.procedures import Procedure
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.reload.config_files import ConfigFiles
from supervisor.startup import config_copy
from supervisor.startup.advice import advised_soon

INFO = "info"
"""Name in the store of the facts about the configuration."""


class ResolvedConfig(Struct, frozen=True):
    """A configuration, with the daemon settings that result from it."""

    config: Config
    settings: DaemonSettings


class ActiveConfig:
    """Holds the active configuration, and publishes facts about it.

    Args:
        resolved: the configuration and its daemon settings.
        files: reads and watches the files.
        info: facts about the configuration; shared, not copied.
        notifications: reports that the files changed.
    """

    def __init__(
        self,
        resolved: ResolvedConfig,
        files: ConfigFiles,
        info: dict[str, object],
        core: Core,
        notifications: Notifications,
    ) -> None:
        self.resolved = resolved
        self.files = files
        self._info = info
        self._committer = core.committer
        self._procedures = core.procedures
        self._notifications = notifications
        self._log = core.log

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

    def advise(self) -> None:
        """Look for what runs need and this host lacks, in the thread of the files, and store the warnings."""
        self._procedures.start(self._advise(self.resolved))

    def _advise(self, resolved: ResolvedConfig) -> Procedure[None]:
        found = yield self.files.work(lambda: [str(warning) for warning in advised_soon(resolved.config, os.environ)])
        if resolved is self.resolved and not isinstance(found, BaseException):  # not after a reload
            self._info["config_advice"] = found
            with self._committer.changing() as change:
                self._store_info(change)

    def replace(self, resolved: ResolvedConfig, advice: Sequence[Problem], change: Change) -> None:
        """Make `resolved` the active configuration, and store the facts about it in `change`."""
        self.resolved = resolved
        self.files.follow(resolved.config)
        config = resolved.config
        self._info.update(
            config_loaded_at=change.now_ms,
            config_warnings=[str(warning) for warning in config.warnings],
            config_advice=[str(warning) for warning in advice],
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
        change.write(set_meta, INFO, info)

    def applied(self) -> None:
        """Note in the copy that the root has the settings; the next scheduler then need not resolve them."""
        self._procedures.start(self.copy(self.resolved, applied=True))

    def copy(self, resolved: ResolvedConfig, *, applied: bool) -> Procedure[None]:
        """Write the copy of a configuration in the thread of the files; go on even if that fails."""
        error = yield self.files.work(partial(config_copy.keep, resolved.config, resolved.settings, applied=applied))
        if error is not None:
            self._log.warning(f"cannot write the copy of the configuration: {error}")
