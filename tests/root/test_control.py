"""The control loop's decisions, without its processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from supervisor.doorbell import DoorbellServer
from supervisor.logline import Log
from supervisor.messages import Spawn, encode
from supervisor.root.control import Control
from supervisor.root.diskroom import DiskRoom
from supervisor.root.files import FileThread
from supervisor.root.helpers import Helper
from supervisor.root.instances import Instance
from supervisor.root.lives import Lives
from supervisor.root.pump import Pump
from supervisor.root.tree import Trees
from supervisor.root.watch import Watch
from tests.root.test_shortage import BOOT


class _Log(Log):
    def __init__(self) -> None:
        super().__init__("test")
        self.lines: list[str] = []

    def emit(self, line: bytes) -> None:
        self.lines.append(line.decode())


class _Pump:
    def connect(self, _listener: object) -> None:
        pass


def spawn(run: str, **more: Any) -> Spawn:
    return Spawn(run=run, task="t", argv=["true"], env={}, log="", log_max_bytes=1, stop_signal=15, grace_ms=1, **more)


@pytest.fixture
def bell(tmp_path: Path) -> Iterator[DoorbellServer]:
    one = DoorbellServer(str(tmp_path / "bell"), "token")
    yield one
    one.close()


def test_the_api_has_nothing_to_say(bell: DoorbellServer, tmp_path: Path) -> None:
    """The API server, which strangers talk to, cannot have the root start, stop or forget anything."""
    log = _Log()
    pump = Pump(str(tmp_path), "D", bell, FileThread(log, 2, DiskRoom(str(tmp_path), 0)))
    scheduler, api = (Helper(name, name, BOOT, []) for name in ("scheduler", "gunicorn"))
    control = Control(BOOT, log, pump, bell, {}, (scheduler, api))
    frame = encode({"op": "spawn", "spawn": vars(spawn("R"))})
    control._on_frames(api, frame)
    assert not control._lives.live
    assert not control._lives.stillborn
    assert "gunicorn sent what cannot be understood" in log.lines[0]


def test_time_outs_of_the_past_take_no_memory() -> None:
    """Short runs with long time-outs: only the timers of those that live are kept."""
    lives = Lives(Watch(), cast(Pump, _Pump()), _Log(), {}, lambda _frame: None, Trees("D", set))
    for number in range(10_000):
        lives.live = {str(number): Instance(spawn(str(number)), 1, 1, 1, None)}
        lives._at(1000.0 + number, str(number))
    assert len(lives._timers) < 600
    assert (10_999.0, "9999") in lives._timers
