"""What a root finds in the table of the one before it. The trial of a version does the same, and no more."""

import importlib
import os

from supervisor.dataclass import dataclass
from supervisor.messages import Boot, Exited
from supervisor.osport import end_with_parent
from supervisor.root import instances
from supervisor.root.handover import NotAccepted, Table, read
from supervisor.root.instances import Instance
from supervisor.root.runlog import RunLog

_PARTS = (
    "supervisor.root.daemon",
    "supervisor.root.spawner",
    "supervisor.scheduler.__main__",
    "api.serve",
    "api.arbiter",
    "api.worker",
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
        Inherited.take_up(fd)
    except NotAccepted as err:
        print(err)
        return 1
    for name in _PARTS:
        importlib.import_module(name)
    return 0
