"""State of the whole daemon that many parts of the scheduler ask for."""

from dataclasses import dataclass

from supervisor.ipc.messages import Boot


@dataclass
class DaemonState:
    """The settings of the root, and the condition of the daemon."""

    boot: Boot
    ending: bool = False
    """Whether the daemon is shutting down: no new run starts."""
    ready: bool = False
    """Whether the takeover is stored."""
    short_of_memory: bool = False
    """Whether the root cannot allocate memory."""
    starts_wait: bool = False
    """Whether runs have waited for a minute because the root lacks descriptors, processes or memory."""
