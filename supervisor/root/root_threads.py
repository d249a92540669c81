"""Creates the root's threads and runs them until the shutdown."""

import contextlib
import faulthandler
import os
import sys
import threading
from typing import NamedTuple

from logring.log_paths import DAEMON_RING, ring_path
from supervisor.host.osport import become_subreaper, set_title
from supervisor.ipc import stale_helpers
from supervisor.ipc.doorbell import DoorbellServer
from supervisor.ipc.log_line import LEVELS, Log
from supervisor.ipc.messages import LOCK, DaemonSettings
from supervisor.root.handover.inherited_state import InheritedState
from supervisor.root.handover.state_schema import KeptDescriptors
from supervisor.root.handover.upgrade import ANSWER
from supervisor.root.helper_processes import Helper
from supervisor.root.loop.control_thread import ControlThread
from supervisor.root.output.data_directory_monitor import DataDirectoryMonitor
from supervisor.root.output.disk_space import DiskSpace
from supervisor.root.output.file_thread import FileThread
from supervisor.root.output.pump_thread import Pump

_EX_SOFTWARE = 70


class _RootLog(Log):
    """The root's log: it writes to the daemon's ring directly."""

    def __init__(self, level: str) -> None:
        super().__init__("supervisor", level)
        self.pump: Pump | None = None

    def emit(self, line: bytes) -> None:
        if self.pump is None:
            super().emit(line)
        else:
            self.pump.daemon_line(line)


def _end_on_defect(arguments: threading.ExceptHookArgs) -> None:
    """End the root if an unexpected exception ends one of its threads: half a supervisor would look alive."""
    threading.__excepthook__(arguments)
    os._exit(_EX_SOFTWARE)


def _clean_up(settings: DaemonSettings) -> None:
    """Remove the files of the runtime directory, but keep rings whose log files could not be written."""
    sockets = [
        settings.starting,
        settings.control_socket,
        settings.root_bell,
        settings.scheduler_bell,
        settings.http_socket,
    ]
    if settings.proxy_socket is not None:
        sockets.append(settings.proxy_socket)
    files = [f"{settings.runtime_dir}/{name}" for name in ("listening.json", ANSWER, "database", "config.last")]
    for path in (*sockets, *files, settings.database_problem, ring_path(settings.runtime_dir, DAEMON_RING)):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path)
    stale_helpers.clear(settings.runtime_dir)
    with contextlib.suppress(OSError):  # ENOTEMPTY: entries that could not be stored; ENOENT
        os.rmdir(settings.audit_dir)
    # The lock goes last: without it, another daemon could use the directory while its files are being removed.
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(f"{settings.runtime_dir}/{LOCK}")
    with contextlib.suppress(OSError):  # ENOTEMPTY: a new file, or one of another daemon
        os.rmdir(settings.runtime_dir)


class Launch(NamedTuple):
    """Everything that a root receives from the program that executed it."""

    kept: KeptDescriptors
    """Descriptors that the next root needs."""
    before: InheritedState | None
    """The state of the previous root in an upgrade; None: this is no upgrade."""
    stored: dict[str, list[int]]
    """The descriptors by run that the service manager stored for a killed root."""
    ready_fd: int | None
    """Receives a line when the daemon is ready."""
    umask: int
    """The umask of runs."""


def run(settings: DaemonSettings, base_env: dict[str, str], api: Helper, launch: Launch) -> int:
    """Run the daemon until it is shut down; return the exit status.

    Args:
        settings: The settings.
        base_env: The environment of helpers and runs.
        api: The API server, which may be running already.
        launch: Everything else that this root receives.
    """
    set_title("ringward supervisor")
    become_subreaper()
    threading.excepthook = _end_on_defect
    # A service manager whose watchdog expires sends SIGABRT. The log then shows where each thread was.
    faulthandler.enable(2)
    log = _RootLog(settings.log_level if settings.log_level in LEVELS else "info")
    bell = DoorbellServer(settings.root_bell, settings.token, settings.api_account)
    files = FileThread(log, 2, DiskSpace(settings.data_dir, settings.min_free_bytes))
    files.data_directory = DataDirectoryMonitor(settings, launch.kept.lock[0], log)
    pump = Pump(settings.runtime_dir, settings.daemon_id, bell, files)
    control = ControlThread(settings, log, pump, bell, base_env, (Helper("scheduler", "scheduler", settings, []), api))
    control.kept = launch.kept
    control.ready_fd = launch.ready_fd
    files.connect(pump)
    log.pump = pump
    if launch.before is not None:
        control.load(launch.before)
    else:
        control.adopt(launch.stored)
    files.start()
    pump.start()
    os.umask(launch.umask)  # files get explicit modes from now on; runs get the original umask
    try:
        status = control.run()
    except Exception:  # noqa: BLE001 - a bug; the next start cleans up
        sys.excepthook(*sys.exc_info())
        return _EX_SOFTWARE
    finally:
        log.info("all ended")
        pump.finish(timeout_s=2.0)
        files.finish(timeout_s=2.0)
        bell.close()
        _clean_up(control.settings)
    return status
