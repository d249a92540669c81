"""The client of the watcher process, which starts with the first request and restarts when it dies."""

from collections.abc import Callable
from typing import Any

from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings, Message
from supervisor.ipc.probe_request import ProbeRequest
from supervisor.scheduler.loop.helper_process import HelperClient, HelperProcess
from supervisor.scheduler.loop.loop import Loop

OnAnswer = Callable[[dict[str, Any]], None]


class WatcherClient(HelperClient):
    """Sends probe requests to the watcher, and dispatches its answers."""

    def __init__(self, loop: Loop, boot: DaemonSettings, log: Log) -> None:
        self._boot = boot
        self._requests: dict[str, tuple[ProbeRequest, OnAnswer]] = {}
        self._process = HelperProcess(loop, log, "watcher", self)

    def watch(self, request: ProbeRequest, on_answer: OnAnswer) -> None:
        """Start a probe; `on_answer` receives each answer."""
        self._requests[request.key] = request, on_answer
        self._process.request(request.key, {"op": "watch", "order": request.to_dict()})

    def forget(self, key: str) -> None:
        """Cancel a probe."""
        if self._requests.pop(key, None) is not None:
            self._process.forget(key)
            self._process.send({"op": "forget", "key": key})

    def helper_started(self) -> None:
        """Tell a new watcher where the bell of the logs is."""
        self._process.send({"op": "hello", "bell": self._boot.root_bell, "token": self._boot.token})

    def helper_sent(self, answer: Message) -> None:
        """Pass an answer to its requester; a final answer closes the probe."""
        open_request = self._requests.get(answer["key"])
        if open_request is None:  # the probe was cancelled before its answer arrived
            return
        request, on_answer = open_request
        if answer["op"] in ("failed", "matched", "clean", "answered") or (
            answer["op"] == "passed" and not request.times
        ):
            del self._requests[request.key]
            self._process.forget(request.key)
        on_answer(answer)

    def close(self) -> None:
        """Close the connection, which makes the watcher end its probes and exit."""
        self._process.close()
