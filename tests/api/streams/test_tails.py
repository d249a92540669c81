"""Streams at the end of a growing log: the loop sends them new lines."""

import http.client

import pytest

from tests.api.support.client import Stream
from tests.api.support.credentials import basic
from tests.api.support.harness import PASSWORD, Daemon
from tests.api.support.streaming import Ledger, connect, path, running

_BATCH = 15
_BATCHES = 120


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_line_by_line(daemon: Daemon, version: str) -> None:
    """Each line arrives before the next one is written, framed for the client's version of HTTP."""
    run = running(daemon)
    log = daemon.log_of(run)
    connection = http.client.HTTPConnection("localhost")
    connection.sock = connect(daemon)
    connection._http_vsn = int(version.replace(".", ""))  # type: ignore[attr-defined]
    connection._http_vsn_str = f"HTTP/{version}"  # type: ignore[attr-defined]
    stream = Stream(connection, path(run), {"Host": "localhost", **basic(PASSWORD)})
    assert stream.response.version == connection._http_vsn  # type: ignore[attr-defined]
    events_of, ledger = stream.events(), Ledger()
    for number in range(20):
        log.write(b"%d\n" % number)
        ledger.take(events_of, number + 1)
    log.write(b"20")
    assert next(events_of).name == "region"
    log.write(b"\n")
    both = [next(events_of), next(events_of)]  # the line and the removal of its region, in either order
    ledger.take([event for event in both if event.name == "line"], 21)
    assert [event.data["rows"] for event in both if event.name == "region"] == [[]]
    log.finish()
    daemon.end(run.id, lines=21)
    assert [event.name for event in events_of] == ["done"]
    assert ledger.sent == 21
    assert stream.response.read() == b""
    stream.close()


def test_partly_sent_line(own: Daemon) -> None:
    """The unsent part of a line comes first when the client reads again, and no other client waits for it."""
    run = running(own)
    log = own.log_of(run, file_blocks=128)
    connection = http.client.HTTPConnection("localhost")
    connection.sock = connect(own, receives=4096)
    slow = Stream(connection, path(run), basic(PASSWORD))
    fast = own.stream(path(run))
    events_of, ledger = fast.events(), Ledger()
    for start in range(0, _BATCH * _BATCHES, _BATCH):
        log.write(b"".join(b"%04000d\n" % number for number in range(start, start + _BATCH)))
        ledger.take(events_of, start + _BATCH)
    behind = Ledger()
    behind.take(slow.events(), _BATCH * _BATCHES)
    assert (ledger.sent, behind.sent) == (_BATCH * _BATCHES, _BATCH * _BATCHES)
    log.finish()
    own.end(run.id, lines=_BATCH * _BATCHES)
    for stream in (slow, fast):
        assert [event.name for event in stream.events() if event.name != "rotated"] == ["done"]
        stream.close()
