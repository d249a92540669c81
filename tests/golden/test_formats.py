"""Every format that outlives a process is read as an older version wrote it."""

import contextlib
import json
import os
import socket
import tarfile
from pathlib import Path
from typing import Any

import pytest

from logring.reader import LogReader
from store.database import open_writer
from store.runs import RunFilter, list_runs
from store.tasks import get_task
from store.tokens import all_tokens
from supervisor.begun import begun
from supervisor.messages import Boot, Exited
from supervisor.root.inherited import Inherited
from supervisor.root.instances import Instance, Phase
from supervisor.root.record import Record
from supervisor.root.schema import SCHEMA

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))
TASKS = {"s", "stopped", "line", "pipe", "terminal", "secret"}


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The files of one archive."""
    with tarfile.open(request.param) as files:
        files.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture
def table(old: Path) -> dict[str, Any]:
    """What was handed over, with descriptors of this process in it."""
    found: dict[str, Any] = json.loads((old / "handover.json").read_text())
    for log in (*found["pump"]["logs"], found["pump"]["daemon"]):
        writer = log["writer"]
        if "fd" in writer:
            (values,) = writer["writer"].values()
            name = Path(dict(values)["path"]).name
            writer["fd"] = os.open(old / "runtime" / name, os.O_RDWR | os.O_CLOEXEC)
    for one in found["lives"]["live"]:
        if one["ear"] is not None:
            one["ear"]["fd"] = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).detach()
    return found


def in_memory(table: dict[str, Any]) -> int:
    fd = os.memfd_create("table", os.MFD_CLOEXEC)
    os.write(fd, json.dumps(table).encode())
    return fd


def test_what_a_root_hands_over(table: dict[str, Any]) -> None:
    """Instances, exits and the writers of logs are taken up, with what was said only in half."""
    found = Inherited.take_up(in_memory(table))
    assert {one.spawn.task for one in found.instances} == TASKS
    stopped = next(one for one in found.instances if one.spawn.task == "stopped")
    assert (stopped.phase, stopped.cause, list(stopped.steps)) == (Phase.RUNNING, "stop", [])
    assert stopped.spawn.grace_ms == 3_600_000
    assert found.boot.workers == 1
    by_task = {one.run: one.spawn.task for one in found.instances}
    logs = {by_task[log.name]: log for log in found.logs if log.name in by_task}
    out, _err, masked = logs["secret"].writer.held
    assert (out, masked) == (b"correct-ho", 0)
    for one in found.instances:
        if one.ear is not None:
            one.ear.close()
    for log in (*found.logs, found.daemon):
        if log.writer.created:
            log.writer.close()


def test_the_record_of_a_run_that_is_not_reported(old: Path) -> None:
    """Its instance is known again, with defaults for the fields that came later."""
    record = Record(os.open(old / "record-secret", os.O_RDWR | os.O_CLOEXEC))
    known = record.read()
    assert known is not None
    assert known["format"] == 1
    instance = SCHEMA.up(known["instance"])
    assert isinstance(instance, Instance)
    assert (instance.spawn.task, instance.phase) == ("secret", Phase.SEALING)
    assert instance.spawn.secrets == ["P"]
    assert (instance.spawn.stop_target, instance.spawn.stdin_open) == ("tree", False)
    record.close()


def test_the_record_of_a_run_that_has_ended(old: Path) -> None:
    """How it ended is known again."""
    record = Record(os.open(old / "record-ended", os.O_RDWR | os.O_CLOEXEC))
    known = record.read()
    assert known is not None
    assert Exited(**known["exited"]).status is not None
    assert known["log"].endswith(".log")
    record.close()


def test_messages_from_the_root(old: Path) -> None:
    """Settings, what runs, and exits are understood."""
    seen = set()
    for line in (old / "frames.jsonl").read_text().splitlines():
        frame = json.loads(line)
        op = frame.pop("op")
        seen.add(op)
        if op == "hello":
            boot = Boot.from_dict(frame["boot"])
            assert boot.database.endswith("/ringward.db")
            assert (boot.run_token_key, boot.proxy_socket) == ("", None)
        elif op == "exited":
            assert Exited(**frame).run == frame["run"]
        elif op == "snapshot":
            assert all(Exited(**one).ended_at > 0 for one in frame["exits"])
    assert {"hello", "snapshot", "started", "exited", "notified"} <= seen


def test_the_note_of_the_last_starts(old: Path) -> None:
    """The ids of the runs are known again."""
    noted = begun(str(old / "runtime"))
    table = json.loads((old / "handover.json").read_text())
    running = {one["instance"]["Instance"]["spawn"]["Spawn"]["run"] for one in table["lives"]["live"]}
    assert running <= noted


def test_events(old: Path) -> None:
    """The lines of the events ring are JSON with a kind, as streams send them."""
    reader = LogReader(str(old / "runtime" / "events.ring"), None)
    try:
        head = reader.head()
        lines = reader.read(head.first_available, head.lines - head.first_available).lines
    finally:
        reader.close()
    kinds = [line.text.split(b" ", 1)[0] for line in lines]
    assert len(kinds) == head.lines - head.first_available > 5
    assert any(b"run.created" in line.text for line in lines)


def test_a_database(old: Path) -> None:
    """Runs, a retry, a deleted run, tasks and tokens are there after the migrations of today."""
    with contextlib.closing(open_writer(str(old / "ringward.db"))) as db:
        found, total = list_runs(db, RunFilter(), now_ms=0)
        assert total == len(found)
        results = sorted((run.task_name, run.end_reason, run.retry_attempt) for run in found)
        assert [one for one in results if one[0] != "web"] == [
            ("bad", "failed", 0),
            ("bad", "failed", 1),
            ("good", "succeeded", 0),
        ]
        good = get_task(db, "good")
        assert good is not None
        assert good.paused
        assert [token.name for token in all_tokens(db)] == ["ci"]
