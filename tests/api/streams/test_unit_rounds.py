"""The rounds of a stream of units: how lines of many runs share events."""

import json
import re
import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gevent.event import Event

from api.operations.unit_selector import Units
from api.streams.completion_watch import Watch
from api.streams.shared_feed import Budget, Feed
from api.streams.unit_stream import UnitStream
from logring.layout import STDOUT, RingShape
from logring.ring.writer import RingWriter
from store.runs import runs_by_unit
from store.runs.runs_by_unit import RunScope
from store.runs.writes import Run
from supervisor.host.clock import Clock
from tests.api.support.records import make_run, now_ms

_LINES = re.compile(rb"^event: lines\ndata: (.*)$", re.MULTILINE)


class RestingClock(Clock):
    """A clock on which a second passes between two readings."""

    def __init__(self) -> None:
        self._seconds = count(1000.0)

    def monotonic_s(self) -> float:
        return next(self._seconds)

    def thread_s(self) -> float:
        return 0.0


class Rings:
    """The feeds of a worker: the rings of some runs, whose bells the test rings itself."""

    def __init__(self, directory: Path, runs: list[Run]) -> None:
        self._directory = directory
        self.clock = Clock()
        self.streams: dict[Any, None] = {}
        self.ends = SimpleNamespace(enter=lambda run_id: Watch(run_id, urgent=False), leave=lambda _watch: None)
        self.feeds: dict[str, Feed] = {}
        self.writers = [RingWriter.new(self.paths(run)[0], run.id, RingShape(0, 4, 65536)) for run in runs]

    def start(self) -> None:
        """There is nothing to start."""

    def paths(self, run: Run) -> tuple[str, str]:
        return str(self._directory / f"{run.id}.ring"), str(self._directory / f"{run.id}.log")

    def enter(self, name: str) -> Feed:
        feed = Feed(name, str(self._directory / f"{name}.ring"), Budget(), RestingClock(), alone=False)
        return self.feeds.setdefault(name, feed)

    def leave(self, feed: Feed) -> None:
        feed.close()

    def print(self, line: bytes) -> None:
        """Every run prints the line at the same time."""
        at_ms = now_ms()
        for writer in self.writers:
            writer.append(STDOUT, line, at_ms)
        for feed in self.feeds.values():
            feed.rang()


@pytest.fixture
def runs() -> list[Run]:
    """Running instances of a service."""
    return sorted(make_run(task="web", kind="service", status="running", started_at=now_ms()) for _ in range(20))


@pytest.fixture
def rings(tmp_path: Path, runs: list[Run]) -> Rings:
    """On a clock on which every bell follows a pause, so that streams get it at once."""
    return Rings(tmp_path, runs)


@pytest.fixture
def stream(rings: Rings, runs: list[Run]) -> Iterator[UnitStream]:
    """A stream of the new lines of all these runs."""

    def reads(function: Any, *_arguments: object) -> Any:
        return {runs_by_unit.running_runs: runs, units.resolve: RunScope(frozenset({"web"}))}.get(function, [])

    units = Units(("web",), None, None, None)
    context: Any = SimpleNamespace(
        feeds=rings, reads=reads, files=lambda function, *arguments: function(*arguments), stopping=Event()
    )
    query = {"from": 1, "since": None, "until": None, "follow": None, "stream": None, "grep": None}
    ours, theirs = socket.socketpair()
    env = {"gunicorn.socket": ours, "SERVER_PROTOCOL": "HTTP/1.1"}
    request = SimpleNamespace(env=env, get_header=lambda _name: None)
    call: Any = SimpleNamespace(query=query, identity=None, req=request)
    with ours, theirs:
        made = UnitStream(context, call, units)
        made.open()
        yield made
        made.close()


def test_lines_that_are_due_together_travel_together(stream: UnitStream, rings: Rings) -> None:
    """However many runs print, and although bells ring meanwhile, their lines of one time are one event, in order."""
    events = stream.events()
    parts: list[list[Any]] = []
    for line in (b"first\n", b"second\n"):
        rings.print(line)
        parts += map(json.loads, _LINES.findall(next(events) + next(events)))
    while sum(map(len, parts)) < 40:
        parts += map(json.loads, _LINES.findall(next(events)))
    assert len(parts) <= 2
    lines = [(line["text"], line["r"]) for event in parts for line in event]
    assert lines == [(text, run) for text in ("first", "second") for run in range(20)]
