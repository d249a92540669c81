"""The parts that almost every other part of the scheduler uses."""

from msgspec import Struct

from supervisor.ipc.log_line import Log
from supervisor.scheduler.database.commits import Committer
from supervisor.scheduler.loop.daemon_state import DaemonState
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.procedures import Procedures


class Core(Struct, frozen=True):
    """The loop and its procedures, the state of the daemon, the way into the database, and the log."""

    loop: Loop
    daemon: DaemonState
    committer: Committer
    log: Log
    procedures: Procedures
