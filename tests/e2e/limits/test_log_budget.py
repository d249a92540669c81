"""Old logs through the real daemon: compressed, and kept within their budget."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest

from logring.layout import KIND_PACKED, Static
from logring.logfile.compress import SUFFIX
from tests.support.daemon import Daemon, command_lines, program
from tests.support.installation import Installation
from tests.support.waiting import until

NUMBERED = 'run = "seq 20000; echo error one >&2; printf half"'
TINY = '[tasks.tiny]\nrun = "echo hello"\n'
RESTED_S = 90.0
"""Longer than a janitor's pause: a janitor that ran before a log was complete leaves it to the next."""


def send_the_janitor(daemon: Daemon) -> str:
    """End a run with output, which starts the janitor; return the run, whose log is complete."""
    run_id = daemon.trigger("tiny")
    daemon.ended(run_id)
    daemon.log_file(run_id)
    return run_id


def log_files(daemon: Daemon) -> dict[str, Path]:
    """Return the log files by run id."""
    return {path.stem: path for path in daemon.data.glob("logs/*/*/*.log")}


def is_packed(path: Path) -> bool:
    return Static.parse(path.read_bytes(), str(path)).kind == KIND_PACKED


def shown(daemon: Daemon, task: str, run_id: str) -> list[Any]:
    """Return everything that the API shows of a log."""
    base = f"/api/runs/{run_id}/log"
    stream = daemon.stream(f"{base}/stream?from=0&replayLimit=100000")
    events = [(event.kind, event.id, event.data) for event in stream]
    stream.close()
    return [
        *(
            daemon.get(f"{base}?{query}").body
            for query in ("from=0", "from=10000&limit=50", "from=-5", "stream=stderr")
        ),
        *(daemon.get(f"{base}/raw{query}").body for query in ("", "?stream=stderr")),
        [event for event in events if event[0] != "done"],
        daemon.hits(task, f"q={quote('^1?99+$')}&regex=true"),
    ]


def test_compressed_log_is_unchanged(daemon: Daemon) -> None:
    """Pages, raw text, stream and search of a run are the same before and after its log is compressed."""
    daemon.write(f'[tasks.t]\n{NUMBERED}\n[storage]\ncompress_after = "1h"\n')
    daemon.start()
    run_id = daemon.trigger("t")
    daemon.ended(run_id)
    before = shown(daemon, "t", run_id)
    size = daemon.log_file(run_id).stat().st_size
    assert daemon.stop() == 0
    daemon.write(f'[tasks.t]\n{NUMBERED}\n{TINY}[storage]\ncompress_after = "0s"\n')
    daemon.start()
    send_the_janitor(daemon)
    until(lambda: is_packed(log_files(daemon)[run_id]), "the log to be compressed")
    assert log_files(daemon)[run_id].stat().st_size < size / 2
    assert shown(daemon, "t", run_id) == before
    assert daemon.stop() == 0


@pytest.mark.lent
def test_log_is_compressed_after_its_run(daemon: Daemon) -> None:
    """The end of a run starts a janitor, which exits when its work is done; logs of running runs are left alone."""
    live_task = '[tasks.live]\nrun = "seq 99; exec sleep 600"\n'
    daemon.write(f'[tasks.t]\n{NUMBERED}\n{live_task}{TINY}[storage]\ncompress_after = "0s"\n')
    daemon.start()
    live, run_id = daemon.trigger("live"), daemon.trigger("t")
    daemon.ended(run_id)
    path = daemon.log_file(run_id)
    send_the_janitor(daemon)
    until(lambda: is_packed(path), "the log to be compressed", RESTED_S)
    until(lambda: not janitors(daemon), "the janitor to end")
    until(lambda: live in log_files(daemon), "the log of the run that goes on")
    assert not is_packed(log_files(daemon)[live])
    assert len(daemon.lines(live)) == 99


def janitors(daemon: Daemon) -> list[psutil.Process]:
    return [process for process, line in command_lines(daemon.family()).items() if "janitor" in line]


def stopped(daemon: Daemon) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [janitor for janitor in janitors(daemon) if janitor.status() == psutil.STATUS_STOPPED]
    return []


def test_budget_removes_the_oldest_logs(daemon: Daemon) -> None:
    """Beyond the budget, the logs that ended first are removed; their runs are kept and report the missing lines."""
    daemon.write(f"[tasks.t]\n{NUMBERED}\n")
    daemon.start()
    ids, lines = [], []
    for _ in range(6):
        ids.append(daemon.trigger("t"))
        daemon.ended(ids[-1])
        daemon.log_file(ids[-1])  # so that the next one is written later
        lines.append(len(daemon.lines(ids[-1])))
    assert daemon.stop() == 0
    sizes = {run_id: path.stat().st_blocks * 512 for run_id, path in log_files(daemon).items()}
    budget = sum(sizes[run_id] for run_id in ids[4:]) + 16384
    daemon.write(f'[tasks.t]\n{NUMBERED}\n{TINY}[storage]\nmax_log_bytes = "{budget}b"\n')
    daemon.start()
    tiny = send_the_janitor(daemon)
    until(lambda: log_files(daemon).keys() == {*ids[4:], tiny}, "the oldest logs, and no others, to be removed")
    until(lambda: "t: removed the logs of 4 runs" in daemon.output.read_text(), "a word about it")
    for run_id, count in zip(ids[:4], lines, strict=False):
        assert daemon.run(run_id)["endReason"] == "succeeded"
        answer = daemon.get(f"/api/runs/{run_id}/log")
        page = answer.json()
        assert answer.status == 200
        assert (page["lines"], page["firstAvailable"], page["totalLines"]) == ([], count, count)
        assert page["truncated"]
        assert daemon.get(f"/api/runs/{run_id}/log/raw").body == b""
        stream = daemon.stream(f"/api/runs/{run_id}/log/stream?from=0")
        assert [event.kind for event in stream][-1] == "done"
        stream.close()
    assert [item["runId"] for item in daemon.hits("t", "q=19999&limit=1000")] == [ids[5], ids[4]]


@pytest.fixture
def stopping(tmp_path: Path) -> Iterator[Installation]:
    """A daemon whose janitor stops while it compresses, as long as the first version is installed."""
    installation = Installation(tmp_path)
    call = "        done = compress(log_file.path)\n"
    stop = "        if log_file.size > 1 << 20:\n"
    stop += "            compress.__globals__['_pages'] = lambda _: os.kill(os.getpid(), 19)\n"
    installation.add("stops", {"supervisor/helpers/janitor/upkeep.py": (call, stop + call)})
    installation.install("stops")
    yield installation
    installation.clean()


def test_killed_janitor_loses_nothing(stopping: Installation) -> None:
    """A killed janitor leaves the log complete, and the next one does the work."""
    daemon = stopping
    text = f"[tasks.t]\nrun = {program('floods', 50_000_000)}\n{TINY}"
    daemon.write(text + '[storage]\ncompress_after = "0s"\n')
    daemon.start()
    run_id = daemon.trigger("t")
    daemon.ended(run_id)
    path = daemon.log_file(run_id)
    tiny = send_the_janitor(daemon)
    (janitor,) = until(lambda: stopped(daemon), "the janitor to have begun", RESTED_S)
    assert os.path.getsize(f"{path}{SUFFIX}") > 0
    janitor.kill()
    until(lambda: not janitors(daemon), "the janitor to be reaped")
    raw = daemon.get(f"/api/runs/{run_id}/log/raw").body
    assert raw == b"".join(b"%099d\n" % number for number in range(500_000))
    assert daemon.stop() == 0
    daemon.install("first")
    daemon.start()
    send_the_janitor(daemon)
    until(lambda: is_packed(path), "the log to be compressed", RESTED_S)
    until(lambda: not janitors(daemon), "the janitor to end")
    assert os.listdir(path.parent) == [path.name]
    assert is_packed(log_files(daemon)[tiny])
    assert daemon.get(f"/api/runs/{run_id}/log/raw").body == raw
