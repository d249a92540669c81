"""New workers while streams are open and requests are being answered."""

import os
import signal
import threading
from typing import Any

from store.runs.writes import Run
from tests.api.support.harness import Daemon
from tests.api.support.records import now_ms
from tests.api.support.streaming import connect, path, request, running
from tests.support.waiting import until


class Follower(threading.Thread):
    """Follows a log to its end as clients do: it comes back with the number of the last line that it has."""

    def __init__(self, daemon: Daemon, target: str) -> None:
        super().__init__()
        self._served = daemon
        self._target = target
        self.got: list[Any] = []
        self.connections = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._connected():
                pass
        except BaseException as err:  # noqa: BLE001 - raised again by who waits for us
            self.error = err

    def _connected(self) -> bool:
        """One stream; whether it was the last."""
        headers = {"Last-Event-ID": str(self.got[-1])} if self.got else {}
        stream = self._served.stream(self._target, headers)
        self.connections += 1
        try:
            assert stream.status == 200
            for event in stream.events():
                if event.name == "done":
                    assert event.data["finalLine"] == self.got[-1]
                    return True
                if event.name == "line":
                    self.got.append(event.id)
                else:
                    assert event.name == "region", event
            # It ended in order: a stream that breaks off raises IncompleteRead.
            return False
        finally:
            stream.close()

    def end(self) -> None:
        self.join()
        if self.error is not None:
            raise self.error


def reload(daemon: Daemon) -> None:
    """Have all workers replaced, and wait until they are."""
    before = set(daemon.workers())
    daemon.signal(signal.SIGHUP)
    until(lambda: daemon.workers() and not before & set(daemon.workers()), "other workers")


def finish(daemon: Daemon, run: Run, lines: int) -> None:
    daemon.end(run.id, lines=lines)


def test_streams_resume_after_a_reload(lenient: Daemon) -> None:
    """Streams end without ``done``, and clients that reconnect get every line once."""
    run = running(lenient)
    log = lenient.log_of(run)
    followers = [Follower(lenient, path(run, "?from=0")) for _ in range(20)]
    for follower in followers:
        follower.start()
    stop = threading.Event()
    lines = 0

    def write() -> None:
        nonlocal lines
        while not stop.wait(0.001):
            log.write(b"%d\n" % lines)
            lines += 1

    writer = threading.Thread(target=write)
    writer.start()

    def all_follow() -> None:
        came = lines
        until(lambda: all(follower.got and follower.got[-1] > came for follower in followers), "all to follow")

    for _ in range(2):
        all_follow()
        reload(lenient)
    all_follow()
    stop.set()
    writer.join()
    log.finish()
    finish(lenient, run, lines)
    for follower in followers:
        follower.end()
        assert follower.got == list(range(lines))
        assert follower.connections == 3


def test_events_resume_after_a_reload(own: Daemon) -> None:
    """A resumed stream of events misses and repeats nothing."""
    own.announce("run.created")
    stream = own.stream("/api/events/stream", {"Last-Event-ID": "-1"})
    assert [event.id for event in stream.take(1)] == [0]
    own.signal(signal.SIGHUP)
    assert all(event.name == "ping" for event in stream.events())
    stream.close()
    for _ in range(3):
        own.announce("run.started")
    stream = own.stream("/api/events/stream", {"Last-Event-ID": "0"})
    assert [event.id for event in stream.take(3)] == [1, 2, 3]
    stream.close()


def test_requests_in_flight_are_answered(lenient: Daemon) -> None:
    """A command in the scheduler and a download in progress are completed."""
    run = running(lenient)
    log = lenient.log_of(run, file_blocks=1000)
    text = b"".join(b"line %d\n" % number for number in range(600_000))
    for start in range(0, len(text), 1 << 20):
        log.write(text[start : start + (1 << 20)], at_ms=now_ms())
    log.finish()
    finish(lenient, run, 600_000)
    trigger = lenient.scheduler.operations["trigger"]
    requested, answer = threading.Event(), threading.Event()

    def slow(arguments: dict[str, Any]) -> dict[str, Any]:
        requested.set()
        answer.wait()
        return trigger(arguments)

    lenient.scheduler.operations["trigger"] = slow
    command, download = connect(lenient), connect(lenient, receives=1 << 17)
    command.sendall(request("/api/tasks/job/run", "Content-Length: 0", method="POST"))
    assert requested.wait(60)
    download.sendall(request(f"/api/runs/{run.id}/log/raw"))
    head = download.recv(4096)
    assert head.startswith(b"HTTP/1.1 200")
    (worker,) = lenient.workers()
    lenient.signal(signal.SIGHUP)
    until(lambda: set(lenient.workers()) - {worker}, "another worker")
    assert lenient.get("/healthz").status == 200
    answer.set()
    assert command.recv(65536).startswith(b"HTTP/1.1 201")
    while data := download.recv(1 << 20):
        head += data
        if len(head) > len(text) and head.endswith(text[-100:]):
            break
    assert head.partition(b"\r\n\r\n")[2] == text
    command.close()
    download.close()
    until(lambda: not os.path.exists(f"/proc/{worker}"), "the old worker to end")
