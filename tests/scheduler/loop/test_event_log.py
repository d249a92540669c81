import json
from pathlib import Path

from logring.log_paths import ring_path
from logring.reader import LogReader
from store.database import open_writer
from store.events import append_all, draft
from supervisor.ipc.doorbell import DoorbellClient, DoorbellServer
from supervisor.scheduler.loop.event_log import EVENTS_RING, EventLog, left_over
from supervisor.scheduler.loop.loop import Loop
from tests.scheduler.fake_clock import FakeClock


def test_announce(tmp_path: Path) -> None:
    """Line n of the ring is event n + 1 with number, kind and body, at its batch's last time.

    Each batch rings the bell once.
    """
    loop = Loop()
    bell = DoorbellServer(str(tmp_path / "bell"), "token")
    event_log = EventLog(loop, str(tmp_path), "D", bell, 8)
    client = DoorbellClient(str(tmp_path / "bell"), "token")
    assert client.connect() is not None
    client.subscribe(EVENTS_RING)
    for _ in range(3):  # accepted, known, subscribed
        loop.round(0)
    first = [draft("a", {"text": "ü\n", "kind of": {}}, 5000), draft("b", {}, 5000), draft("c", {"n": [1]}, 5001)]
    loop.after(0, lambda: event_log.announce(8, first))
    loop.after(0, lambda: event_log.announce(11, [draft("d", {"x": None}, 5001)]))
    loop.after(0, lambda: event_log.announce(0, []))
    loop.after(0, event_log.ring_at_round_end)
    loop.round(0)
    reader = LogReader(ring_path(str(tmp_path), EVENTS_RING), None)
    lines = reader.read(0, 100).lines
    assert [(line.n, line.ts, json.loads(line.text)) for line in lines] == [
        (7, 5001, {"seq": 8, "kind": "a", "text": "ü\n", "kind of": {}}),
        (8, 5001, {"seq": 9, "kind": "b"}),
        (9, 5001, {"seq": 10, "kind": "c", "n": [1]}),
        (10, 5001, {"seq": 11, "kind": "d", "x": None}),
    ]
    assert client.receive() == [EVENTS_RING]
    reader.close()
    client.close()
    event_log.close(last=True)


def test_oversized_event(tmp_path: Path) -> None:
    """An event that is too long is still one line with number and kind, so later numbers stay true."""
    bell = DoorbellServer(str(tmp_path / "bell"), "token")
    event_log = EventLog(Loop(), str(tmp_path), "D", bell, 1)
    names = [f"task-{number}" for number in range(10_000)]
    event_log.announce(1, [draft("config.reloaded", {"added": names}, 5), draft("b", {"text": "x" * 16_000}, 5)])
    reader = LogReader(ring_path(str(tmp_path), EVENTS_RING), None)
    lines = reader.read(0, 100).lines
    assert [(line.n, json.loads(line.text)) for line in lines] == [
        (0, {"seq": 1, "kind": "config.reloaded"}),
        (1, {"seq": 2, "kind": "b", "text": "x" * 16_000}),
    ]
    reader.close()
    event_log.close(last=True)


def test_no_directory_for_the_ring(tmp_path: Path) -> None:
    """Events that cannot be written are missing, and all others keep their numbers."""
    bell = DoorbellServer(str(tmp_path / "bell"), "token")
    runtime = tmp_path / "runtime"
    event_log = EventLog(Loop(), str(runtime), "D", bell, 8)
    event_log.announce(8, [draft("a", {}, 5000), draft("b", {}, 5000)])
    event_log.announce(10, [draft("c", {}, 5001)])
    runtime.mkdir()
    event_log.announce(11, [draft("d", {}, 9000)])
    event_log.announce(12, [draft("e", {}, 9001)])
    reader = LogReader(ring_path(str(runtime), EVENTS_RING), None)
    page = reader.read(0, 100)
    assert [(line.n, json.loads(line.text)) for line in page.lines] == [
        (10, {"seq": 11, "kind": "d"}),
        (11, {"seq": 12, "kind": "e"}),
    ]
    assert (page.skipped, reader.head().lines) == (10, 12)
    reader.close()
    event_log.close(last=True)


def test_removed_ring_is_recreated(tmp_path: Path) -> None:
    """A ring that is recreated after its removal has the old events and the next ones."""
    clock = FakeClock()
    loop = Loop(clock=clock)
    event_log = EventLog(loop, str(tmp_path), "D", DoorbellServer(str(tmp_path / "bell"), "token"), 1)
    event_log.announce(1, [draft("a", {}, 5000)])
    path = Path(ring_path(str(tmp_path), EVENTS_RING))
    path.unlink()
    event_log.announce(2, [draft("b", {}, 5001)])
    clock.advance(2)
    loop.round(0)
    event_log.announce(3, [draft("c", {}, 5002)])
    reader = LogReader(str(path), None)
    assert [json.loads(line.text)["kind"] for line in reader.read(0, 100).lines] == ["a", "b", "c"]
    reader.close()
    event_log.close(last=True)


def test_unannounced_events(tmp_path: Path) -> None:
    """The next scheduler announces a killed one's events.

    Its ring has earlier ones too, so a resuming reader finds no gap.
    """
    database = open_writer(str(tmp_path / "ringward.db"))
    assert left_over(database, str(tmp_path)) == (1, [])
    stored = [draft("run.created", {"n": n}, 5000 + n) for n in range(1, 6)]
    bell = DoorbellServer(str(tmp_path / "bell"), "token")
    killed = EventLog(Loop(), str(tmp_path), "D", bell, 1)
    append_all(database, stored[:3])
    killed.announce(1, stored[:3])
    append_all(database, stored[3:])
    first, events = left_over(database, str(tmp_path))
    following = EventLog(Loop(), str(tmp_path), "D", bell, first)
    following.announce(first, events)
    reader = LogReader(ring_path(str(tmp_path), EVENTS_RING), None)
    assert [(line.n, json.loads(line.text)["n"]) for line in reader.read(0, 100).lines] == [
        (n - 1, n) for n in range(1, 6)
    ]
    reader.close()
    following.close(last=False)
    assert left_over(database, str(tmp_path)) == (first, events)
    last = EventLog(Loop(), str(tmp_path), "D", DoorbellServer(str(tmp_path / "bell"), "token"), first)
    last.announce(first, events)
    last.close(last=True)
    assert left_over(database, str(tmp_path)) == (6, []), "the daemon has ended in peace"
    database.close()
