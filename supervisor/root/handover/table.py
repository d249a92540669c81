"""The table that a root hands over to its successor in the same process, in a memfd.

It is a JSON object with

    handover   the number of the format
    version    the version of Ringward that wrote it
    keep       the inherited descriptors
    signals    the signals that were caught but not handled yet
    runs       pairs of :class:`.state_schema.RunState` and :class:`.state_schema.ExactState`

and the other fields of :class:`.state_schema.Handover`, which belong to no run: settings, connections to helpers,
listeners, unwritten logs, unacknowledged exits.

A root also reads older formats: :data:`CONVERSIONS` converts each format to the next one. It refuses newer formats in
the trial, before anything has changed.
"""

import json
import os
from collections.abc import Callable
from typing import Any

from logring.format_table import Schema, Shape, fields
from supervisor.host.cgroups import Usage
from supervisor.ipc.messages import Exited, Spawn
from supervisor.root.handover import state_schema
from supervisor.root.handover.state_schema import (
    CgroupState,
    ExactState,
    RootState,
    RunDetails,
    RunProgress,
    RunStart,
    RunState,
)
from supervisor.root.process.managed_process import ProcessState
from supervisor.version import VERSION

HANDOVER = 3

Table = dict[str, Any]
_OF_PROGRESS = (
    "phase deadline_s kill_at_s hurried killed cut_off abandoned adopted status ended_at lines".split()  # noqa: SIM905
)
_OF_DETAILS = ("cause", "by", "reason", "cgroup", "remarks", "usage")


class HandoverRejected(Exception):
    """This version cannot use the table."""


class KeptDescriptorList:
    """Collects the descriptors that the next root must inherit."""

    def __init__(self) -> None:
        self.fds: set[int] = set()

    def __call__(self, fd: int) -> int:
        """Add a descriptor, and return it."""
        self.fds.add(fd)
        return fd


def write(state: RootState, keep: KeptDescriptorList, signals: set[int]) -> int:
    """Write the state to a memfd and return its descriptor, which still has the close-on-exec flag."""
    head = {"handover": HANDOVER, "version": VERSION, "keep": sorted(keep.fds), "signals": sorted(signals)}
    whole = {**head, **state_schema.to_json(state)}
    fd = os.memfd_create("ringward-handover", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(json.dumps(whole).encode())
    return fd


# Older formats.

_SPAWN = fields(
    "argv clean_env cwd env gid grace_ms groups launched leave limits log log_max_bytes log_on_full merge_stderr notify"
    " origin own_failures recipe redraw refusal run secrets stop_signal stop_then task timeout_ms tty uid umask",
    later={"stdin_open": bool, "stdin_file": lambda: None, "stop_target": lambda: "tree"},
)
_INSTANCE = fields(
    "abandoned adopted by cause cgroup cut_off deadline_s ended_at hurried kill_at_s killed leftovers lines look_s"
    " phase pid pidfd reason remarks spawn start started_at started_s status status_fd steps untouchable usage"
)
_USAGE = fields("filled_up oom_kills read_bytes system_us user_us write_bytes")


def _cgroup(path: str, limits: set[str], controllers: frozenset[str]) -> CgroupState:
    return CgroupState(path=path, limits=sorted(limits), controllers=sorted(controllers))


_BEFORE = Schema(
    (
        Shape(dict, "Instance", _INSTANCE, make=dict),
        Shape(
            CgroupState, "Cgroup", fields("_controllers limits path", renamed={"_controllers": "controllers"}), _cgroup
        ),
        Shape(Usage, "Usage", _USAGE, make=Usage),
        Shape(Spawn, "Spawn", _SPAWN, make=Spawn),
    ),
    enums={"Phase": ProcessState},
)
"""The schema of processes in handovers of formats 1 and 2 and in records of format 1."""


def _state(old_fields: dict[str, Any], notify_state: dict[str, Any] | None, exited: Exited | None = None) -> RunState:
    """Convert a decoded run of an older format and the status that it has reported."""
    notify_state = notify_state or {}
    return RunState(
        RunStart(
            request=old_fields["spawn"],
            pid=old_fields["pid"],
            ticks=old_fields["start"],
            started_at=old_fields["started_at"],
            started_s=old_fields["started_s"],
        ),
        RunProgress(
            **{name: old_fields[name] for name in _OF_PROGRESS},
            steps_left=len(old_fields["steps"]),
            unexecuted=old_fields["status_fd"] is not None,
            ready_at=notify_state.get("ready_at"),
        ),
        RunDetails(
            **{name: old_fields[name] for name in _OF_DETAILS},
            leftovers=[(pid, start, name) for (pid, start), name in old_fields["leftovers"].items()],
            untouchable=sorted(old_fields["untouchable"]),
            says=notify_state.get("status"),
            exited=exited,
        ),
    )


def state_before(record: dict[str, Any]) -> RunState:
    """Convert a record of format 1.

    Raises:
        UnknownFormat, KeyError: it does not have that format.
    """
    if "exited" not in record:
        return _state(_BEFORE.from_json(record["instance"]), record["heard"])
    exited = Exited(**record["exited"])
    request = Spawn(
        run=exited.run, task="", argv=[], env={}, log=record["log"], log_max_bytes=0, stop_signal=0, grace_ms=0
    )
    start = RunStart(request=request, pid=0, ticks=0, started_at=exited.started_at or 0, started_s=0.0)
    return RunState(start, RunProgress(phase=ProcessState.SEALING, steps_left=0), RunDetails(exited=exited))


def _log(state: dict[str, object]) -> dict[str, object]:
    """Return a log without the field ``open``, which follows from ``sealing``."""
    return {name: value for name, value in state.items() if name != "open"}


def _from_2(table: Table) -> Table:
    """Convert format 2. In format 3, each run contains its log."""
    lives, pump = table["lives"], table["pump"]
    logs = {log["name"]: _log(log) for log in pump["logs"]}
    runs = []
    for entry in lives["live"]:
        old_fields, notify_socket = _BEFORE.from_json(entry["instance"]), entry["ear"] or {}
        open_ = old_fields["phase"] is ProcessState.RUNNING or old_fields["adopted"]
        state = _state(old_fields, notify_socket)
        exact = ExactState(
            pidfd=old_fields["pidfd"] if open_ else None,
            status_fd=old_fields["status_fd"],
            notify_fd=notify_socket.get("fd"),
            resume_at_s=notify_socket.get("resume_at_s"),
            look_s=old_fields["look_s"],
        )
        log = logs.pop(state.run, None)
        runs.append([state_schema.to_json(state), state_schema.to_json(exact) | ({} if log is None else {"log": log})])
    return {
        **table,
        "runs": runs,
        "lives": {
            **{name: value for name, value in lives.items() if name not in ("live", "estate")},
            "left": [state_schema.to_json(_BEFORE.from_json(entry)) for entry in lives["left"]],
            "records": lives["estate"],
        },
        "pump": {**pump, "logs": list(logs.values()), "daemon": _log(pump["daemon"])},
    }


CONVERSIONS: dict[int, Callable[[Table], Table]] = {
    1: lambda table: table,  # the fields that came with format 2 have defaults
    2: _from_2,
}
"""A converter to the next format for each older format."""


def read(fd: int) -> Table:
    """Read a table, close its descriptor, and convert the table to the format of this version.

    Raises:
        HandoverRejected: the version that wrote it is too new or too old.
    """
    with open(fd, "rb") as file:
        file.seek(0)
        table: Table = json.load(file)
    written, author = table["handover"], table["version"]
    if written > HANDOVER:
        raise HandoverRejected(
            f"{VERSION} cannot read the handover of {author}: its format is {written}, the newest known is {HANDOVER}"
        )
    for number in range(written, HANDOVER):
        if number not in CONVERSIONS:
            raise HandoverRejected(f"{VERSION} no longer reads the handover of {author}: its format is {written}")
        table = CONVERSIONS[number](table)
    return table
