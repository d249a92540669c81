"""The root's threads, put together and run."""

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
from supervisor.ipc.messages import LOCK, Boot
from supervisor.root.handover.inherited_state import Inherited
from supervisor.root.handover.state_schema import KeptDescriptors
from supervisor.root.handover.upgrade import ANSWER
from supervisor.root.helper_processes import Helper
from supervisor.root.loop.control_thread import ControlThread
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
    """End the root when one of its threads dies of a defect: half a supervisor would look alive."""
    threading.__excepthook__(arguments)
    os._exit(_EX_SOFTWARE)


def _clean_up(boot: Boot) -> None:
    """Remove all but the data directory; a ring whose log file could not be written stays for the next start."""
    sockets = [boot.control_socket, boot.root_bell, boot.scheduler_bell, boot.http_socket]
    if boot.proxy_socket is not None:
        sockets.append(boot.proxy_socket)
    files = [f"{boot.runtime_dir}/{name}" for name in ("listening.json", ANSWER, "database", "config.last")]
    for path in (*sockets, *files, boot.database_problem, ring_path(boot.runtime_dir, DAEMON_RING)):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path)
    stale_helpers.clear(boot.runtime_dir)
    with contextlib.suppress(OSError):  # ENOTEMPTY: entries that could not be stored; ENOENT
        os.rmdir(boot.audit_dir)
    # Last: without the lock another daemon may take the directory and create the files that are removed here.
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(f"{boot.runtime_dir}/{LOCK}")
    with contextlib.suppress(OSError):  # ENOTEMPTY: a new file, or one of another daemon
        os.rmdir(boot.runtime_dir)


class Launch(NamedTuple):
    """The things that a root receives from the program that executed it."""

    kept: KeptDescriptors
    """Descriptors that the next root needs."""
    before: Inherited | None
    """The state of another root that this root continues."""
    stored: dict[str, list[int]]
    """The descriptors in the service manager's store after a root was killed, by run."""
    ready_fd: int | None
    """Receives a line when the daemon is ready."""
    umask: int
    """Of the started processes."""


def run(boot: Boot, base_env: dict[str, str], api: Helper, launch: Launch) -> int:
    """Run the daemon until it is shut down; return the exit status.

    Args:
        boot: the settings.
        base_env: environment of helpers, and of runs.
        api: the API server, which may run already.
        launch: the things that this root receives.
    """
    set_title("ringward supervisor")
    become_subreaper()
    threading.excepthook = _end_on_defect
    # A service manager that finds us hung sends SIGABRT: the log then says where each thread was.
    faulthandler.enable(2)
    log = _RootLog(boot.log_level if boot.log_level in LEVELS else "info")
    bell = DoorbellServer(boot.root_bell, boot.token, boot.api_account)
    files = FileThread(log, 2, DiskSpace(boot.data_dir, boot.min_free_bytes))
    pump = Pump(boot.runtime_dir, boot.daemon_id, bell, files)
    control = ControlThread(boot, log, pump, bell, base_env, (Helper("scheduler", "scheduler", boot, []), api))
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
    except Exception:  # noqa: BLE001 - a defect; the next start cleans up
        sys.excepthook(*sys.exc_info())
        return _EX_SOFTWARE
    finally:
        log.info("all ended")
        pump.finish(timeout_s=2.0)
        files.finish(timeout_s=2.0)
        bell.close()
        _clean_up(control.boot)
    return status
