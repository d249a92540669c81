"""Requests that are sent once, with the announcement of a run: its start refers to them by their digests."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.ipc.messages import Message
from supervisor.root.process.transitions import State
from supervisor.root.spawn import start_queue
from tests.root.stepped_root import SteppedRoot


@pytest.fixture
def root(tmp_path: Path) -> Iterator[SteppedRoot]:
    stepped = SteppedRoot(tmp_path)
    yield stepped
    stepped.close()


def request(root: SteppedRoot, **more: Any) -> Message:
    """Return a request for the run R, which adds a line to the file `side`."""
    command = ["/bin/sh", "-c", f"echo $0 >> {root.settings.runtime_dir}/side; sleep 1000", "once"]
    fields = {"run": "R", "task": "t", "argv": command, "env": {}, "log": root.log_path}
    return {**fields, "log_max_bytes": 1 << 20, "stop_signal": 15, "grace_ms": 1000, **more}


def announce(root: SteppedRoot, spawn: Message) -> None:
    root.ask({"op": "prepare", "spawn": spawn, "digest": repr(spawn)})


def start(root: SteppedRoot, spawn: Message) -> None:
    root.ask({"op": "spawn", "run": spawn["run"], "digest": repr(spawn)})


def state(root: SteppedRoot) -> State:
    return root.control._processes._dispatcher.state("R")


def started_once(root: SteppedRoot) -> bool:
    """Wait for the command; return whether one process has executed it."""
    side = Path(root.settings.runtime_dir, "side")
    root.until(lambda: side.exists() and bool(side.read_text()), "the command")
    return side.read_text() == "once\n" and [message["op"] for message in root.sent].count("started") == 1


def test_announced_run_starts_by_its_digest(root: SteppedRoot) -> None:
    """The start of an announced run needs only the digest of its request; a repeated start changes nothing."""
    announce(root, request(root))
    assert state(root) is State.UNKNOWN
    start(root, request(root))
    start(root, request(root))
    assert started_once(root)
    assert "unknown" not in [message["op"] for message in root.sent]


@pytest.mark.parametrize("case", ["not announced", "announced with another request", "announced by another scheduler"])
def test_unknown_request(root: SteppedRoot, case: str) -> None:
    """The root asks for a request that it does not have, and starts the run once when the whole request arrives."""
    if case == "announced with another request":
        announce(root, request(root, argv=["/bin/sh", "-c", f"echo other >> {root.settings.runtime_dir}/side"]))
    elif case == "announced by another scheduler":
        announce(root, request(root))
        root.ask({"op": "snapshot"})
    start(root, request(root))
    assert root.sent[-1] == {"op": "unknown", "run": "R"}
    assert not root.live
    for _ in range(2):
        root.ask({"op": "spawn", "spawn": request(root)})
    assert started_once(root)


@pytest.mark.parametrize("force", [False, True])
def test_stop_before_the_whole_request(root: SteppedRoot, force: bool) -> None:
    """A stop ends a run whose request the root has asked for; the request then starts nothing."""
    start(root, request(root))
    root.ask({"op": "stop", "run": "R", "cause": "stop", "by": "me", "force": force})
    report = root.report()
    assert report is not None
    assert (report["cause"], report["by"], "started_at" in report) == ("stop", "me", False)
    root.ask({"op": "spawn", "spawn": request(root)})
    assert not root.live
    root.ask({"op": "ack", "runs": ["R"]})
    assert state(root) is State.UNKNOWN
    assert not os.path.exists(f"{root.settings.runtime_dir}/side")


def test_scheduler_replaced_before_the_whole_request(root: SteppedRoot) -> None:
    """A new scheduler requests the run again: it is not in the snapshot, and starts once."""
    start(root, request(root))
    root.ask({"op": "snapshot"})
    snapshot = root.sent[-1]
    assert (snapshot["op"], snapshot["instances"], snapshot["exits"]) == ("snapshot", [], [])
    announce(root, request(root))
    start(root, request(root))
    assert started_once(root)


def test_rejected_run_was_announced(root: SteppedRoot) -> None:
    """If the scheduler rejects an announced run, the run does not start, and its log has the reason."""
    announce(root, request(root))
    root.ask({"op": "spawn", "spawn": request(root, refusal="no such user")})
    root.until(lambda: root.report() is not None, "the report")
    report = root.report()
    assert report is not None
    assert (report["cause"], report["reason"]) == ("start_failed", "could not start: no such user")
    assert not os.path.exists(f"{root.settings.runtime_dir}/side")


def test_latest_announced_requests_are_kept(root: SteppedRoot) -> None:
    """Announced runs that never start use a limited amount of memory."""
    for number in range(2 * start_queue._MAX_ANNOUNCED):
        announce(root, request(root, run=f"N{number}"))
    announce(root, request(root))
    assert len(root.control._processes._announced._requests) == start_queue._MAX_ANNOUNCED
    start(root, request(root))
    assert started_once(root)
