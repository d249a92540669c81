"""The client of the watcher process, which starts with the first request and restarts when it dies."""

from collections.abc import Callable
from typing import Any, get_args

from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings
from supervisor.ipc.probe_request import (
    AttemptFailed,
    AttemptPassed,
    ProbeAnswer,
    ProbeRequest,
    StartProbe,
    StopProbe,
    WatcherSetup,
)
from supervisor.scheduler.loop.helper_process import HelperClient, HelperProcess
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.procedures import Wait

OnAnswer = Callable[[Any], None]
"""Receives a :data:`ProbeAnswer` of the classes that the kind of the request has."""


class WatcherClient(HelperClient):
    """Sends probe requests to the watcher, and dispatches its answers."""

    answers = get_args(ProbeAnswer)

    def __init__(self, loop: Loop, settings: DaemonSettings, log: Log) -> None:
        self._settings = settings
        self._requests: dict[str, tuple[ProbeRequest, OnAnswer]] = {}
        self._process = HelperProcess(loop, log, "watcher", self)

    def watch(self, request: ProbeRequest, on_answer: OnAnswer) -> None:
        """Start a probe; `on_answer` receives each answer."""
        self._requests[request.key] = request, on_answer
        self._process.request(request.key, StartProbe(request))

    def answer(self, request: ProbeRequest) -> Wait:
        """Start a probe of a kind that has one answer, and wait for that."""
        return lambda waiter: self.watch(request, waiter.resume)

    def forget(self, key: str) -> None:
        """Cancel a probe."""
        if self._requests.pop(key, None) is not None:
            self._process.forget(key)
            self._process.send(StopProbe(key))

    def helper_started(self) -> None:
        """Tell a new watcher where the bell of the logs is."""
        self._process.send(WatcherSetup(self._settings.root_bell, self._settings.token))

    def helper_sent(self, answer: ProbeAnswer) -> None:
        """Pass an answer to its requester; a final answer closes the probe."""
        open_request = self._requests.get(answer.key)
        if open_request is None:  # the probe was cancelled before its answer arrived
            return
        request, on_answer = open_request
        goes_on = isinstance(answer, AttemptFailed) or (isinstance(answer, AttemptPassed) and request.times)
        if not goes_on:
            del self._requests[request.key]
            self._process.forget(request.key)
        on_answer(answer)

    def close(self) -> None:
        """Close the connection, which makes the watcher end its probes and exit."""
        self._process.close()
