"""The objects that all operations of one worker share: settings, database, control client and streams."""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import gevent
from gevent.event import Event
from gevent.lock import BoundedSemaphore

from api.auth.auditor import Auditor
from api.auth.authentication import Authenticator, execute_command
from api.host_info.host_facts import System
from api.host_info.sample_events import NewestSample
from api.read_threads import DatabaseReads, LogFileReads, LogSearches
from api.schemas.status_page import KeptPage
from api.schemas.task_list import TaskList
from api.server.thread_pool import Threads
from api.streams.raw_log import Layouts
from api.streams.ring_follower import Feeds
from supervisor.ipc.control_client import CommandEntry, ControlClient, RequestRefused, Unavailable
from supervisor.ipc.messages import DaemonSettings

_ASK_S = 1.0
_KEEP_S = 1.0
_KEEP_UNREADY_S = 0.05
"""How long a report is kept if the scheduler does not answer or cannot store: clients soon notice the change."""


class SchedulerProbe:
    """Caches the scheduler's report about itself for all callers: for a second, or for 50 ms while it is not ready.

    Args:
        clock: returns the time in monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until_s = 0.0
        self._info: dict[str, object] | None = None
        self._asking = BoundedSemaphore()

    def forget(self) -> None:
        """Discard the cached report after a change, so that the next caller gets a new one."""
        self._until_s = 0.0

    @staticmethod
    def ask(context: "Context", operation: str, **arguments: object) -> dict[str, object] | None:
        """Return the answer to `operation`; None if the scheduler refuses or does not answer within a second."""
        with contextlib.suppress(Unavailable, RequestRefused), gevent.Timeout(_ASK_S, False):
            return context.control.call(operation, **arguments)
        return None

    def info(self, context: "Context") -> dict[str, Any] | None:
        """Return the report, at most a second old; None if the scheduler does not answer within a second."""
        if self._clock() >= self._until_s:
            # Concurrent callers share the answer.
            with self._asking:
                if self._clock() >= self._until_s:
                    self._info = self.ask(context, "info")
                    self._until_s = self._clock() + (_KEEP_S if is_ready(self._info) else _KEEP_UNREADY_S)
        return self._info


def is_ready(info: dict[str, Any] | None) -> bool:
    """Return whether a scheduler with this report accepts commands and stores them."""
    return info is not None and info.get("storing", True) and info.get("ready", True)


class OpenApiDocuments(Protocol):
    """The interface of :mod:`api.openapi`, which cannot be imported here: it imports the operations."""

    def served_bytes(self, base: str) -> bytes:
        """Return the OpenAPI document as JSON."""

    def schema_bytes(self, name: str) -> bytes | None:
        """Return the JSON Schema of one kind of document, or None."""


@dataclass
class Context:
    """The context of one worker."""

    settings: DaemonSettings
    reads: DatabaseReads
    pages: DatabaseReads
    """Threads for pages and totals of runs."""
    files: LogFileReads
    in_thread: Threads
    """Threads for slow work without disk access."""
    control: ControlClient
    auth: Authenticator
    auditor: Auditor
    feeds: Feeds
    stopping: Event
    """Set when the worker stops: streams end, and waits return."""
    daemon_pid: int
    system: System
    """Reader of the host's state."""
    interface: OpenApiDocuments
    scheduler: SchedulerProbe = field(default_factory=SchedulerProbe)
    searches: LogSearches = field(default_factory=LogSearches)
    tasks: TaskList = field(default_factory=TaskList)
    status_page: KeptPage = field(default_factory=KeptPage)
    """The public status page."""
    lag_s: float = 0.0
    """Latest measured delay of the worker's event loop."""
    samples: NewestSample = field(init=False)
    layouts: Layouts = field(init=False)

    def __post_init__(self) -> None:
        """Create the objects that need the database or the threads for files."""
        self.samples = NewestSample(self.reads)
        self.layouts = Layouts(self.files)

    @property
    def starting(self) -> bool:
        """Whether the daemon is starting, and no problem of the database keeps it from that."""
        return os.path.exists(self.settings.starting) and not os.path.exists(self.settings.database_problem)

    def start(self) -> None:
        """Start the database threads now: a worker without memory for them must fail before it serves.

        Raises:
            RuntimeError: a thread could not be started.
        """
        self.reads.start()
        self.pages.start()

    def command(self, operation: str, entry: CommandEntry | None = None, /, **arguments: Any) -> dict[str, Any]:
        """Let the scheduler carry out an operation, and store `entry` with its effect; return its result.

        Raises:
            ApiError: the scheduler's refusal with its status; 503 if it does not answer.
        """
        return execute_command(lambda: self.control.call(operation, entry, **arguments))

    def patient_command(self, operation: str, entry: CommandEntry | None = None, /, **arguments: Any) -> dict[str, Any]:
        """Let the scheduler carry out an operation that may take minutes and can be repeated safely.

        Raises:
            ApiError: as for :meth:`command`.
        """
        return execute_command(lambda: self.control.call_patiently(operation, entry, **arguments))

    def stop(self) -> None:
        """Stop the worker's streams and waits."""
        self.stopping.set()
        self.feeds.wake()
