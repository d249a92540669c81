"""``python -m supervisor.root --boot FD --lock FD --place FD [--ready FD]``: what ``ringward up`` turns into.

The descriptor holds the boot settings as JSON. The locks of the data directory and of the runtime directory are
inherited and held by simply staying open. The last one hears when the daemon is ready.
With ``--resume FD`` it goes on in the place of another root (:mod:`supervisor.root.upgrade`), with ``--check FD`` it
only tries whether it could.
Exit statuses: 0 after a clean shutdown, 71 when an address cannot be bound, 73 when the scheduler
cannot use the data directory, 70 after a defect of its own.
"""

import contextlib
import faulthandler
import fcntl
import json
import os
import signal
import socket
import sys
import threading

from supervisor.doorbell import DoorbellServer
from supervisor.logline import LEVELS, Log
from supervisor.messages import Boot
from supervisor.osport import become_subreaper, set_title
from supervisor.root.control import Control
from supervisor.root.diskroom import DiskRoom
from supervisor.root.fdstore import handed_back
from supervisor.root.files import FileThread
from supervisor.root.helpers import Helper
from supervisor.root.inherited import Inherited, check
from supervisor.root.listeners import CannotListen, bind, inherited
from supervisor.root.pump import DAEMON_RING, Pump
from supervisor.root.upgrade import ANSWER

_EX_SOFTWARE = 70
_EX_OSERR = 71
_OURS = ("RINGWARD_", "WATCHDOG_", "LISTEN_")
_SYSTEMD = ("NOTIFY_SOCKET", "FDSTORE")


class _RootLog(Log):
    """The root's own lines go where everybody's go: into the daemon's ring, which it writes itself."""

    def __init__(self, level: str) -> None:
        super().__init__("supervisor", level)
        self.pump: Pump | None = None

    def emit(self, line: bytes) -> None:
        if self.pump is None:
            super().emit(line)
        else:
            self.pump.daemon_line(line)


def _read_boot(fd: int) -> Boot:
    with open(fd, "rb") as file:
        file.seek(0)
        return Boot.from_dict(json.load(file))


def _close_on_exec() -> None:
    """Keep whatever we inherited (the lock, a terminal's descriptors) from reaching any child."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2:
            with contextlib.suppress(OSError):  # EBADF: the descriptor of the listing itself
                fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)


def _end_on_defect(arguments: threading.ExceptHookArgs) -> None:
    """A thread of the root that dies of a defect takes the root with it: half a supervisor would look alive."""
    threading.__excepthook__(arguments)
    os._exit(_EX_SOFTWARE)


def _clean_up(boot: Boot) -> None:
    """Leave nothing behind but the data directory; a ring whose log file could not be written stays for next time."""
    own = (boot.control_socket, boot.root_bell, boot.scheduler_bell, boot.http_socket)
    for path in (*own, *(f"{boot.runtime_dir}/{name}" for name in (f"{DAEMON_RING}.ring", "listening.json", ANSWER))):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    with contextlib.suppress(OSError):  # ENOTEMPTY: such a ring
        os.rmdir(boot.runtime_dir)


def _listen(boot: Boot) -> list[socket.socket]:
    """The listeners of a new daemon, whose predecessor's own log goes."""
    listeners = bind(boot)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{boot.runtime_dir}/{DAEMON_RING}.ring")
    return listeners


def main() -> int:
    """Run the root until it is shut down; returns the exit status."""
    arguments = dict(zip(sys.argv[1::2], map(int, sys.argv[2::2]), strict=True))
    if "--check" in arguments:
        return check(arguments["--check"])
    # Until the control thread takes them; the other threads never do.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    before = Inherited.take_up(arguments["--resume"]) if "--resume" in arguments else None
    boot = before.boot if before is not None else _read_boot(arguments["--boot"])
    kept = before.table["kept"] if before is not None else {"lock": [arguments["--lock"], arguments["--place"]]}
    stored = handed_back(os.environ) if before is None else {}
    _close_on_exec()
    umask = os.umask(0o077)
    set_title("ringward supervisor")
    become_subreaper()
    threading.excepthook = _end_on_defect
    # A service manager that finds us hung sends SIGABRT: the log then says where each thread was.
    faulthandler.enable(2)
    log = _RootLog(boot.log_level if boot.log_level in LEVELS else "info")
    try:
        listeners = _listen(boot) if before is None else inherited(kept["listeners"])
    except CannotListen as err:
        print(f"ringward: {err}", file=sys.stderr)
        return _EX_OSERR
    base_env = {
        name: value for name, value in os.environ.items() if not name.startswith(_OURS) and name not in _SYSTEMD
    }
    bell = DoorbellServer(boot.root_bell, boot.token)
    room = DiskRoom(boot.data_dir, boot.min_free_bytes)
    files = FileThread(log, 2, room)
    pump = Pump(boot.runtime_dir, boot.daemon_id, bell, files)
    helpers = (
        Helper("scheduler", "supervisor.scheduler", boot, []),
        Helper("gunicorn", "api.serve", boot, listeners),
    )
    control = Control(boot, log, pump, bell, base_env, helpers)
    control.on_settings = room.configure
    control.kept = {"lock": kept["lock"], "listeners": [one.fileno() for one in listeners]}
    control.ready_fd = arguments.get("--ready")
    files.connect(pump)
    log.pump = pump
    if before is not None:
        control.take_up(before)
    else:
        control.adopt(stored)
    files.start()
    pump.start()
    os.umask(umask)  # what is made from now on is made with a mode of its own; runs have that of before
    try:
        status = control.run()
    except Exception:  # noqa: BLE001 - a defect; what it leaves is for the next start to put in order
        sys.excepthook(*sys.exc_info())
        return _EX_SOFTWARE
    finally:
        log.info("all ended")
        pump.finish(timeout_s=2.0)
        files.finish(timeout_s=2.0)
        bell.close()
        _clean_up(boot)
    return status


if __name__ == "__main__":
    sys.exit(main())
