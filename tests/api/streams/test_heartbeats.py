"""Heartbeats and pings of streams, on a clock that the test sets."""

import json
from types import SimpleNamespace
from typing import Any, cast

from gevent.event import Event

from api.operations.operation import Call
from api.schemas.wire_times import rfc3339
from api.streams.ring_follower import Feeds
from api.streams.stream_content import EventsStream
from api.worker_context import Context
from tests.root.loop.test_shortage import BOOT
from tests.scheduler.fake_clock import FakeClock

HEARTBEAT = b":\n"


class Streams:
    """Streams of events of one worker."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.feeds = Feeds(BOOT, cast(Any, None), cast(Any, None), self.clock)

    def open(self, *types: str) -> EventsStream:
        context = SimpleNamespace(feeds=self.feeds, stopping=Event())
        request = SimpleNamespace(env={}, get_header=lambda _name: None)
        call = SimpleNamespace(identity=None, req=request, tasks=None)
        stream = EventsStream(cast(Context, context), cast(Call, call), frozenset(types))
        self.feeds.streams[stream] = None
        return stream

    def sent(self, stream: EventsStream, seconds: float) -> bytes:
        """Let time pass; return the data that the stream sends. The stream waits until its worker wakes it."""
        self.clock.advance(seconds)
        self.feeds._wake_silent()
        if not stream.woken.is_set():
            return b""
        stream.woken.clear()
        data = stream.sleep(0)
        if data:
            stream.was_sent()
        return data


def test_heartbeats() -> None:
    """An idle stream sends a comment every 15 s; anything that it sends postpones the next one."""
    streams = Streams()
    stream = streams.open("run.ended")
    assert streams.sent(stream, 14.9) == b""
    assert streams.sent(stream, 0.1) == HEARTBEAT
    assert streams.sent(stream, 14.9) == b""
    stream.was_sent()
    assert streams.sent(stream, 14.9) == b""
    assert streams.sent(stream, 0.1) == HEARTBEAT


def test_pings_have_the_time_of_the_server() -> None:
    """Pings with the time replace the heartbeats. They come every 5 s, even while other events are sent."""
    streams = Streams()
    for types in ((), ("ping",)):
        stream = streams.open(*types)
        for _ in range(3):
            stream.was_sent()
            assert streams.sent(stream, 4.9) == b""
            stream.was_sent()
            ping = streams.sent(stream, 0.1).decode()
            assert ping.startswith("event: ping\ndata: ")
            assert json.loads(ping.split("data: ")[1]) == {"at": rfc3339(streams.clock.wall_ms())}
