"""Exports through the real daemon, while its processes are killed and replaced.

Tests that share the daemon have exports of different names, because it keeps the position of each.
"""

import contextlib
import json
import os
import re
import signal
import socket
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from store.database import open_reader
from tests.helpers.exporter.loki import Loki
from tests.support.daemon import WITH_EXTRAS, Daemon, command_lines, gone
from tests.support.waiting import until

CODE = """\
import os, time
for n in range(150):
    os.write(1 + n % 2, b"%s %d\\n" % (os.environ["RINGWARD_RUN_ID"].encode(), n))
    time.sleep(0.01)
"""
UNITS = f"""
[services.web]
run = {json.dumps([sys.executable, "-I", "-S", "-c", CODE])}
instances = 2
restart_delay = "100ms"

[tasks.job]
run = "seq 3"
"""


def export(path: Path, name: str = "all", **keys: object) -> str:
    """Return the table of an export to a file."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return "\n".join([f"[exports.{name}]", 'type = "file"', f'path = "{path}"', *lines, ""])


def records(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the complete records of all files of an export, by run, in their order."""
    by_run: dict[str, list[dict[str, Any]]] = defaultdict(list)
    files = sorted(path.parent.glob(f"{path.name}*"), key=lambda file: int(file.suffix[1:] or 0), reverse=True)
    for file in files:
        for line in file.read_bytes().split(b"\n")[:-1]:
            record = json.loads(line)
            by_run[record["runId"]].append(record)
    return by_run


def write_again(daemon: Daemon, exports: str) -> None:
    """Replace the exports of the configuration."""
    before, _, _ = daemon.config.read_text().partition("[exports.")
    daemon.config.write_text(before + exports)


def exporters(daemon: Daemon) -> list[psutil.Process]:
    return daemon.children("ringward exporter", of="ringward scheduler")


def exporter(daemon: Daemon) -> psutil.Process:
    return until(lambda: next(iter(exporters(daemon)), None), "the exporter")


def runs_of(daemon: Daemon) -> list[str]:
    return [run["id"] for task in ("web", "job") for run in daemon.runs(task)]


def stopped(daemon: Daemon) -> list[str]:
    """Stop the service, and return all runs once they have ended."""
    assert daemon.cli("stop", "web").returncode == 0
    for run in runs_of(daemon):
        daemon.ended(run)
    return runs_of(daemon)


def check(daemon: Daemon, path: Path, *, repeats: bool = False) -> None:
    """All lines of all runs are delivered, in order; a crash may repeat some of them."""
    runs = stopped(daemon)
    expected = {run: {line["n"]: (line["stream"], line["text"]) for line in daemon.lines(run)} for run in runs}

    def complete() -> bool:
        by_run = records(path)
        return all(expected[run].keys() <= {record["line"] for record in by_run[run]} for run in runs)

    until(complete, "all lines to be delivered")
    for run, delivered in records(path).items():
        numbers = [record["line"] for record in delivered]
        assert {record["line"]: (record["stream"], record["text"]) for record in delivered} == expected[run]
        if not repeats:
            assert numbers == sorted(expected[run])
        for index, number in enumerate(numbers):
            assert number <= max(numbers[:index], default=-1) + 1


@pytest.mark.lent
def test_orderly_replacements(daemon: Daemon, tmp_path: Path) -> None:
    """A killed scheduler, an upgrade and a changed export lose no line and repeat none."""
    path = tmp_path / "out" / "log"
    daemon.write(UNITS + export(path, "orderly"))
    daemon.start()
    until(lambda: records(path), "the first lines")
    daemon.kill_helper("ringward scheduler")
    daemon.ended(daemon.trigger("job"))
    assert daemon.cli("upgrade").returncode == 0
    daemon.ended(daemon.trigger("job"))
    write_again(daemon, export(path, "orderly", keep=50, max_size="1mb"))
    before = exporter(daemon)
    assert daemon.cli("reload").returncode == 0
    until(lambda: gone(before), "the changed exporter to end")
    daemon.ended(daemon.trigger("job"))
    check(daemon, path)


@pytest.mark.lent
def test_killed_exporters_lose_no_line(daemon: Daemon, tmp_path: Path) -> None:
    """However often exporters are killed, each line arrives, and the lines of a run stay in order."""
    path = tmp_path / "out" / "log"
    daemon.write(UNITS + export(path, "killed"))
    daemon.start()
    for _ in range(4):
        exporter_process = exporter(daemon)
        before = sum(map(len, records(path).values()))
        until(lambda before=before: sum(map(len, records(path).values())) > before, "more lines")  # type: ignore[misc]
        with contextlib.suppress(psutil.NoSuchProcess):
            exporter_process.kill()
        daemon.ended(daemon.trigger("job"))
    check(daemon, path, repeats=True)


@pytest.mark.lent
def test_killed_root_loses_no_line(daemon: Daemon, tmp_path: Path) -> None:
    """After a crash of the daemon, the next one delivers the lines that the logs kept, each run to its end."""
    path = tmp_path / "out" / "log"
    daemon.write(UNITS + export(path, "crashed"))
    daemon.start()
    daemon.ended(daemon.trigger("job"))
    until(lambda: len(records(path)) >= 2, "lines of several runs")
    exporter_process = exporter(daemon)
    os.kill(daemon.pid, signal.SIGKILL)
    assert daemon.process is not None
    daemon.process.wait()
    until(lambda: gone(exporter_process), "the exporter to end")
    daemon.start()
    check(daemon, path, repeats=True)


def test_runs_without_an_exporter_are_delivered(daemon: Daemon, tmp_path: Path) -> None:
    """Runs that begin and end while the receiver fails, or without a working exporter, are delivered afterwards."""
    path = tmp_path / "out" / "log"
    path.parent.mkdir()
    path.mkdir()
    daemon.write('[tasks.job]\nrun = "seq 3"\n' + export(path, alert_after="1s"))
    daemon.start()
    runs = [daemon.trigger("job") for _ in range(5)]
    for run in runs:
        daemon.ended(run)

    def failing() -> dict[str, Any]:
        found: dict[str, Any] = daemon.get("/api/daemon").json()["exports"][0]
        return found if found.get("error") and found["behindRuns"] == 5 else {}

    export_status = until(failing, "the export to fail")
    assert export_status["error"] == f"cannot write {path}: Is a directory"
    assert (export_status["behindLines"], export_status["deliveredLines"]) == (15, 0)
    status = daemon.cli("status")
    assert status.returncode == 1
    assert "export all" in status.stdout
    assert "Is a directory" in status.stdout
    doctor = daemon.cli("doctor").stdout
    assert "export all" in doctor
    metrics = daemon.get("/metrics").body.decode()
    assert 'ringward_export_behind_lines{export="all"} 15' in metrics
    assert 'ringward_export_failing{export="all"} 1' in metrics

    def kinds() -> list[str]:
        return [item["kind"] for item in daemon.get("/api/notifications").json()["items"]]

    until(lambda: "export.failing" in kinds(), "the notification")
    path.rmdir()

    def delivered() -> dict[str, list[str]]:
        return {run: [record["text"] for record in of_run] for run, of_run in records(path).items()}

    until(lambda: sum(map(len, delivered().values())) >= 15, "the lines")
    assert delivered() == {run: ["1", "2", "3"] for run in runs}
    until(lambda: "export.recovered" in kinds(), "the notification of the recovery")
    until(lambda: "error" not in daemon.get("/api/daemon").json()["exports"][0], "the export to work")


def test_removed_lines_are_one_record(daemon: Daemon, tmp_path: Path) -> None:
    """Lines that the log dropped before the receiver was back are one record with their number."""
    path = tmp_path / "out" / "log"
    path.parent.mkdir()
    path.mkdir()
    daemon.write(
        '[tasks.big]\nrun = "seq 1000000"\nlog_max_size = "512kb"\n'
        '[tasks.gone]\nrun = "seq 7"\nkeep_runs = 0\n[storage]\nundo_window = "0s"\n' + export(path)
    )
    daemon.start()
    big = daemon.trigger("big")
    lines = daemon.ended(big)
    assert lines["status"] == "ended"
    gone_run = daemon.trigger("gone")
    until(lambda: daemon.get(f"/api/runs/{gone_run}").status == 404, "the run to be removed")
    path.rmdir()
    until(lambda: records(path)[big] and records(path)[big][-1]["text"] == "1000000", "the last line")
    first, *others = records(path)[big]
    assert first["skipped"] == others[0]["line"]
    assert first["text"] == f"{first['skipped']} lines missing: log_max_size or retention removed them"
    assert first["skipped"] + sum(other["stream"] == "stdout" for other in others) <= 1_000_001


@pytest.mark.lent
def test_only_selected_lines_are_delivered(daemon: Daemon, tmp_path: Path) -> None:
    """Globs, groups, tags and streams select the lines of an export; a reload adds and removes exports."""
    paths = {name: tmp_path / "out" / name for name in ("glob", "group", "tag", "stream", "later")}
    units = (
        '[tasks.a1]\nrun = "echo a1; echo err >&2"\ngroup = "g"\n[tasks.a2]\nrun = "echo a2"\ntags = ["t"]\n'
        '[tasks.b]\nrun = "echo b"\n'
    )
    exports = (
        export(paths["glob"], "glob", tasks="a*")
        + export(paths["group"], "group", groups="g")
        + export(paths["tag"], "tag", tags=["t"])
        + export(paths["stream"], "stream", streams="stderr")
    )

    def texts(name: str) -> set[str]:
        path = paths[name]
        return (
            {records_of_run["text"] for record in records(path).values() for records_of_run in record}
            if path.exists()
            else set()
        )

    daemon.write(units + exports)
    daemon.start()
    for task in ("a1", "a2", "b"):
        daemon.ended(daemon.trigger(task))
    until(lambda: texts("glob") == {"a1", "err", "a2"}, "the lines by name")
    until(lambda: texts("group") == {"a1", "err"}, "the lines by group")
    until(lambda: texts("tag") == {"a2"}, "the lines by tag")
    until(lambda: texts("stream") == {"err"}, "the lines by stream")
    write_again(daemon, export(paths["later"], "later"))
    assert daemon.cli("reload").returncode == 0
    until(lambda: [*command_lines(exporters(daemon)).values()] == ["ringward exporter later"], "one exporter")
    daemon.ended(daemon.trigger("b"))
    until(lambda: texts("later") == {"b"}, "the lines of the new export, without earlier runs")
    assert texts("glob") == {"a1", "err", "a2"}


@pytest.mark.lent
def test_changed_selection_applies_to_active_runs(daemon: Daemon, tmp_path: Path) -> None:
    """After a reload, an active run is delivered from its beginning, or no more; nothing is delivered twice."""
    path = tmp_path / "out" / "log"
    run = 'run = "n=0; while :; do echo $n; n=$((n + 1)); sleep 0.02; done"\n'
    daemon.write(f"[services.a]\n{run}[services.b]\n{run}" + export(path, "changing", tasks="a"))
    daemon.start()

    def lines(task: str) -> list[int]:
        return [record["line"] for run in records(path).values() for record in run if record["task"] == task]

    def select(tasks: object) -> None:
        before = exporter(daemon)
        write_again(daemon, export(path, "changing", tasks=tasks))
        assert daemon.cli("reload").returncode == 0
        until(lambda: gone(before), "the changed exporter to end")

    until(lambda: lines("a"), "the first lines of a")
    assert not lines("b")
    select("b")
    until(lambda: lines("b"), "the first lines of b")
    last, before = lines("a")[-1], len(lines("b"))
    until(lambda: len(lines("b")) > before + 20, "more lines of b")
    assert lines("a") == [*range(last + 1)]
    select(["a", "b"])
    until(lambda: lines("a")[-1] > last, "more lines of a")
    assert lines("a")[last + 1] > last + 20
    assert lines("b") == [*range(len(lines("b")))]
    assert sorted({*lines("a")}) == lines("a")


@contextlib.contextmanager
def server(path: str) -> Iterator[socket.socket]:
    """Yield the Unix socket of a syslog server."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.setblocking(False)
        receiver.bind(path)
        yield receiver
    os.unlink(path)


@pytest.mark.lent
def test_syslog_with_kills_of_both_sides(daemon: Daemon, tmp_path: Path) -> None:
    """Despite a killed exporter and a replaced syslog server, each line arrives, in order per run."""
    address = f"unix:{tmp_path}/log"
    daemon.write(UNITS + f'[exports.syslog]\ntype = "syslog"\naddress = "{address}"\nformat = "rfc5424"\n')
    daemon.start()
    by_run: dict[str, list[dict[str, Any]]] = defaultdict(list)
    pattern = re.compile(rb'<\d+>1 \S+ \S+ \S+ (\S+) (\S+) \[ringward@32473 instance="\d+" line="(\d+)"\] (.*)')

    def receive(receiver: socket.socket, enough: Callable[[], bool]) -> None:
        def some() -> bool:
            with contextlib.suppress(BlockingIOError):
                while message := receiver.recv(65536):
                    match = pattern.fullmatch(message)
                    assert match is not None, message
                    run, stream, line, text = (part.decode() for part in match.groups())
                    by_run[run].append({"line": int(line), "stream": stream, "text": text})
            return enough()

        until(some, "more lines")

    def count() -> int:
        return sum(map(len, by_run.values()))

    for _ in range(3):
        with server(f"{tmp_path}/log") as receiver:
            before = count()
            receive(receiver, lambda before=before: count() > before + 50)  # type: ignore[misc]
            exporter(daemon).kill()
            before = count()
            receive(receiver, lambda before=before: count() > before + 50)  # type: ignore[misc]
            # Messages that the socket has accepted would be lost with it, so nothing is sent while it closes.
            sender = exporter(daemon)
            sender.suspend()
            until(lambda sender=sender: sender.status() == psutil.STATUS_STOPPED, "the exporter to stop")  # type: ignore[misc]
            receive(receiver, lambda: True)
        sender.resume()
        until(lambda: "error" in daemon.get("/api/daemon").json()["exports"][0], "the export to fail")
    daemon.ended(daemon.trigger("job"))
    runs = stopped(daemon)
    with server(f"{tmp_path}/log") as receiver:
        expected = {run: {line["n"]: (line["stream"], line["text"]) for line in daemon.lines(run)} for run in runs}
        receive(
            receiver, lambda: all(expected[run].keys() <= {record["line"] for record in by_run[run]} for run in runs)
        )
    for run in runs:
        numbers = [record["line"] for record in by_run[run]]
        assert {record["line"]: (record["stream"], record["text"]) for record in by_run[run]} == expected[run]
        for index, number in enumerate(numbers):
            assert number <= max(numbers[:index], default=-1) + 1


@pytest.mark.lent
def test_loki_with_kills_and_refusals(daemon: Daemon, tmp_path: Path) -> None:
    """Despite killed exporters and an outage, Loki has each line once; the token is in no file of the daemon."""
    (tmp_path / "token").write_text("t0k3n-of-loki")
    loki = Loki()
    try:
        daemon.write(UNITS + f'[exports.loki]\ntype = "loki"\nurl = "{loki.url}"\ntoken_file = "{tmp_path}/token"\n')
        daemon.start()
        for status in (204, 503, 204):
            loki.status = status
            before = len(loki.requests)
            until(lambda before=before: len(loki.requests) > before, "another request")  # type: ignore[misc]
            exporter(daemon).kill()
            daemon.ended(daemon.trigger("job"))
        runs = stopped(daemon)
        expected = {(run, str(line["n"])): line["text"] for run in runs for line in daemon.lines(run)}

        def delivered() -> dict[tuple[str, str], str]:
            entries = [(text, more) for entry in list(loki.entries.values()) for (_, text), more in list(entry.items())]
            return {(more["runId"], more["line"]): text for text, more in entries}

        until(lambda: delivered() == expected, "all lines")
        assert sum(map(len, loki.entries.values())) == len(expected)
        assert {request["authorization"] for request in loki.requests} == {"Bearer t0k3n-of-loki"}
        assert daemon.holding("t0k3n-of-loki") == []
        assert "t0k3n" not in daemon.own_output()
    finally:
        loki.close()


def test_rejected_lines_do_not_block_others(daemon: Daemon) -> None:
    """Lines that Loki rejects permanently count as skipped and are reported; the lines after them arrive."""
    loki = Loki()
    try:
        daemon.write(f'[tasks.job]\nrun = "seq 3"\n[exports.all]\ntype = "loki"\nurl = "{loki.url}"\n')
        loki.status = 400
        daemon.start()

        def state() -> dict[str, Any]:
            status: dict[str, Any] = daemon.get("/api/daemon").json()["exports"][0]
            return status

        daemon.ended(daemon.trigger("job"))
        until(lambda: state()["skippedLines"] == 3, "the lines to be skipped")
        assert "answered with status 400" in state()["error"]
        loki.status = 204
        daemon.ended(daemon.trigger("job"))
        until(lambda: "error" not in state(), "the export to work")
        assert (state()["deliveredLines"], state()["skippedLines"], state()["behindLines"]) == (3, 3, 0)
        assert loki.lines() == ["1", "2", "3"]
    finally:
        loki.close()


def test_lines_and_spans_reach_a_collector(daemon: Daemon, tmp_path: Path) -> None:
    """Each line and each run arrives despite killed exporters, and a retry is a child of the first attempt."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs ringward[otlp]")
    from tests.helpers.exporter.otlp import Collector

    collector = Collector()
    try:
        flaky = f"echo try; test -e {tmp_path}/tried || {{ touch {tmp_path}/tried; exit 3; }}"
        daemon.write(
            f'[tasks.job]\nrun = "seq 3"\n[tasks.flaky]\nrun = "{flaky}"\nretry_attempts = 1\nretry_delay = "0s"\n'
            f'[tasks.silent]\nrun = "true"\n[exports.all]\ntype = "otlp"\nurl = "{collector.url}"\n'
        )
        collector.status = {"/v1/traces": 404}
        daemon.executable = WITH_EXTRAS
        daemon.start()
        first = daemon.trigger("flaky")
        runs = [daemon.trigger("job"), daemon.trigger("silent")]
        retry = until(
            lambda: next((run["id"] for run in daemon.runs("flaky") if run["id"] != first), None), "the retry"
        )
        for run in (first, retry, *runs):
            daemon.ended(run)
        expected = {(run, line["n"], line["text"]) for run in (first, retry, *runs) for line in daemon.lines(run)}

        def delivered() -> set[tuple[str, int, str]]:
            pairs = [(log.attributes, log.text) for log in list(collector.logs)]
            return {(about["ringward.run_id"], about["ringward.line"], text) for about, text in pairs}

        until(lambda: delivered() == expected, "all lines")
        until(lambda: "error" in daemon.get("/api/daemon").json()["exports"][0], "the refusal of spans")
        exporter(daemon).kill()
        collector.status = {}
        until(lambda: len({span.message.span_id for span in list(collector.spans)}) == 4, "a span for each run")
        spans = {span.attributes["ringward.run_id"]: span for span in collector.spans}
        assert spans.keys() == {first, retry, *runs}
        assert spans[retry].message.parent_span_id == spans[first].message.span_id
        assert spans[retry].message.trace_id == spans[first].message.trace_id
        assert spans[runs[0]].message.parent_span_id == b""
        ends = [spans[run].attributes["ringward.end_reason"] for run in (first, retry)]
        assert ends == ["failed", "succeeded"]
        for exported_log in collector.logs:
            span = spans[exported_log.attributes["ringward.run_id"]].message
            assert (exported_log.message.trace_id, exported_log.message.span_id) == (span.trace_id, span.span_id)
        until(lambda: "error" not in daemon.get("/api/daemon").json()["exports"][0], "the export to work")
    finally:
        collector.close()


def test_runs_removed_during_a_standstill_are_counted(daemon: Daemon, tmp_path: Path) -> None:
    """Runs that were created and removed while an exporter stood still are logged and counted."""
    path = tmp_path / "out" / "log"
    daemon.write('[storage]\nundo_window = "0s"\n[tasks.job]\nrun = "seq 3"\n' + export(path))
    daemon.start()
    daemon.ended(daemon.trigger("job"))
    until(lambda: records(path), "the first run")
    exporter_process = exporter(daemon)
    exporter_process.suspend()
    gone_runs = [daemon.trigger("job") for _ in range(2)]
    last = daemon.trigger("job")
    for run in (*gone_runs, last):
        daemon.ended(run)
    assert daemon.cli("rm", *gone_runs).returncode == 0
    until(lambda: len(daemon.runs("job")) == 2, "the runs to be removed")
    until(lambda: rows_of(daemon) == 2, "their rows to be removed")
    exporter_process.resume()
    until(lambda: len(records(path)[last]) == 3, "the last run")
    until(lambda: daemon.get("/api/daemon").json()["exports"][0]["lostRuns"] == 2, "the count")
    assert "exports.all: 2 runs were removed" in daemon.own_output()
    assert 'ringward_export_lost_runs_total{export="all"} 2' in daemon.get("/metrics").body.decode()
    assert "2 runs removed before delivery" in daemon.cli("doctor").stdout


def rows_of(daemon: Daemon) -> int:
    """Return the number of runs in the database, deleted ones too."""
    reader = open_reader(str(daemon.data / "ringward.db"))
    try:
        return int(reader.rows("SELECT count(*) FROM runs")[0][0])
    finally:
        reader.close()
