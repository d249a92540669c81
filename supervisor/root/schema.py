"""The format in which instances are handed to the next root: in an upgrade, and in the record of each run.

Names of the format never change (:mod:`logring.schema`); classes and attributes may.
"""

from collections.abc import Callable
from typing import Any

from logring.schema import Schema, Shape, fields
from supervisor.messages import Spawn
from supervisor.root.cgroups import Cgroup, Usage
from supervisor.root.ear import Ear
from supervisor.root.instances import Instance, Phase

SCHEMA = Schema(
    (
        Shape(
            Instance,
            "Instance",
            fields(
                "abandoned adopted by cause cgroup cut_off deadline_s ended_at hurried kill_at_s killed leftovers lines"
                " look_s phase pid pidfd reason remarks spawn start started_at started_s status status_fd steps"
                " untouchable usage"
            ),
        ),
        Shape(Cgroup, "Cgroup", fields("_controllers limits path")),
        Shape(Usage, "Usage", fields("filled_up oom_kills read_bytes system_us user_us write_bytes"), make=Usage),
        Shape(
            Spawn,
            "Spawn",
            fields(
                "argv clean_env cwd env gid grace_ms groups launched leave limits log log_max_bytes log_on_full"
                " merge_stderr notify origin own_failures recipe redraw refusal run secrets stop_signal stop_then task"
                " timeout_ms tty uid umask",
                later={"stdin_open": bool, "stdin_file": lambda: None, "stop_target": lambda: "tree"},
            ),
            make=Spawn,
        ),
    ),
    enums={"Phase": Phase},
)
NOT_HANDED_OVER: dict[type, set[str]] = {Instance: {"ear"}}
"""Attributes that are written otherwise: the socket of sd_notify has a descriptor."""


def take_down(instance: Instance, keep: Callable[[int], int]) -> dict[str, Any]:
    """Return an instance for the next root; `keep` takes note of descriptors."""
    if instance.phase is Phase.RUNNING or instance.adopted:
        keep(instance.pidfd)
    if instance.status_fd is not None:
        keep(instance.status_fd)
    return {
        "instance": SCHEMA.down(instance),
        "ear": instance.ear.take_down(keep) if instance.ear is not None else None,
    }


def take_up(found: dict[str, Any]) -> Instance:
    """Return the instance that was taken down, in another program.

    Raises:
        Foreign, KeyError: another version took it down.
    """
    instance = SCHEMA.up(found["instance"])
    if not isinstance(instance, Instance):
        raise TypeError(f"{instance!r} is no instance")
    instance.ear = Ear.take_up(instance.spawn, found["ear"]) if found["ear"] is not None else None
    return instance
