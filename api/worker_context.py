"""What every operation of one worker shares: settings, database, control client, streams."""

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

import gevent
from gevent.event import Event
from gevent.lock import BoundedSemaphore

from api.auth.auditor import Auditor
from api.auth.authentication import Authenticator
from api.host_info.host_facts import System
from api.host_info.sample_events import Samples
from api.reading import Files, Reads, Searches
from api.schemas.task_list import TaskList
from api.server.thread_pool import Threads
from api.streams.raw_log import Layouts
from api.streams.ring_follower import Hub
from supervisor.ipc.control_client import ControlClient, Refused, Unavailable
from supervisor.ipc.messages import Boot

_ASK_S = 1.0
_KEEP_S = 1.0


class SchedulerProbe:
    """The scheduler's report about itself, requested at most once a second for all callers."""

    def __init__(self) -> None:
        self._until_s = 0.0
        self._info: dict[str, Any] | None = None
        self._asking = BoundedSemaphore()

    def forget(self) -> None:
        """Ask again the next time: it has changed."""
        self._until_s = 0.0

    def info(self, context: "Context") -> dict[str, Any] | None:
        """Its answer; None when it gives none within a second."""
        if time.monotonic() >= self._until_s:
            # Concurrent callers share the answer.
            with self._asking:
                if time.monotonic() >= self._until_s:
                    info = None
                    with contextlib.suppress(Unavailable, Refused), gevent.Timeout(_ASK_S, False):
                        info = context.control.call("info")
                    self._info = info
                    self._until_s = time.monotonic() + _KEEP_S
        return self._info


class Interface(Protocol):
    """:mod:`api.openapi`, which describes the operations that have this context."""

    def served_bytes(self, base: str) -> bytes:
        """See there."""

    def schema_bytes(self, name: str) -> bytes | None:
        """See there."""


@dataclass
class Context:
    """See the module."""

    boot: Boot
    reads: Reads
    pages: Reads
    """For pages and sums of runs."""
    files: Files
    aside: Threads
    """For what takes a while and needs no disk."""
    control: ControlClient
    auth: Authenticator
    auditor: Auditor
    hub: Hub
    stopping: Event
    """Set when the worker is to end: streams close, waits return."""
    daemon_pid: int
    system: System
    """The host."""
    interface: Interface
    scheduler: SchedulerProbe = field(default_factory=SchedulerProbe)
    searches: Searches = field(default_factory=Searches)
    tasks: TaskList = field(default_factory=TaskList)
    lag_s: float = 0.0
    """How late the worker's loop was when it was looked at last."""
    samples: Samples = field(init=False)
    layouts: Layouts = field(init=False)

    def __post_init__(self) -> None:
        """Make what needs the database or the threads for files."""
        self.samples = Samples(self.reads)
        self.layouts = Layouts(self.files)

    def stop(self) -> None:
        """The worker is to end."""
        self.stopping.set()
        self.hub.wake()
