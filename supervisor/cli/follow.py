"""Follows a run's log until the run ends, across interruptions of the connection.

The API server may restart at any time. Its streams then close without ``done``, and the next stream resumes after the
last printed line. Lines that a stream omits (``dropped``) are fetched in pages. If some are no longer kept, a message
says so.
"""

import enum
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

from supervisor.cli.client import Api, ErrorResponse, Unreachable
from supervisor.cli.daemon_answers import AnswerObject, parse
from supervisor.cli.failure import say
from supervisor.cli.sse import EventParser, ServerSentEvent
from supervisor.cli.terminal import LogPrinter
from supervisor.ipc.backoff import backoff

PAGE_LINES = 10_000
REPLAY_LINES = 50_000

_SAY_AFTER_S = 2.0
_GIVE_UP_AFTER_S = 60.0
_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)


T = TypeVar("T")


class ReconnectDelays:
    """Waits for a daemon that is temporarily unreachable: retries with growing delays, and gives up after a minute."""

    def __init__(
        self,
        say: Callable[[str], None] = say,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Assume that the daemon is reachable.

        Args:
            say: prints messages for the user.
            clock: returns monotonic seconds.
            pause: waits for a number of seconds.
        """
        self.say = say
        self._clock = clock
        self._pause = pause
        self.reset()

    def reset(self) -> None:
        """Note that the daemon answered."""
        self._away_since: float | None = None
        self._reported = False
        self._attempts = 0

    def wait_for_retry(self, reason: str) -> None:
        """Note that the daemon did not answer, and wait before the next attempt.

        Raises:
            Unreachable: the daemon has been unreachable for too long.
        """
        if self._away_since is None:
            self._away_since = self._clock()
        away_s = self._clock() - self._away_since
        if away_s >= _GIVE_UP_AFTER_S:
            raise Unreachable(f"gave up after a minute: {reason}")
        if away_s >= _SAY_AFTER_S and not self._reported:
            self._reported = True
            self.say(f"retrying: {reason}")
        self._pause(backoff(_PAUSES_S, self._attempts))
        self._attempts += 1

    def insist(self, call: Callable[[], T]) -> T:
        """Repeat `call` until the daemon answers; return its result.

        Raises:
            Unreachable: the daemon has been unreachable for too long.
            ErrorResponse: it answered with an error that is not temporary.
        """
        while True:
            try:
                return call()
            except ErrorResponse as err:
                if err.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise
                self.wait_for_retry(err.message)
            except Unreachable as err:
                self.wait_for_retry(err.message)


class _End(enum.Enum):
    """How a stream ended."""

    DONE = "the run has ended"
    BEHIND = "it left out many lines, which the next stream begins with"
    CLOSED = "the daemon closed it"


class RunFollower:
    """Prints the log of a run until the run ends."""

    def __init__(
        self, api: Api, run_id: str, printer: LogPrinter, patience: ReconnectDelays, *, anchor: int = 0
    ) -> None:
        """Follow the run `run_id` from line `anchor`; a negative number counts from the end."""
        self._api = api
        self._path = f"/api/runs/{run_id}/log"
        self._printer = printer
        self._patience = patience
        self._anchor = anchor
        self._next: int | None = None
        self._batches = True
        """Whether the daemon may support streams of batches; earlier versions do not."""

    def follow(self) -> None:
        """Print lines until the stream reports the end of the run.

        Raises:
            Unreachable: the daemon was unreachable for too long.
            ErrorResponse: the run does not exist, or the user may not read its log.
        """
        while (end := self._patience.insist(self._any_stream)) is not _End.DONE:
            if end is _End.CLOSED:
                self._patience.wait_for_retry("the daemon closed the stream")
        self._printer.finish()

    def _any_stream(self) -> _End:
        """Call :meth:`_stream`; if the daemon does not support batches, call it without them."""
        try:
            return self._stream()
        except ErrorResponse as err:
            if not any(error.get("location") == "query.batch" for error in err.errors):
                raise
            self._batches = False
            return self._stream()

    def _stream(self) -> _End:
        """Print the lines of one connection, and return how it ended."""
        query: dict[str, str | int | None] = {"from": self._anchor, "replayLimit": REPLAY_LINES}
        if self._batches:
            query["batch"] = "true"
        headers = {"Accept": "text/event-stream"}
        if self._next is not None:
            headers["Last-Event-ID"] = str(self._next - 1)
        parser = EventParser()
        start = self._next
        with self._api.stream(f"{self._path}/stream", query, headers) as chunks:
            for number, chunk in enumerate(chunks):
                if number:  # the daemon sends the first piece before it reads anything
                    self._patience.reset()
                for event in parser.feed(chunk):
                    self._patience.reset()
                    if event.name == "done":
                        return _End.DONE
                    if event.name == "dropped" and self._next != start and self._is_far_behind(parse(event.data)):
                        return _End.BEHIND
                    self._handle(event)
                self._printer.flush()
        return _End.CLOSED

    def _is_far_behind(self, dropped: AnswerObject) -> bool:
        """Return whether a new stream would deliver the omitted lines faster than pages of the log.

        A stream begins with as many lines as it may replay. If they are no longer kept, it reports that first.
        """
        return int(dropped["count"]) > PAGE_LINES and int(dropped["after"]) + 1 == self._next

    def _handle(self, event: ServerSentEvent) -> None:
        if event.name == "lines":
            self._lines(parse(event.data))
        elif event.name == "line":
            self._line(parse(event.data))
        elif event.name == "dropped":
            dropped = parse(event.data)
            self._hole(dropped["after"] + 1, dropped["count"])
        elif event.name == "region":
            self._printer.region(parse(event.data))

    def _line(self, line: dict[str, Any]) -> None:
        number = int(line["n"])
        if self._next is None or number >= self._next:
            self._printer.line(line)
            self._next = number + 1

    def _lines(self, batch: AnswerObject) -> None:
        """Print the lines of a batch that have not been printed."""
        first, count = int(batch["n"]), int(batch["count"])
        seen = min(max((self._next or 0) - first, 0), count)
        if seen < count:
            text = batch["text"].split("\n", seen)[seen] if seen else batch["text"]
            self._printer.lines({**batch, "n": first + seen, "count": count - seen, "text": text})
            self._next = first + count

    def _hole(self, start: int, count: int) -> None:
        """Fetch and print `count` lines from line `start`, which the stream omitted."""
        end = start + count
        start = max(start, self._next or 0)
        missing = 0
        while start < end:
            page = self._api.get(self._path, {"from": start, "limit": min(end - start, PAGE_LINES)})
            lines = [line for line in page["lines"] if start <= int(line["n"]) < end]
            for line in lines:
                missing += int(line["n"]) - start
                self._line(line)
                start = int(line["n"]) + 1
            if not lines:
                break
        missing += max(end - start, 0)
        if missing:
            self._patience.say(f"{missing} lines are no longer kept or unreadable")
        self._next = max(end, self._next or 0)
