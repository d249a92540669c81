"""Every format that outlives a process is read as an older version wrote it."""

import ast
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logring.reader import LogReader
from logring.state_json import from_json, to_json
from store.database import open_writer
from store.runs.filter import RunFilter
from store.runs.run_pages import list_runs
from store.tasks import get_task
from store.tokens import all_tokens
from supervisor.host.cgroups import CgroupUsage
from supervisor.host.procfs import find_process
from supervisor.ipc.doorbell import DoorbellServer
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings, Exited
from supervisor.ipc.recent_starts import read_run_ids
from supervisor.root.handover import state_schema
from supervisor.root.handover.inherited_state import InheritedState
from supervisor.root.handover.record_memory import FORMAT, Record
from supervisor.root.handover.state_schema import (
    CgroupState,
    ExactState,
    Handover,
    ProcessesState,
    PumpState,
    RootState,
    RunDetails,
    RunProgress,
    RunStart,
    RunState,
    process_of,
    unpack,
)
from supervisor.root.handover.table import KeptDescriptorList
from supervisor.root.helper_processes import Helper
from supervisor.root.loop.control_thread import ControlThread
from supervisor.root.output.disk_space import DiskSpace
from supervisor.root.output.file_thread import FileThread
from supervisor.root.output.pump_thread import Pump
from supervisor.root.process.managed_process import ProcessState
from tests.root.test_never import PATHS, loaded
from tests.support.installation import extract

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))
TASKS = {"s", "stopped", "line", "pipe", "terminal", "secret"}
"""Names of the runs in each handover."""


def name_of(path: Path) -> str:
    return path.name.removesuffix(".tar.xz")


@pytest.fixture(params=ARCHIVES, ids=name_of)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The files of one archive."""
    with tarfile.open(request.param) as files:
        extract(files, tmp_path)
    return tmp_path


@pytest.fixture
def table(old: Path) -> dict[str, Any]:
    """The handed-over state, with descriptors and the directory of this process in it."""
    text = (old / "handover.json").read_text()
    text = text.replace(json.loads(text)["boot"]["runtime_dir"], str(old / "runtime"))
    document: dict[str, Any] = json.loads(text)
    logs = [exact["log"] for _, exact in document["runs"] if "log" in exact]
    for log in (*logs, *document["pump"]["logs"], document["pump"]["daemon"]):
        writer = log["writer"]
        if "fd" in writer:
            (values,) = writer["writer"].values()
            writer["fd"] = os.open(dict(values)["path"], os.O_RDWR | os.O_CLOEXEC)
    for _, exact in document["runs"]:
        if "notify_fd" in exact:
            exact["notify_fd"] = a_socket()
    return document


def a_socket() -> int:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).detach()


def a_pipe() -> int:
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    os.close(writing)
    return reading


def with_descriptors(table: dict[str, Any]) -> None:
    """Replace descriptors by ones of the same kind, and recorded processes by this process."""
    logs = [exact["log"] for _, exact in table["runs"] if "log" in exact]
    for log in (*logs, *table["pump"]["logs"]):
        log["sources"] = [[a_pipe(), stream] for _, stream in log["sources"]]
    for _, exact in table["runs"]:
        exact.update({name: os.pidfd_open(os.getpid()) for name in ("pidfd",) if name in exact})
        exact.update({name: a_pipe() for name in ("status_fd",) if name in exact})
    for pair in (*table["pump"]["helpers"], *table["pump"]["left"]):
        pair[0] = a_pipe()
    for pair in table["lives"]["records"].values():
        pair[0] = os.memfd_create("record", os.MFD_CLOEXEC)
    table["api"].update(pid=os.getpid(), pidfd=os.pidfd_open(os.getpid()), sock=a_socket())


FIELDS: dict[int, dict[type, str]] = {
    3: {
        RunStart: "request pid ticks started_at started_s",
        RunProgress: "phase steps_left deadline_s kill_at_s hurried killed cut_off abandoned adopted unexecuted status"
        " ended_at lines ready_at",
        RunDetails: "cause by reason cgroup leftovers untouchable remarks usage says exited stopping_at triggered",
        CgroupState: "path limits controllers",
        ExactState: "pidfd status_fd notify_fd resume_at_s look_s log",
        RunState: "start progress details",
        state_schema.RunHandover: "state exact",
        state_schema.PipeState: "fd stream",
        state_schema.LeftoverState: "task secrets",
        state_schema.LogProgress: "seen last part",
        state_schema.LogState: "name path sources writer progress stalled state told_overflow told_blocks cut_off"
        " sealing sealed frames_failed left",
        state_schema.RunLogState: "name path sources writer progress stalled state told_overflow told_blocks cut_off"
        " sealing sealed frames_failed left since_s",
        state_schema.HelperState: "epoch pid pidfd sock",
        state_schema.KeptDescriptors: "lock listeners",
        state_schema.LeftoverRunState: "task run cgroup known",
        state_schema.OwnerState: "pid start run",
        state_schema.RecordState: "fd pipes",
        state_schema.ProcessesState: "exits stillborn ended_pipes left nofile owners records left_running",
        state_schema.HeldText: "text masked",
        state_schema.LeftoverOutputState: "task run secrets held unfinished dropped",
        state_schema.LeftoverPipeState: "fd output",
        state_schema.HelperOutputState: "fd unfinished",
        state_schema.FilesState: "failing echo",
        state_schema.PumpState: "logs daemon helpers files left",
        state_schema.StoreRequest: "run fds",
        state_schema.RootState: "boot number told_ready terminal kept scheduler api runs lives pump reload store",
        Handover: "boot number told_ready terminal kept scheduler api runs lives pump reload store handover version"
        " keep signals",
    }
}
"""The fields of each class, in their order, by the handover format that introduced them."""
LATER: dict[type, str] = {
    state_schema.RootState: "sockets",
    Handover: "sockets",
    state_schema.HeldSocketState: "service name identity fd",
}
"""Fields that have joined the newest format since its first release."""


def fields_of(cls: type) -> dict[str, bool]:
    """Return the fields of a dataclass or a named tuple, and whether each has a default."""
    if not dataclasses.is_dataclass(cls):
        return {name: hasattr(cls, "_field_defaults") and name in cls._field_defaults for name in cls.__annotations__}
    missing = (dataclasses.MISSING, dataclasses.MISSING)
    return {field.name: (field.default, field.default_factory) != missing for field in dataclasses.fields(cls)}


def in_memory(table: dict[str, Any]) -> int:
    fd = os.memfd_create("table", os.MFD_CLOEXEC)
    os.write(fd, json.dumps(table).encode())
    return fd


def close(inherited: InheritedState) -> None:
    for run in inherited.runs:
        if run.process is not None and run.process.notify_socket is not None:
            run.process.notify_socket.close()
    for log in (*(run.log for run in inherited.runs), *(log for log, _ in inherited.logs), inherited.daemon):
        if log is not None and log.writer.blocks.created:
            log.writer.close()


def test_handover_is_read(table: dict[str, Any]) -> None:
    """Instances, exits, writers of logs and partial lines of an older handover are read."""
    inherited = InheritedState.load(in_memory(table))
    processes = [run.process for run in inherited.runs if run.process is not None]
    assert {process.spawn.task for process in processes} >= TASKS
    stopped = next(process for process in processes if process.spawn.task == "stopped")
    assert (stopped.phase, stopped.cause, stopped.steps_left) == (ProcessState.RUNNING, "stop", 0)
    assert stopped.spawn.grace_ms == 3_600_000
    assert inherited.state.boot.workers == 1
    (secret,) = (run.log for run in inherited.runs if run.process is not None and run.process.spawn.task == "secret")
    assert secret is not None
    out, _err, masked = secret.writer.withheld
    assert (out, masked) == (b"correct-ho", 0)
    close(inherited)


@pytest.fixture
def control(old: Path) -> Iterator[Callable[[DaemonSettings], ControlThread]]:
    """Return a function that creates roots without threads and processes."""
    place = tempfile.mkdtemp(prefix="rw-")  # a socket's path is at most 107 bytes
    bell = DoorbellServer(f"{place}/bell", "token")
    was = signal.getsignal(signal.SIGUSR2)

    def make(settings: DaemonSettings) -> ControlThread:
        log = Log("test")
        pump = Pump(settings.runtime_dir, settings.daemon_id, bell, FileThread(log, 2, DiskSpace(str(old), 0)))
        pump.files.connect(pump)
        helpers = Helper("scheduler", "", settings, []), Helper("gunicorn", "", settings, [])
        return ControlThread(settings, log, pump, bell, {}, helpers)

    yield make
    signal.signal(signal.SIGUSR2, was)
    bell.close()
    shutil.rmtree(place)


@pytest.fixture
def leftover() -> Iterator[subprocess.Popen[bytes]]:
    """A process without children that represents a run's leftovers."""
    process = subprocess.Popen(["sleep", "infinity"])
    yield process
    process.kill()
    process.wait()


def test_handover_is_passed_on_field_by_field(
    table: dict[str, Any], control: Callable[[DaemonSettings], ControlThread], leftover: subprocess.Popen[bytes]
) -> None:
    """A root that takes over all of an older handover hands over the same, in each field.

    That includes runs that print, drain, are stopped or have ended, logs that no disk takes, masked output and output
    of leftovers. It also includes unacknowledged exits, records, helpers, listeners, and requests to the service
    manager.
    """
    with_descriptors(table)
    found_left = find_process(leftover.pid)
    assert found_left is not None
    for left in table["lives"]["left_running"]:
        left[2:] = [None, [[found_left.pid, found_left.start]]]
    for log in table["pump"]["logs"]:
        if log["name"] in table["pump"]["files"]["failing"]:
            log.update(state="waiting", since_s=1.5)  # 0.1.0 did not note that the log of an ended run waits
    given: Handover = from_json(Handover, table)
    assert json.loads(json.dumps(to_json(given))) == table
    root = control(given.boot)
    root.kept = given.kept
    inherited = InheritedState.load(in_memory(table))
    root.load(inherited)
    before, after = comparable(given), comparable(root.dump(KeptDescriptorList()))
    for old, new in zip(before["pump"]["logs"], after["pump"]["logs"], strict=True):
        if old["since_s"] is None:  # this root notes since when a file refuses data, also after the end of the run
            new["since_s"] = None
    for name in FIELDS[3][RootState].split():
        assert after[name] == before[name], name
    assert {name for name in FIELDS[3][RootState].split() if not before[name]} == {"terminal"}
    assert {name for name in FIELDS[3][ProcessesState].split() if not getattr(given.lives, name)} == {"stillborn"}
    assert all(getattr(given.pump, name) for name in FIELDS[3][PumpState].split())
    phases = {run.state.progress.phase for run in given.runs}
    assert phases == {ProcessState.RUNNING, ProcessState.DRAINING}
    root._api.hang_up()
    close(inherited)
    for fd, *_ in table["lives"]["records"].values():
        os.close(fd)


def comparable(state: RootState) -> dict[str, Any]:
    """Return the value as JSON. Logs, and the pipes of a log, have no order."""
    document: dict[str, Any] = json.loads(json.dumps(to_json(state)))
    document["pump"]["logs"].sort(key=lambda log: log["name"])
    for log in (*(exact["log"] for _, exact in document["runs"] if "log" in exact), *document["pump"]["logs"]):
        log["sources"].sort()
    return document


def test_run_of_format_3_is_read() -> None:
    """A run as JSON and its packed progress are read as the first version with that format wrote them."""
    document = json.loads((Path(__file__).parent / "run-3.json").read_text())
    state, exact = from_json(RunState, document["state"]), from_json(ExactState, document["exact"])
    assert (state.start.request.run, state.start.request.env) == ("01M8AHRQZX8AYDH28XNK57TFRP", {"A": "\udcff"})
    assert (state.progress.phase, state.progress.steps_left, state.progress.killed) == (ProcessState.DRAINING, 1, True)
    assert (state.progress.kill_at_s, state.progress.deadline_s, state.progress.status) == (12.5, None, 9)
    assert state.details.leftovers == [(3, 4, "left (3)")]
    assert state.details.usage == CgroupUsage(1, 2, 3, filled_up=True)
    assert state.details.exited is not None
    assert state.details.cgroup == CgroupState("/x", ["cpu"], ["memory"])
    assert (exact.notify_fd, exact.resume_at_s, exact.pidfd) == (9, 3.5, None)
    assert unpack(bytes.fromhex(document["packed"])) == state.progress
    assert json.loads(json.dumps(to_json(state))) == document["state"]
    assert to_json(exact) == document["exact"]


def test_fields_are_listed_by_format() -> None:
    """Each field is listed with the format that introduced it; a later field has a default."""
    for cls in FIELDS[3]:
        names = [name for fields in (*FIELDS.values(), LATER) for name in fields.get(cls, "").split()]
        ordered = list if issubclass(cls, tuple) else sorted
        assert ordered(fields_of(cls)) == ordered(names), cls
        later = names[len(FIELDS[3][cls].split()) :]
        assert all(fields_of(cls)[name] for name in later), cls


def test_all_classes_of_the_schema_are_listed() -> None:
    """Each class that is part of a handover is listed with its fields."""
    classes = {
        member
        for member in vars(state_schema).values()
        if isinstance(member, type) and member.__module__ == state_schema.__name__
    }
    assert {schema_class for schema_class in classes if not schema_class.__name__.startswith("_")} == (
        FIELDS[3].keys() | LATER.keys()
    )


def test_record_of_an_unreported_run_is_read(old: Path) -> None:
    """The instance in the record is read, with defaults for later fields."""
    record = Record(os.open(old / "record-secret", os.O_RDWR | os.O_CLOEXEC))
    content = record.read()
    assert content is not None
    assert content.about["format"] == FORMAT
    request = content.state.start.request
    assert request.task == "secret"
    assert content.state.progress.phase in (ProcessState.RUNNING, ProcessState.SEALING)
    assert request.secrets == ["P"]
    assert (request.stop_target, request.stdin_open) == ("tree", False)
    assert process_of(content.state, -1, None, adopted=True).run == request.run
    assert content.state.details.exited is None
    record.close()


def test_record_of_an_ended_run_is_read(old: Path) -> None:
    """The record shows how the run ended."""
    record = Record(os.open(old / "record-ended", os.O_RDWR | os.O_CLOEXEC))
    content = record.read()
    assert content is not None
    exited = content.state.details.exited
    assert exited is not None
    assert exited.status is not None
    assert exited.run == content.state.run
    assert content.state.start.request.log.endswith(".log")
    record.close()


def test_messages_of_an_older_root_are_read(old: Path) -> None:
    """Settings, running runs and exits are read."""
    seen = set()
    for line in (old / "frames.jsonl").read_text().splitlines():
        frame = json.loads(line)
        op = frame.pop("op")
        seen.add(op)
        if op == "hello":
            settings = DaemonSettings.from_dict(frame["boot"])
            assert settings.database.endswith("/ringward.db")
            assert (settings.run_token_key != "", settings.proxy_socket) == (True, None)
        elif op == "exited":
            assert Exited(**frame).run == frame["run"]
        elif op == "snapshot":
            assert all(Exited(**exited).ended_at > 0 for exited in frame["exits"])
    assert {"hello", "snapshot", "started", "exited", "notified"} <= seen


def test_recent_starts_are_read(old: Path) -> None:
    """The ids of the recent starts are read."""
    noted = read_run_ids(str(old / "runtime"))
    table = json.loads((old / "handover.json").read_text())
    running = {state["start"]["request"]["run"] for state, _ in table["runs"]}
    assert len(running) >= len(TASKS)
    assert running <= noted


def test_events_are_json_with_a_kind(old: Path) -> None:
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


def test_older_database_is_migrated(old: Path) -> None:
    """Runs, a retry, a deleted run, tasks and tokens are there after the current migrations."""
    with contextlib.closing(open_writer(str(old / "ringward.db"))) as db:
        runs, total = list_runs(db, RunFilter(), now_ms=0)
        assert total == len(runs)
        results = sorted((run.task_name, run.end_reason, run.retry_attempt) for run in runs)
        assert [result for result in results if result[0] != "web"] == [
            ("bad", "failed", 0),
            ("bad", "failed", 1),
            ("good", "succeeded", 0),
        ]
        good = get_task(db, "good")
        assert good is not None
        assert good.paused
        assert [token.name for token in all_tokens(db)] == ["ci"]


def test_formats_do_not_follow_attributes() -> None:
    """Nothing in the root, or in the modules that it imports, reads all attributes of an object to write them."""
    imports = set()
    for module in loaded():
        for node in ast.walk(ast.parse(PATHS[module].read_text())):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            if name in ("vars", "__dict__") or (isinstance(node, ast.Attribute) and name == "__slots__"):
                imports.add((module, name))
    assert not imports
