"""Redrawn lines: live as a region, settled as a line with its history."""

from pathlib import Path

import pytest

from logring.layout import STDERR, STDOUT
from logring.log_paths import frames_path
from logring.redraw.history_file import FramesWriter
from store.runs.writes import Run
from tests.api.support.harness import Daemon
from tests.api.support.records import Log, make_run


def drawing(daemon: Daemon) -> tuple[Run, Log, FramesWriter]:
    run = daemon.insert(make_run(task="draws", status="running", started_at=1))
    log = daemon.log_of(run)
    for stream in (STDOUT, STDERR):
        log.ring.redraw(stream, full=False)
    return run, log, FramesWriter(frames_path(log.file.path), run.id, log.ring.blocks.frames, 1 << 20)


def history(run: Run, line: object) -> str:
    return f"/api/runs/{run.id}/log/line/{line}/history"


def test_progress_bar_and_its_history(daemon: Daemon) -> None:
    """A bar is a region while it is drawn, then a line with frameCount on stream and pages, and has frames."""
    run, log, sidecar = drawing(daemon)
    log.write(b"begin\n10%\r50%")
    stream = daemon.stream(f"/api/runs/{run.id}/log/stream")
    events = stream.events()
    assert next(events).data["text"] == "begin"
    region = next(events)
    assert (region.name, region.id) == ("region", None)
    assert (region.data["rows"], region.data["stream"]) == (["50%"], "stdout")
    log.write("\r90\xa0%".encode())
    later = next(events)
    assert (later.name, later.data["rows"]) == ("region", ["90\xa0%"])
    assert later.data["epoch"] > region.data["epoch"]
    log.write(b"\nend\n")
    later_events = [next(events) for _ in range(3)]
    lines = [event.data for event in later_events if event.name == "line"]
    assert [(line["text"], line.get("frameCount")) for line in lines] == [("90\xa0%", 3), ("end", None)]
    assert [event.data["rows"] for event in later_events if event.name == "region"] == [[]]
    stream.close()
    page = daemon.get(f"/api/runs/{run.id}/log").json
    assert [line.get("frameCount") for line in page["lines"]] == [None, 3, None]
    sidecar.write()
    answer = daemon.get(history(run, 1))
    assert answer.status == 200
    assert answer.json["frames"] == [["10%"], ["50%"], ["90\xa0%"]]
    assert daemon.get(history(run, 0)).json["frames"] == []
    log.finish()
    assert daemon.get(history(run, 1)).json["frames"] == [["10%"], ["50%"], ["90\xa0%"]]
    sidecar.close()


def test_regions_of_both_streams(daemon: Daemon) -> None:
    """Each stream has its region, and both are removed before ``done``."""
    run, log, _ = drawing(daemon)
    stream = daemon.stream(f"/api/runs/{run.id}/log/stream")
    log.write(b"1\rout")
    log.write(b"1\rerr", STDERR)
    events = stream.events()
    shown: dict[str, list[str]] = {}
    while len(shown) < 2:
        event = next(events)
        shown[event.data["stream"]] = event.data["rows"]
    assert shown == {"stdout": ["out"], "stderr": ["err"]}
    log.finish()
    daemon.end(run.id, lines=log.ring.blocks.lines)
    later_events = list(events)
    assert later_events[-1].name == "done"
    for event in later_events[:-1]:
        if event.name == "region":
            shown[event.data["stream"]] = event.data["rows"]
    assert shown == {"stdout": [], "stderr": []}
    stream.close()


@pytest.mark.parametrize(
    ("line", "status"),
    [(1, 404), (2**63 - 1, 404), (2**63, 404), ("9" * 19, 404), ("9" * 20, 422), (-1, 422), ("x", 422), ("1.0", 422)],
)
def test_unknown_line(daemon: Daemon, line: object, status: int) -> None:
    """A number outside the log gets 404, and an invalid number 422."""
    run, log, _ = drawing(daemon)
    log.write(b"only\n")
    assert daemon.get(history(run, line)).status == status


def test_unknown_run(daemon: Daemon) -> None:
    """The history answers as the log does; a run without output has no lines."""
    assert daemon.get(history(make_run(), 0)).status == 404
    silent = daemon.insert(make_run(task="draws"))
    assert daemon.get(history(silent, 0)).status == 404


def test_damaged_history(daemon: Daemon) -> None:
    """A damaged history gets 500 with the reason, and the log is served."""
    run, log, sidecar = drawing(daemon)
    log.write(b"1\r2\n")
    sidecar.write()
    sidecar.close()
    Path(sidecar.path).write_bytes(b"#" * 9999)
    answer = daemon.get(history(run, 0))
    assert answer.status == 500
    assert "is not a file of frames" in answer.json["detail"]
    assert daemon.get(f"/api/runs/{run.id}/log").json["lines"][0]["text"] == "2"
