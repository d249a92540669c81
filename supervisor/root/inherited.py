"""What a root finds in the table of the one before it. The trial of a version does the same, and no more."""

import importlib
import os

from supervisor.dataclass import dataclass
from supervisor.messages import Boot, Exited
from supervisor.osport import become, end_with_parent
from supervisor.root import instances
from supervisor.root.handover import NotAccepted, Table, read
from supervisor.root.instances import Instance
from supervisor.root.runlog import RunLog

_WORKER = "api.worker"
_PARTS = (
    "supervisor.root.daemon",
    "supervisor.root.spawner",
    "supervisor.scheduler.__main__",
    "api.serve",
    "api.arbiter",
    _WORKER,
)


@dataclass(frozen=True)
class Inherited:
    """The objects that were taken up; the rest as it stands in the table."""

    table: Table
    boot: Boot
    logs: list[RunLog]
    """As in the table."""
    daemon: RunLog
    instances: list[Instance]
    exits: list[Exited]

    @classmethod
    def take_up(cls, fd: int) -> "Inherited":
        """From the descriptor of a table. Nothing is changed by that.

        Raises:
            NotAccepted: a newer version wrote it, or one that is too old.
            Foreign, KeyError, TypeError: what is in it is not what this version has, whatever its number says.
            OSError: a ring cannot be mapped.
            LogError: a ring is none of ours.
        """
        table = read(fd)
        return cls(
            table=table,
            boot=Boot.from_dict(table["boot"]),
            logs=[RunLog.take_up(one) for one in table["pump"]["logs"]],
            daemon=RunLog.take_up(table["pump"]["daemon"]),
            instances=[instances.take_up(one) for one in table["lives"]["live"]],
            exits=[Exited(**one) for one in table["lives"]["exits"]],
        )


def check(fd: int) -> int:
    """Try whether this version could go on with a table, and whether all of it could be loaded.

    Returns the exit status; anything that is not as it should be is an error that ends the process. It holds pipes and
    processes of the root that has started it, so it ends with that; locks and listeners it does not have.
    """
    end_with_parent()
    os.chdir("/")  # as api.serve does, before gunicorn is loaded
    try:
        boot = Inherited.take_up(fd).boot
    except NotAccepted as err:
        print(err)
        return 1
    if boot.api_account is not None and not _loads_as(*boot.api_account, boot.api_groups):
        return 1
    for name in _PARTS:
        importlib.import_module(name)
    # Nor would its scheduler work on a database that a newer version has migrated.
    why = importlib.import_module("supervisor.scheduler.opening").obstacle(boot.database)
    if why is not None:
        print(why)
        return 1
    return 0


def _loads_as(uid: int, gid: int, groups: list[int]) -> bool:
    """Whether API workers, who are another user, can read what they consist of. Says why not."""
    pid = os.fork()
    if pid == 0:
        try:
            become(uid, gid, groups)
            importlib.import_module(_WORKER)
        except BaseException as err:  # noqa: BLE001 - whatever it is, it is why
            os.write(1, f"user {uid}, as whom API workers run, cannot load them: {err}\n".encode())
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0
