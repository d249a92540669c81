"""A disk that does not accept logs, through the real daemon."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import Daemon, program, shell_program
from tests.support.waiting import until


def test_output_waits_for_its_log_file(daemon: Daemon) -> None:
    """While a log file cannot be written, the ring keeps the lines and other runs continue; the file follows later."""
    daemon.write(f'[tasks.small]\nrun = "echo hello"\n[tasks.big]\nrun = {program("floods", 6_000_000)}\n')
    daemon.start()
    logs = daemon.data / "logs"
    logs.mkdir(mode=0o700)
    for name in ("small", "big"):
        (logs / name).write_text("in the way")
    small = daemon.ended(daemon.trigger("small"))
    assert daemon.texts(small["id"]) == ["hello"]
    big = daemon.trigger("big")
    until(lambda: daemon.get(f"/api/runs/{big}/log?from=-1").json()["totalLines"], "the ring to fill")
    assert daemon.run(big)["status"] == "running"
    until(lambda: "cannot write the log file" in daemon.output.read_text(), "the error in the daemon's log")
    for name in ("small", "big"):
        (logs / name).unlink()
    assert daemon.ended(big)["endReason"] == "succeeded"
    until(lambda: list(logs.rglob(f"{small['id']}.log")), "the small log")
    raw = daemon.get(f"/api/runs/{big}/log/raw").body
    assert raw == b"".join(b"%099d\n" % number for number in range(60_000))
    assert daemon.texts(small["id"]) == ["hello"]


class LimitedFiles(Daemon):
    """A daemon under a limit on the size of files (``ulimit -f``), of which the rings and the reserve need the most."""

    def command(self) -> list[str]:
        return ["prlimit", "--fsize=20000000", *super().command()]


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[LimitedFiles]:
    new_daemon = LimitedFiles(tmp_path)
    yield new_daemon
    new_daemon.clean()


def test_limit_on_the_size_of_files(limited: LimitedFiles) -> None:
    """A log that reaches the limit keeps its newest lines, and its run ends as without a limit."""
    daemon = limited
    flood = f"{shell_program('floods')} 60000000"
    daemon.write(f'[tasks.t]\nrun = "{flood}; echo last"\n')
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    assert run["endReason"] == "succeeded"
    assert daemon.get(f"/api/runs/{run['id']}/log?from=-1").json()["lines"][0]["text"] == "last"
    (path,) = until(lambda: list(daemon.data.rglob(f"{run['id']}.log")), "the log file")
    assert 15_000_000 < path.stat().st_size <= 20_000_000
    assert daemon.get("/api/daemon").json()["logProblems"] == []


def test_logs_on_a_missing_disk(daemon: Daemon) -> None:
    """While the link to another disk is broken, the ring keeps the lines and the daemon continues."""
    daemon.write('[tasks.t]\nrun = "echo hello"\n')
    daemon.start()
    disk = daemon.directory / "disk"
    (daemon.data / "logs").symlink_to(disk)
    run = daemon.ended(daemon.trigger("t"))
    until(lambda: f"{run['id']}: cannot write the log file" in daemon.own_output(), "the error in the daemon's log")
    assert daemon.texts(run["id"]) == ["hello"]
    disk.mkdir(mode=0o700)
    until(lambda: [*disk.rglob(f"{run['id']}.log")], "the log")
    until(lambda: daemon.texts(run["id"]) == ["hello"], "it to be read")
    assert daemon.stop() == 0
