"""The whole data directory, including the database, on a disk that blocks writes and perhaps reads."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import gone, program
from tests.support.frozen import FrozenLogs, why_not
from tests.support.waiting import until


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FrozenLogs]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    logs = FrozenLogs(tmp_path, all_data=True)
    try:
        yield logs
    finally:
        logs.clean()


def test_frozen_data_directory(daemon: FrozenLogs, tmp_path: Path) -> None:
    """Stops take effect, no request hangs, and commands that cannot be stored are refused.

    After the thaw, all is consistent.
    """
    side = tmp_path / "side"
    daemon.write(
        f"[tasks.talks]\nrun = {program('numbered', 1_000_000, 0.01, side)}\n"
        f"[tasks.stays]\nrun = {program('obeys_term')}\n"
        f"[services.s]\nrun = {program('obeys_term')}\n"
        '[tasks.small]\nrun = "echo hello"\n'
    )
    daemon.start()
    talks, stays = daemon.trigger("talks"), daemon.trigger("stays")
    until(lambda: daemon.run(talks)["status"] == "running", "the run")
    until(lambda: daemon.run(stays)["status"] == "running", "the other run")
    until(lambda: daemon.task("s")["state"] == "running", "the service")
    until(lambda: len(daemon.children("/programs/")) == 3, "all of them")
    programs = daemon.children("/programs/")
    daemon.freeze()
    try:
        # The first change may be on its way to the database already; all later ones are refused.
        assert daemon.request("POST", f"/api/runs/{talks}/stop").status == 204
        until(lambda: daemon.get("/readyz").status == 503, "it to be noticed")
        log = daemon.stream("/api/daemon/log/stream?from=0")
        assert next(
            event for event in log if event.kind == "line" and "database has not answered" in event.data["text"]
        )
        log.close()
        assert daemon.request("POST", "/api/tasks/small/run").status == 503
        assert daemon.get(f"/api/runs/{talks}").status in (200, 503)
        assert daemon.get("/api/runs").status in (200, 503)
        assert daemon.get("/healthz").status == 200
        assert daemon.request("POST", f"/api/runs/{stays}/stop").status == 204
        assert daemon.request("POST", "/api/tasks/s/stop").status == 204
        until(lambda: all(map(gone, programs)), "all of them to end")
    finally:
        daemon.thaw()
    until(lambda: daemon.get("/readyz").status == 200, "it to recover")
    for run in (talks, stays):
        until(lambda run=run: daemon.get(f"/api/runs/{run}").status == 200, "it to be read")  # type: ignore[misc]
        assert daemon.ended(run)["endReason"] == "stopped"
    numbers = [int(text.split()[1]) for text in daemon.texts(talks)]
    assert numbers == list(range(len(numbers)))
    until(lambda: daemon.task("s")["state"] == "stopped", "the end of the service to be stored")
    small = daemon.ended(daemon.trigger("small"))
    assert daemon.texts(small["id"]) == ["hello"]
    until(lambda: "database.failing" in daemon.get("/api/notifications").body.decode(), "people to hear of it")
    assert daemon.stop() == 0
