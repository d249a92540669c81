"""Heartbeat URLs: requests to an external monitor when runs start and end, and every minute while the daemon works.

The monitor raises an alarm when requests stop. They are therefore neither stored nor repeated: a late request would
hide the outage.
"""

import itertools
from collections import deque
from urllib.parse import urlsplit, urlunsplit

from supervisor.config.model import Config
from supervisor.ipc.delivery_request import DeliveryResult, PingRequest
from supervisor.scheduler.core import Core
from supervisor.scheduler.loop.loop import Timer
from supervisor.scheduler.loop.procedures import Procedure
from supervisor.scheduler.notifications.notifier_client import NotifierClient
from supervisor.scheduler.runs.end_reason import Verdict
from supervisor.scheduler.runs.live_units import LiveRun
from supervisor.scheduler.runs.retry import RETRIED_REASONS
from supervisor.scheduler.runs.run_observer import RunObserver

_EVERY_MS = 60_000
_MOST_OPEN = 1000
_MOST_WAITING = 100
_DAEMON = "daemon"


def with_suffix(url: str, suffix: str) -> str:
    """Return `url` with `suffix` appended to its path, before the query."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{suffix}"))


class Heartbeats(RunObserver):
    """Sends the requests for the heartbeat URLs of tasks and of the daemon."""

    def __init__(self, core: Core, notifier_client: NotifierClient, config: Config) -> None:
        self._loop = core.loop
        self._committer = core.committer
        self._procedures = core.procedures
        self._notifier_client = notifier_client
        self._log = core.log
        self._numbers = itertools.count()
        self._failing: set[str] = set()
        """Names whose failure has been logged."""
        self._waiting: dict[str, deque[str]] = {}
        """Waiting URLs by name.

        The requests of a name are sent in order: a start that arrives after its end would look like a run that hangs.
        """
        self._url: str | None = None
        self._timer: Timer | None = None
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Apply a new configuration."""
        before, self._url = self._url, config.daemon.heartbeat
        if before == self._url:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._url is not None:
            self._beat()

    def _beat(self) -> None:
        """Request the daemon's URL; only a working loop and store get as far as that."""
        self._timer = self._loop.after(_EVERY_MS, self._beat)
        self._procedures.start(self._report_storing(), lambda _error: None)

    def _report_storing(self) -> Procedure[None]:
        url = self._url
        yield self._committer.stored_or_refused(self._committer.change())
        if url is not None:
            self._ping(_DAEMON, url)

    def run_started(self, run: LiveRun) -> None:
        """Report the start of a run."""
        self._request_url(run, "start")

    def run_ended(self, run: LiveRun, verdict: Verdict, *_: object, will_retry: bool, **_facts: object) -> None:
        """Report the success or final failure of a run; a stop is neither."""
        if verdict.succeeded:
            self._request_url(run, None)
        elif verdict.reason in RETRIED_REASONS and not will_retry:
            self._request_url(run, "fail")

    def _request_url(self, run: LiveRun, suffix: str | None) -> None:
        task = run.unit.task
        if task is not None and task.heartbeat is not None:
            self._ping(task.name, task.heartbeat if suffix is None else with_suffix(task.heartbeat, suffix))

    def _ping(self, name: str, url: str) -> None:
        waiting = self._waiting.get(name)
        if len(self._notifier_client) >= _MOST_OPEN or (waiting is not None and len(waiting) >= _MOST_WAITING):
            self._note_result(name, DeliveryResult("too many requests are waiting"))
        elif waiting is not None:
            waiting.append(url)
        else:
            self._waiting[name] = deque([url])
            self._procedures.start(self._send_waiting(name))

    def _send_waiting(self, name: str) -> Procedure[None]:
        waiting = self._waiting[name]
        while waiting:
            request = PingRequest(key=f"ping/{next(self._numbers)}", url=waiting.popleft())
            result: DeliveryResult = yield self._notifier_client.sent(request)
            self._note_result(name, result)
        del self._waiting[name]

    def _note_result(self, name: str, result: DeliveryResult) -> None:
        if result.error is None:
            if name in self._failing:
                self._failing.discard(name)
                self._log.info(f"{name}: its heartbeat URL is reachable again")
        elif name not in self._failing:
            self._failing.add(name)
            self._log.warning(f"{name}: cannot reach its heartbeat URL: {result.error}")
