"""State of the whole daemon that many parts of the scheduler read."""

from dataclasses import dataclass

from supervisor.ipc.messages import DaemonSettings


@dataclass
class DaemonState:
    """The root's settings, and the condition of the daemon."""

    settings: DaemonSettings
    first: bool = False
    """Whether this is the daemon's first scheduler."""
    ending: bool = False
    """Whether the daemon is shutting down, when no run starts."""
    paused: bool = False
    """Whether all schedules are paused."""
    ready: bool = False
    """Whether the takeover is stored."""
    short_of_memory: bool = False
    """Whether the root cannot allocate memory."""
    starts_wait: bool = False
    """Whether runs have waited for a minute because the root is short of descriptors, processes or memory."""
